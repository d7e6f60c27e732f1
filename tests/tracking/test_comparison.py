import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.errors import ConfigError, OutputError
from plumbline.model import Device, Origin
from plumbline.tracking.comparison import changes_by_node, compare, values_by_key
from plumbline.tracking.run_directory import RunDirectory

BASE = Scenario(nodes=2)


def pair(results: Path, first: Scenario = BASE, **changes) -> tuple[RunDirectory, RunDirectory]:
    second = replace(first, when=first.when + timedelta(days=1), seed=first.seed + 1)
    return build_run(results, first), build_run(results, replace(second, **changes))


def test_a_run_is_the_same_as_itself(tmp_path: Path):
    run = build_run(tmp_path, BASE)
    found = compare(run, run)
    assert found.changes and {change.direction for change in found.changes} == {"same"}
    assert found.warnings == found.surroundings == found.not_comparable == ()
    assert "no change in" in found.text()


def test_a_slower_benchmark_is_worse_in_rates_and_in_times(tmp_path: Path):
    a, b = pair(tmp_path, speed={"fio": 0.5})
    found = {(c.benchmark, c.indicator): c for c in compare(a, b).changes}
    rate, wait = found["fio", "read_iops"], found["fio", "read_latency_p99"]
    assert rate.direction == wait.direction == "worse"
    assert rate.change == pytest.approx(-0.5, abs=0.03) and wait.change == pytest.approx(1.0, abs=0.1)
    assert rate.a > rate.b and (rate.values_a, rate.values_b, rate.unit) == (1, 1, "IOPS")
    assert compare(a, b).changes[0].benchmark == "fio", "the largest worsening comes first"
    faster = {(c.benchmark, c.indicator): c.direction for c in compare(b, a).changes}
    assert faster["fio", "read_iops"] == "better"


def test_one_value_each_allows_no_statement_on_chance(tmp_path: Path):
    a, b = pair(tmp_path, speed={"fio": 0.5})
    assert all(c.p_value is None and c.significant is None for c in compare(a, b).changes if c.benchmark == "fio")


def test_repeats_tell_a_change_from_scatter(tmp_path: Path):
    a, b = pair(tmp_path, replace(BASE, repeats=5), speed={"fio": 0.8})
    found = {(c.benchmark, c.indicator): c for c in compare(a, b).changes}
    assert found["fio", "read_iops"].significant is True
    assert found["hpl_mxp", "effective_flops"].significant is False


def test_many_nodes_tell_a_change_from_scatter(tmp_path: Path):
    base = Scenario(cluster="h100", nodes=12, device=Device.GPU)
    a, b = pair(tmp_path, base, speed={"hpl_mxp": 0.95})
    found = {(c.benchmark, c.indicator): c for c in compare(a, b).changes if c.node_count == 1}
    assert found["hpl_mxp", "effective_flops"].significant is True
    assert found["fio", "read_iops"].significant is False


def test_one_slow_node_is_found_by_node(tmp_path: Path):
    base = Scenario(cluster="h100", nodes=4, device=Device.GPU)
    a, b = pair(tmp_path, base, slow_nodes={"n0003": 0.6})
    worst = changes_by_node(values_by_key(a), values_by_key(b))[:8]
    assert {change.node for change in worst} == {"n0003"} and worst[0].direction == "worse"


def test_another_benchmark_version_is_not_comparable(tmp_path: Path):
    a, b = pair(tmp_path, version="2")
    found = compare(a, b)
    assert found.changes == ()
    assert {item.item: item.reason for item in found.not_comparable}["fio"] == "benchmark version 1 → 2"


def test_other_parameters_are_not_comparable_and_named(tmp_path: Path):
    a, b = pair(tmp_path, params={"fio": {"iodepth": 32}, "nccl_tests": {"operations": "all_reduce,all_gather"}})
    found = compare(a, b)
    assert {c.benchmark for c in found.changes} == {"nccl_tests", "hpl_mxp", "mlperf_gpt3"}
    assert [(i.item, i.reason) for i in found.not_comparable] == [("fio", "parameters differ: iodepth: absent → 32")]


def test_what_only_one_run_has_is_said(tmp_path: Path):
    a, b = pair(tmp_path, replace(BASE, nodes=4), nodes=2)
    items = {item.item: item.reason for item in compare(a, b).not_comparable}
    assert items["mlperf_gpt3/step_time [s] at 4 nodes"] == f"1 value only in {a.run_id}"


def test_clusters_origins_and_devices_are_never_compared_in_silence(tmp_path: Path):
    a = build_run(tmp_path, BASE)
    other = Scenario(cluster="sim", nodes=2, origin=Origin.SIMULATED, device=Device.GPU, suite="acceptance")
    b = build_run(tmp_path, other)
    found = compare(a, b)
    text = " | ".join(found.warnings)
    for words in ("different clusters: local and sim", "different devices: cpu and gpu", "different suites"):
        assert words in text
    assert "is measured and" in text and "say nothing about hardware" in text
    assert all(f"! {warning}" in found.text() for warning in found.warnings)


def test_what_differs_around_the_runs_is_said(tmp_path: Path):
    a, b = pair(tmp_path, kernel="6.9-other")
    assert compare(a, b).surroundings == ("kernel: 6.1.0-test → 6.9-other",)


def test_invalid_rows_are_not_compared(tmp_path: Path):
    a, b = pair(tmp_path, invalid=["fio-n1-g0-r1"])
    assert "fio" not in {c.benchmark for c in compare(a, b).changes}


def test_runs_without_values_or_verdicts_are_refused(tmp_path: Path):
    a = build_run(tmp_path, replace(BASE, nodes=1))
    launches = [spec.launch_id for spec in a.plan().launches]
    empty = build_run(tmp_path, replace(BASE, nodes=1), seed=2, missing_launches=launches)
    with pytest.raises(ConfigError, match=f"{empty.run_id} has no valid measurement"):
        compare(a, empty)
    (a.derived / "verdicts.parquet").unlink()
    with pytest.raises(OutputError, match="not judged yet"):
        compare(a, empty)


def test_the_comparison_is_plain_data_and_a_table(tmp_path: Path):
    a, b = pair(tmp_path, replace(BASE, repeats=3), speed={"fio": 0.5})
    found = compare(a, b)
    data = json.loads(json.dumps(found.to_plain(), allow_nan=False))
    first = data["changes"][0]
    assert (data["run_a"], data["run_b"]) == (a.run_id, b.run_id)
    assert first["significant"] is True and first["direction"] == "worse"
    lines = found.text().splitlines()
    assert lines[0] == f"{a.run_id} → {b.run_id}"
    assert any("fio read_iops [IOPS] at 1 node" in line and "-50" in line and "worse" in line for line in lines)
