"""`plumbline demo`: a short history on a small simulated cluster, through every stage."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

import pytest
import yaml
from tests.run_builder import build_run

from plumbline.cli import main
from plumbline.commands.demonstrating import STORY, _begun
from plumbline.errors import ExitCode
from plumbline.reports.nights import NightLine
from plumbline.simulation.faults import Fault, load_scenario
from plumbline.tracking.run_directory import find_runs


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "short.yaml").write_text(
        yaml.safe_dump({
            "name": "short", "title": "Short", "kind": "nightly",
            "gate": {"blocks": ["FAIL", "INVALID", "NOT_RUN", "STALE"], "coverage_gaps_allowed": True},
            "node_counts": [1], "benchmarks": [{"benchmark": "hpl_mxp"}],
        })
    )  # fmt: skip
    monkeypatch.setenv("PLUMBLINE_SUITES", str(tmp_path / "suites"))
    for name in ("PLUMBLINE_RESULTS", "MLFLOW_TRACKING_URI"):
        monkeypatch.setenv(name, "set anew by the demonstration")  # and put back after the test
    return "short"


def test_a_planted_night_is_found_and_everything_is_there_to_look_at(
    tmp_path: Path, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    faults = tmp_path / "faults.yaml"
    hot = {"kind": "thermal_throttle", "node": "n0003", "gpu": 2, "severity": 0.4}
    faults.write_text(yaml.safe_dump({"faults": [{**hot, "start": date(2026, 9, 2), "end": date(2026, 9, 2)}]}))
    out = tmp_path / "demo"
    words = ["--cluster", "simulated-8", "--suite", suite, "--faults", str(faults), "--out", str(out)]
    assert main(["demo", "--nights", "3", *words]) == ExitCode.OK
    told = capsys.readouterr().out
    assert told.startswith("SIMULATED")
    assert "from 2026-09-01; planted faults that begin in them: 1 of 1\n" in told
    assert [line.split()[2] for line in told.splitlines() if " gate " in line] == [
        "2026-09-01",
        "2026-09-02",
        "2026-09-03",
    ]
    first, hot_night, last = find_runs(out / "results", "simulated-8")
    assert [run.read_derived("verdict.json")["gate"] for run in (first, hot_night, last)] == ["open", "closed", "open"]
    assert [line["by"] for line in first.decisions()] == ["demo"]
    assert [(run.evidence / "raw").is_dir() for run in (first, hot_night, last)] == [False, True, True]
    page = (out / "nights.html").read_text()
    assert "SIMULATED" in page and "thermal_throttle n0003 GPU 2" in page
    for run in (first, hot_night, last):
        assert f"results/simulated-8/{suite}/{run.run_id}/derived/report.html" in page
        assert (run.derived / "report.html").is_file()
    client = MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    ids = [run.read_derived("verdict.json")["mlflow_run_id"] for run in (first, hot_night, last)]
    tags = [client.get_run(name).data.tags for name in ids]
    assert [tag["plumbline.gate"] for tag in tags] == ["open", "closed", "open"]
    assert {tag["plumbline.origin"] for tag in tags} == {"simulated"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cluster", "local"], "is a real cluster"),
        (["--nights", "0"], "one at least"),
        (["--faults", "nowhere.yaml"], "nowhere.yaml"),
        (["--cluster", "simulated-8"], "faults[0].node: simulated-8 has no node 'n0021'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path / "new"), *words]) == ExitCode.USAGE
    assert told in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_old_demonstration_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path)]) == ExitCode.USAGE
    assert "is there already" in capsys.readouterr().err


def test_the_story_starts_with_a_healthy_week() -> None:
    scenario = load_scenario(str(STORY), 0)
    starts = [fault.start for fault in scenario.faults]
    assert all(start is not None and start > date(2026, 9, 7) for start in starts)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "missing_gpu", "node": "n0002", "gpu": 5}, "missing_gpu n0002 GPU 5"),
        ({"kind": "node_lost", "node": "n0002"}, "node_lost n0002"),
        ({"kind": "slow_client", "node": "n0002", "severity": 0.6}, "slow_client n0002 (60%)"),
    ],
)
def test_only_faults_with_degrees_show_one(fault: dict[str, object], words: str, tmp_path: Path) -> None:
    run = build_run(tmp_path)
    line = NightLine.of(date(2026, 9, 1), run.read_derived("verdict.json"), [Fault.model_validate(fault)], run)
    assert line.planted == (words,)


@pytest.mark.parametrize(
    ("planted", "gate", "outcome"),
    [((), "open", "quiet"), ((), "closed", "false alarm"), (("x",), "open", "missed"), (("x",), "closed", "found")],
)
def test_verdict_and_truth_are_set_beside_each_other(
    planted: tuple[str, ...], gate: str, outcome: str, tmp_path: Path
) -> None:
    line = NightLine(
        night=date(2026, 9, 1), verdict="PASS", gate=gate, reasons=(), planted=planted, run_id="r", run_dir=tmp_path
    )
    assert line.outcome == outcome


def test_nights_before_the_first_fault_say_so() -> None:
    scenario = load_scenario(str(STORY), 0)
    words = _begun(argparse.Namespace(nights=6, first=date(2026, 9, 1)), scenario)
    assert words == f"planted faults that begin in them: 0 of {len(scenario.faults)}, the first would in night 12"
