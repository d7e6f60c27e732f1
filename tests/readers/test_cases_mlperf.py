"""Real MLPerf logs and system descriptions of other submitters, with the values that a person read from them."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from plumbline.errors import OutputError
from plumbline.readers import read
from plumbline.readers.reading import Completeness, Fact, Reading, Status
from plumbline.readers.source import Source

ROOT = Path(__file__).parents[2]
CASES = Path(os.environ.get("PLUMBLINE_CASES", ROOT.parent / "shared" / "cases"))

pytestmark = pytest.mark.skipif(not (CASES / "INDEX.tsv").exists(), reason="no folder of recorded outputs")

NOT_IN_THE_LOG = {"entry", "accelerators", "accelerator", "system_name"}
"""What the index knows from other files: the runs beside this one, and the system description."""
STATUS = {
    "success": Status.COMPLETE,
    "aborted": Status.ABORTED,
    "incomplete": Status.INCOMPLETE,
    "not_started": Status.NOT_STARTED,
}


def cases(kind):
    if not (CASES / "INDEX.tsv").exists():
        return []
    with (CASES / "INDEX.tsv").open(newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            (row["file"], json.loads(row["oracle"]))
            for row in rows
            if row["file"].startswith("mlperf/") and (row["tool"] == "MLPerf system description") is (kind == "system")
        ]


def read_case(name, reader):
    found = list(read(reader, Source.of_path(CASES / name)))
    facts = {item.name: item.value for item in found if isinstance(item, Fact)}
    readings = [item for item in found if isinstance(item, Reading)]
    assert isinstance(found[-1], Completeness)
    return readings, facts, found[-1]


@pytest.mark.parametrize(("name", "oracle"), cases("log"), ids=lambda value: value if isinstance(value, str) else "")
def test_log(name, oracle):
    readings, facts, completeness = read_case(name, "mllog")
    assert completeness.status is STATUS[oracle["status"]]
    expected = {key: value for key, value in oracle.items() if key not in NOT_IN_THE_LOG}
    milliseconds, minutes = expected.pop("time_to_train_ms", None), expected.pop("time_to_train_min", None)
    times = [item.value for item in readings if item.indicator == "time_to_train"]
    if oracle["status"] == "success":
        assert times == [milliseconds / 1000]
        assert facts["time_to_train_ms"] == milliseconds
        assert round(facts["time_to_train_min"], 4) == minutes
    else:
        assert times == []
        assert not any(name.startswith("time_to_train") for name in facts)
        assert facts.get("elapsed_until_abort_ms") == milliseconds
    until_abort = expected.pop("elapsed_until_abort_min", None)
    assert until_abort is None or round(facts["elapsed_until_abort_min"], 4) == until_abort
    assert {key: facts[key] for key in expected} == expected
    accuracies = [item.value for item in readings if item.indicator == "eval_accuracy"]
    assert len(accuracies) == oracle.get("n_eval", 0)
    assert accuracies[-1:] == ([oracle["last_eval_accuracy"]] if "last_eval_accuracy" in oracle else [])


def test_logs_know_their_step_times():
    """Medians that were computed from the same logs by other means, seconds."""
    medians = {
        "mlperf/nvidia_v30_h100x768_gpt3.txt": 12.127,
        "mlperf/oracle_v41_h100x1536_gpt3_mixed_prefix.txt": 5.170,
        "mlperf/nvidia_v41_b200x64_gpt3.txt": 36.234,
    }
    for name, median in medians.items():
        readings, _, _ = read_case(name, "mllog")
        steps = sorted(item.value for item in readings if item.indicator == "step_time")
        assert steps[len(steps) // 2] == pytest.approx(median, rel=0.01)


@pytest.mark.parametrize(("name", "oracle"), cases("system"), ids=lambda value: value if isinstance(value, str) else "")
def test_system_description(name, oracle):
    readings, facts, completeness = read_case(name, "mlperf_system")
    assert completeness.status is Status.COMPLETE
    assert {key: facts[key] for key in oracle} == oracle
    assert {item.indicator: item.value for item in readings} == {
        "nodes": int(oracle["number_of_nodes"]),
        "accelerators": oracle["total_accelerators"],
    }


@pytest.mark.parametrize("name", [name for kind in ("log", "system") for name, _ in cases(kind)])
def test_the_other_reader_refuses_or_says_so(name):
    other = "mllog" if name.endswith(".json") else "mlperf_system"
    with pytest.raises(OutputError):
        read_case(name, other)
