"""Limits of a run: a cluster's history holds for the hardware that made it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.run_builder import build_run

from plumbline.analysis.scatter import Scatter
from plumbline.clusters.profile import load_profile
from plumbline.errors import ConfigError
from plumbline.references.reference import FOLDER, load_references
from plumbline.stages import load, prepare
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
