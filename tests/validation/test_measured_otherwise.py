"""A run that measures otherwise than approved history is neither held to it nor passed by it. SIMULATED."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from plumbline import stages
from plumbline.tracking.comparison import compare
from plumbline.tracking.run_directory import RunDirectory

FIRST = datetime(2026, 11, 1, 2, tzinfo=UTC)
SUITE = {
    "name": "short", "title": "Short", "kind": "nightly", "gate": {"coverage_gaps_allowed": True},
    "benchmarks": [
        {"benchmark": "fio"},
        {"benchmark": "nccl_tests"},
        {"benchmark": "mlperf_gpt3", "params": {"mode": "fixed_steps"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder with one whole night, which is approved."""
    found = tmp_path_factory.mktemp("otherwise")
    (found / "short.yaml").write_text(yaml.safe_dump(SUITE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_RESULTS", str(found / "results"))
        run, verdict = night(found, 0)
        assert verdict["gate"] == "open"
        run.add_decision({"kind": "approve_baseline", "by": "ann"})
        yield found


def night(folder: Path, number: int, **settings: Any) -> tuple[RunDirectory, dict[str, Any]]:
    """Measure and judge one healthy night."""
    moment = FIRST + timedelta(days=number)
    run = stages.prepare("simulated-8", str(folder / "short.yaml"), settings, trigger="test", now=moment)
    for batch_id in stages.batch_ids(run):
        stages.launch_batch(run.path, batch_id, lambda _: None)
    stages.seal(run.path)
    return run, stages.judge(run.path)


def without_history(verdict: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Give (benchmark, indicator) → message of what is compared with nothing; anything else must have passed."""
    assert {reason["code"] for reason in verdict["reasons"]} <= {"no_baseline", "expected_finding", "excluded"}
    return {
        (item["benchmark"], item["indicator"]): item["message"]
        for item in verdict["reasons"]
        if item["code"] == "no_baseline"
    }


def test_the_same_night_again_is_compared_whole(folder: Path) -> None:
    _, verdict = night(folder, 1)
    assert without_history(verdict) == {} and verdict["compared"]["measured_otherwise"] == []


@pytest.mark.parametrize("number", [2, 3])
def test_a_night_of_one_rung_is_not_held_to_ratios_of_others(folder: Path, number: int) -> None:
    _, verdict = night(folder, number, node_counts=8)
    aggregates = {("fio", "aggregate_read_bandwidth"), ("fio", "aggregate_write_bandwidth")}
    assert set(without_history(verdict)) == {("nccl_tests", "bus_bandwidth_of_rated_ceiling"), *aggregates}
    assert "fio node_counts 8 at 8 nodes" in {item["place"] for item in verdict["reasons"]}
    _, verdict = night(folder, number + 10, node_counts="2,8")
    found = without_history(verdict)
    assert set(found) == {
        ("nccl_tests", "bus_bandwidth_of_rated_ceiling"),
        ("mlperf_gpt3", "scaling_efficiency_weak"),
        *aggregates,
    }


def test_other_parameters_are_compared_with_nothing_and_say_why(folder: Path) -> None:
    run, verdict = night(folder, 5, **{"mlperf_gpt3.seed": 5})
    found = without_history(verdict)
    assert {benchmark for benchmark, _ in found} == {"mlperf_gpt3"}
    assert ("mlperf_gpt3", "step_time") in found and ("mlperf_gpt3", "final_loss") in found
    assert all("no approved history that is comparable: seed: " in message for message in found.values())
    (told,) = verdict["compared"]["measured_otherwise"]
    assert told["benchmark"] == "mlperf_gpt3" and told["indicators"] == [] and len(told["runs"]) == 1
    assert {item["run_id"] for item in run.read_evidence("references")["left_out"]} == set(told["runs"])


def test_a_peak_over_other_sizes_is_another_number(folder: Path) -> None:
    run, verdict = night(folder, 6, **{"nccl_tests.min_bytes": "8K"})
    found = without_history(verdict)
    assert 'comparable: min_bytes: "auto" → "8K" (1 run)' in found["nccl_tests", "bus_bandwidth_peak"]
    assert set(found) == {("nccl_tests", "bus_bandwidth_peak"), ("nccl_tests", "latency_smallest")}
    before = RunDirectory(run.path.parent / verdict["compared"]["measured_otherwise"][0]["runs"][0])
    compared = compare(before, run)
    assert {item.item: item.reason for item in compared.not_comparable}["nccl_tests bus_bandwidth_peak"] == (
        'of other rows: min_bytes: "auto" → "8K"'
    )
    assert "bus_bandwidth" in {change.indicator for change in compared.changes}
    assert "bus_bandwidth_peak" not in {change.indicator for change in (*compared.changes, *compared.worst)}
    _, verdict = night(folder, 7, **{"nccl_tests.operations": "all_reduce"})
    assert without_history(verdict) == {}
