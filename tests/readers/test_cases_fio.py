"""Third-party outputs of fio, gpu-burn and stress-ng with known values, where the folder that holds them exists."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from plumbline.readers import detect, read
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.readers.source import Source

CASES = Path(os.environ.get("PLUMBLINE_CASES") or Path(__file__).parents[3] / "shared" / "cases")
READERS = {"fio": "fio", "gpu-burn": "gpu_burn", "stress-ng": "stress_ng"}
STATUS = {
    "complete": Status.COMPLETE,
    "failed": Status.FAILED,
    "interrupted": Status.ABORTED,
    "success": Status.COMPLETE,
}


def cases() -> list[Any]:
    index = CASES / "INDEX.tsv"
    if not index.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"{CASES} is not there"), id="none")]
    with index.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE) if row["tool"] in READERS]
    return [pytest.param(row, id=row["file"]) for row in rows]


class Case:
    def __init__(self, row: dict[str, str]) -> None:
        self.oracle: dict[str, Any] = json.loads(row["oracle"])
        path = CASES / row["file"]
        *items, self.end = list(read(READERS[row["tool"]], Source.of_path(path)))  # type: ignore[misc]
        self.readings = [item for item in items if isinstance(item, Reading)]
        self.facts = {item.name: item.value for item in items if isinstance(item, Fact)}
        if self.readings:
            assert READERS[row["tool"]] == detect(path).NAME

    def value(self, indicator: str, **params: Any) -> float:
        found = [r.value for r in self.readings if r.indicator == indicator and params.items() <= r.params.items()]
        assert len(found) == 1, (indicator, params, len(found))
        return found[0]


def same(found: float, wanted: float, digits: int | None = None) -> bool:
    return math.isclose(found, wanted, rel_tol=1e-9) or (digits is not None and round(found, digits) == wanted)


@pytest.mark.parametrize("row", cases())
def test_known_values(row: dict[str, str]) -> None:
    case = Case(row)
    {"fio": check_fio, "gpu-burn": check_gpu_burn, "stress-ng": check_stress_ng}[row["tool"]](case)


def check_fio(case: Case) -> None:
    oracle, facts = case.oracle, case.facts
    assert case.end.status is STATUS[oracle["status"]], case.end.reason
    if "first_job" not in oracle:
        check_fio_without_first_job(case)
        return
    for key in ("container", "errors", "fio_version", "has_all_clients_entry", "json_docs", "n_job_entries", "n_jobs"):
        assert facts[key] == oracle[key], key
    if "asked_runtime_s" in oracle:
        assert facts["asked_runtime_s"] == oracle["asked_runtime_s"]
    if "io_bytes_unit" in oracle:
        assert oracle["io_bytes_unit"].startswith(facts["io_bytes_unit"])
    for way in ("read", "write"):
        check_fio_sums(facts, way, oracle[way])
    check_fio_first_job(case)


def check_fio_sums(facts: dict[str, Any], way: str, wanted: dict[str, Any]) -> None:
    assert facts[f"{way}_sum_bw_KiBps"] == wanted["sum_bw_KiBps"]
    assert same(facts[f"{way}_sum_bw_MiBps"], wanted["sum_bw_MiBps"], 2)
    assert same(facts[f"{way}_sum_iops"], wanted["sum_iops"], 2)
    assert facts[f"{way}_max_runtime_ms"] == wanted["max_runtime_ms"]
    assert facts.get(f"{way}_total_ios", 0) == wanted["total_ios"]
    if "all_clients_bw_KiBps" in wanted:
        assert facts[f"{way}_all_clients_bw_KiBps"] == wanted["all_clients_bw_KiBps"]
        assert facts.get(f"{way}_all_clients_iops", 0.0) == wanted["all_clients_iops"]


def check_fio_first_job(case: Case) -> None:
    first, facts = case.oracle["first_job"], case.facts["first_job"]
    assert facts["name"] == first["name"]
    to_us = 1000 if first["lat_key"] == "clat_ns" else 1
    nowhere = {"job": first["name"]}
    for way in ("read", "write"):
        assert facts[f"{way}_bw"] == first[f"{way}_bw"]
        if not first[f"{way}_iops"]:
            assert not [r for r in case.readings if r.params["job"] == first["name"] and r.params["direction"] == way]
            continue
        place = {**nowhere, "direction": way}
        place |= {"hostname": "perf36", "instance": 0} if case.facts["container"] == "client_stats" else {}
        assert same(case.value("iops", **place), first[f"{way}_iops"])
        kib = case.value("bandwidth", **place) * 1e6 / 1024
        assert math.floor(kib + 1e-6) == first[f"{way}_bw"]
        if first.get(f"{way}_clat_p99"):
            assert same(case.value("completion_latency", percentile=99, **place), first[f"{way}_clat_p99"] / to_us)


def check_fio_without_first_job(case: Case) -> None:
    """Text, or no result at all."""
    if "json_docs" in case.oracle:
        assert case.facts["json_docs"] == case.oracle["json_docs"]
        assert case.readings == []
        return
    wanted = case.oracle["read"]
    assert case.value("bandwidth", direction="read") * 1e6 == wanted["bw_MiBps"] * (1 << 20)
    assert case.value("iops", direction="read") == wanted["iops"]
    assert case.value("runtime", direction="read") == wanted["runtime_ms"]


def check_gpu_burn(case: Case) -> None:
    for key in ("ok", "faulty", "carriage_returns", "progress_updates"):
        assert case.facts[key] == case.oracle[key], key
    assert [str(case.facts["tested"])] == case.oracle["tested"]
    assert case.end.status is Status.COMPLETE
    assert {r.params["gpu"] for r in case.readings} == set(range(case.facts["ok"]))


def check_stress_ng(case: Case) -> None:
    oracle = case.oracle
    assert case.end.status is STATUS[oracle["status"]]
    assert case.facts["status"] == oracle["status"]
    assert case.facts["stressor"] == oracle["stressor"]
    for indicator, key in (
        ("bogo_ops", "bogo_ops"),
        ("bogo_ops_per_s_real", "bogo_ops_per_s_real"),
        ("bogo_ops_per_s_usrsys", "bogo_ops_per_s_usrsys"),
        ("real_time", "real_time_s"),
    ):
        assert case.value(indicator, stressor=oracle["stressor"]) == oracle[key]
