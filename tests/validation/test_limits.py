"""Limits of a run: a cluster's history holds for the hardware that made it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.run_builder import build_run

from plumbline.analysis.scatter import Scatter
from plumbline.clusters.profile import load_profile
from plumbline.errors import ConfigError
from plumbline.references.reference import FOLDER, load_references
from plumbline.stages import load, prepare
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.limits import collect_limits, known_scatter
from plumbline.validation.sealed_limits import read_limits


def test_a_baseline_ends_with_the_hardware_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = load_references("local-cpu")
    monkeypatch.setattr("plumbline.validation.limits.load_references", lambda hardware: shipped)
    old = build_run(tmp_path, cluster="local", when=datetime.now(UTC) - timedelta(days=1))
    old.add_decision({"kind": "approve_baseline", "by": "ann"})
    profile, suite = old.profile(), old.suite()
    before = collect_limits(profile, suite, tmp_path, "29991231T000000Z-000000")
    assert before["approved_runs"] == [old.run_id] and before["baseline"] and not before["left_out"]
    fabric = profile.fabric.model_copy(update={"name": "another"})
    after = collect_limits(profile.model_copy(update={"fabric": fabric}), suite, tmp_path, "29991231T000000Z-000000")
    assert after["approved_runs"] == after["baseline"] == []
    assert "with another" in after["left_out"][0]["reason"]


LATER = "29991231T000000Z-000000"


def asked(suite: Suite, **params: dict[str, Any]) -> Suite:
    """Give the suite with parameters for benchmarks."""
    data = suite.model_dump(mode="json")
    for entry in data["benchmarks"]:
        entry["params"] |= params.get(entry["benchmark"], {})
    return Suite.model_validate(data)


def approved(folder: Path, days_ago: int = 1, **changes: Any) -> RunDirectory:
    run = build_run(folder, cluster="local", when=datetime.now(UTC) - timedelta(days=days_ago), **changes)
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    return run


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_references("local-cpu")
    monkeypatch.setattr("plumbline.validation.limits.load_references", lambda hardware: found)


def measured_by(limits: dict[str, Any]) -> set[str]:
    return {item["benchmark"] for item in limits["baseline"]}


@pytest.mark.usefixtures("shipped")
def test_history_of_other_parameters_is_no_limit_and_is_told(tmp_path: Path) -> None:
    run = approved(tmp_path)
    profile, suite = run.profile(), run.suite()
    before = collect_limits(profile, suite, tmp_path, LATER)
    assert "mlperf_gpt3" in measured_by(before) and before["left_out"] == []
    found = collect_limits(profile, asked(suite, mlperf_gpt3={"threads": 2, "seed": 7}), tmp_path, LATER)
    assert measured_by(found) == measured_by(before) - {"mlperf_gpt3"}
    assert found["approved_runs"] == [run.run_id]
    (told,) = found["left_out"]
    assert (told["run_id"], told["benchmark"]) == (run.run_id, "mlperf_gpt3")
    assert "seed: " in told["reason"] and "→ 7; threads: " in told["reason"] and told["reason"].endswith("→ 2")
    (kept,) = read_limits(found).otherwise
    assert kept.holds_for("mlperf_gpt3", "step_time") and not kept.holds_for("mlperf_bert", "step_time")
    assert kept.runs == (run.run_id,) and kept.reason == told["reason"]
    other = profile.model_copy(update={"benchmarks": {"mlperf_gpt3": {"threads": 2}}})
    assert "mlperf_gpt3" not in measured_by(collect_limits(other, suite, tmp_path, LATER)), "profiles ask as well"


@pytest.mark.usefixtures("shipped")
def test_a_selection_keeps_the_rows_that_both_have(tmp_path: Path) -> None:
    run = approved(tmp_path)
    before = collect_limits(run.profile(), run.suite(), tmp_path, LATER)
    fewer = asked(run.suite(), nccl_tests={"operations": "all_reduce"}, fio={"jobs": "seq_read"})
    assert collect_limits(run.profile(), fewer, tmp_path, LATER)["baseline"] == before["baseline"]
    assert "nccl_tests" in measured_by(before)


@pytest.mark.usefixtures("shipped")
def test_only_the_runs_that_measured_alike_make_the_limit(tmp_path: Path) -> None:
    old = approved(tmp_path, 3, version="0")
    run, limit = approved(tmp_path, 2, seed=2), "approved_runs"
    found = collect_limits(run.profile(), run.suite(), tmp_path, LATER)
    assert found[limit] == [run.run_id] and {item["benchmark_version"] for item in found["baseline"]} == {"1"}
    reasons = {(item["run_id"], item["benchmark"]): item["reason"] for item in found["left_out"]}
    assert set(reasons.values()) == {"benchmark version 0 → 1"} and {run_id for run_id, _ in reasons} == {old.run_id}
    (old.evidence / "suite.json").write_text("{}")
    found = collect_limits(run.profile(), run.suite(), tmp_path, LATER)
    assert found[limit] == [run.run_id] and all("can't be told" in item["reason"] for item in found["left_out"])


@pytest.mark.usefixtures("shipped")
def test_without_any_comparable_history_no_run_is_named(tmp_path: Path) -> None:
    run = approved(tmp_path)
    names = [entry.benchmark for entry in run.suite().benchmarks]
    versions = {name: {"timeout_s": 77.0} for name in names if name != "fio"} | {"fio": {"clients": 7}}
    found = collect_limits(run.profile(), asked(run.suite(), **versions), tmp_path, LATER)
    assert found["approved_runs"] == found["baseline"] == []
    assert {item["benchmark"] for item in found["left_out"]} == set(names)
    assert read_limits(found).problems == ()


def test_a_run_that_something_speaks_against_makes_no_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Approved by hand in its decisions, or before it was judged anew."""
    shipped = load_references("local-cpu")
    monkeypatch.setattr("plumbline.validation.limits.load_references", lambda hardware: shipped)
    slow = build_run(tmp_path, cluster="local", speed={"fio": 0.4})
    slow.add_decision({"kind": "sign_off", "decision": "approve", "by": "ann"})
    found = collect_limits(slow.profile(), slow.suite(), tmp_path, "29991231T000000Z-000000")
    assert found["approved_runs"] == found["baseline"] == []
    assert found["left_out"][0]["run_id"] == slow.run_id
    assert found["left_out"][0]["reason"].startswith("its gate is closed: outside_reference")


def test_an_approved_run_that_is_being_judged_again_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = load_references("local-cpu")
    monkeypatch.setattr("plumbline.validation.limits.load_references", lambda hardware: shipped)
    run = build_run(tmp_path, cluster="local")
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    (run.derived / "verdict.json").unlink()
    found = collect_limits(run.profile(), run.suite(), tmp_path, "29991231T000000Z-000000")
    assert found["baseline"] == [] and [item["run_id"] for item in found["unusable"]] == [run.run_id]
    assert any(run.run_id in problem for problem in read_limits(found).problems)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lower: 456.0", "lower: 4.56", "less than half of the value 480"),
        ("lower: 456.0", "lower: .nan", "lower: .*finite"),
        ("lower: 456.0", "lower: -.inf", "lower: .*finite"),
    ],
)
def test_references_that_could_never_bind_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    shipped = (FOLDER / "h100-sxm5-80gb.yaml").read_text()
    monkeypatch.setenv("PLUMBLINE_REFERENCES", str(tmp_path))
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "results"))
    (tmp_path / "own.yaml").write_text(shipped)
    profile, suite = load("simulated-8", "nightly", {})
    assert collect_limits(profile, suite, tmp_path, "29991231T000000Z-000000")["references"]
    assert old in shipped
    (tmp_path / "own.yaml").write_text(shipped.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        prepare("simulated-8", "nightly", {}, trigger="test")
    assert list((tmp_path / "results").glob("*/*/*")) == []


def test_the_known_scatter_of_an_indicator_is_what_its_peers_are_allowed() -> None:
    profile = load_profile("simulated-8")
    scatter = known_scatter(load_references(profile.reference_hardware), profile)
    lower = {
        "latency_smallest": 0.25,
        "bus_bandwidth": 0.20,
        "bus_bandwidth_headline": 0.05,
    }  # fmt: skip
    for indicator, tolerance in lower.items():
        assert scatter("nccl_tests", "2.17", indicator, 4)[0] == pytest.approx(tolerance)
    assert scatter("fio", "3.33", "read_iops", 1) == pytest.approx(Scatter(fail=0.20, warn=0.15))
    assert scatter("hpl_mxp", "1", "effective_flops", 1) == pytest.approx(Scatter(fail=0.05, warn=0.03))
    assert scatter("nccl_tests", "2.17", "bus_bandwidth", 4).step == 0.01
