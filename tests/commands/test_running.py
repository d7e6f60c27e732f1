"""Commands that plan a run and take it through its stages: plan, run, report, track, and how a verdict is printed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.commands.command_line import edit_to_open, run
from tests.prepared_run import prepare_run
from tests.run_builder import build_run
from tests.simulated_run import simulate

from plumbline import stages
from plumbline.commands.beside import Beside
from plumbline.commands.running import print_verdict
from plumbline.errors import ExitCode, StageLostError


def test_the_plan_names_launches_and_what_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "--cluster", "simulated-8", "--set", "node_counts=1,16", "--json")
    plan = json.loads(out)
    assert code == ExitCode.OK
    assert {gap["code"] for gap in plan["gaps"]} == {"unreachable_scale"}
    assert {node for spec in plan["launches"] for node in spec["nodes"]} == {f"n{i:04d}" for i in range(1, 9)}


def test_one_is_told_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "plan", "--cluster", "local")[1]
    assert "1 launch of 1 node, at most" in out and "1 launch of 2 nodes, at most" in out
    assert not re.search(r"\b1 (nodes|launches)", out)


def test_plan_names_the_nodes_that_no_launch_reaches(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "--set", "node_counts=1,2", "--set", "benchmarks=nccl_tests")
    code, out, _ = run(capsys, *words)
    assert code == ExitCode.OK
    assert "  not measured at all: local-2, local-3: this run measures at 1, 2 of" in out
    assert list(json.loads(run(capsys, *words, "--json")[1])["uncovered"]) == ["local-2", "local-3"]
    assert "not measured at all" not in run(capsys, "plan")[1]


def test_a_resumed_run_takes_no_new_settings(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build_run(results)
    code, _, err = run(capsys, "run", "--resume", str(made.path), "--set", "repeats=9")
    assert code == ExitCode.USAGE
    assert "--set repeats=9" in err


def test_a_finished_run_is_not_resumed_and_the_unfinished_are_named(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_run(results)
    code, _, err = run(capsys, "run", "--resume", made.run_id)
    assert code == ExitCode.USAGE and "is finished: there is nothing to resume, and no other is unfinished" in err
    other = prepare_run(results, {"b0": ["true"]})
    code, _, err = run(capsys, "run", "--resume", "latest")
    assert code == ExitCode.USAGE and f"{made.run_id} is finished: there is nothing to resume; unfinished: " in err
    assert other.run_id in err


@pytest.mark.parametrize(("hours", "warned"), [(0.1, False), (30, True)])
def test_a_run_that_is_taken_up_too_late_is_warned_of(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, hours: float, warned: bool
) -> None:
    made = prepare_run(results, {"b0": ["true"], "b1": ["true"]})
    made.write_evidence("environment", {})
    stages.launch_batch(made.path, "b0", lambda text: None)
    record = next((made.evidence / "records").glob("*.json"))
    then = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    record.write_text(json.dumps({**json.loads(record.read_text()), "ended_at": then}))
    monkeypatch.setattr("plumbline.stages.launch_batch", interrupted)
    _, _, err = run(capsys, "run", "--resume", made.run_id)
    assert ("ended 30.0 h ago, longer than a run may take" in err) is warned
    assert ("warning" in err) is warned


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_resumed_run_stays_of_its_cluster_and_suite(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = prepare_run(results, {"b0": ["true"]})
    for words in (("--cluster", "simulated-8"), ("--suite", "acceptance")):
        code, _, err = run(capsys, "run", "--resume", made.run_id, *words)
        assert code == ExitCode.USAGE and f"{' '.join(words)}: {made.run_id} is of tiny" in err
    assert not made.sealed


def test_a_run_that_was_killed_behind_its_manifest_is_brought_to_its_end(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = simulate(results, "simulated-8", ["node_counts=1", "benchmarks=hpl_mxp"])
    seals = results / "simulated-8" / "seals.jsonl"
    seals.unlink()
    (results / "latest").unlink()
    assert run(capsys, "run", "--resume", made.run_id, "--no-track")[0] == ExitCode.OK
    assert made.run_id in seals.read_text() and (results / "latest").is_dir()
    assert not (results / "simulated-8" / "lock.json").exists()


@pytest.mark.parametrize("stage", ["report", "track"])
def test_the_verdict_is_printed_though_a_later_stage_is_killed(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{results}/mlflow.db")
    made = simulate(results, "simulated-8", ["node_counts=1", "benchmarks=hpl_mxp"])
    call = Beside.call

    def killed(beside: Beside, function: Any, *args: Any) -> Any:
        if function.__name__ == stage:
            raise StageLostError(f"the process of {stage} was killed")
        return call(beside, function, *args)

    monkeypatch.setattr(Beside, "call", killed)
    code, out, err = run(capsys, "run", "--resume", made.run_id)
    assert code == ExitCode.INFRASTRUCTURE
    assert "the gate is open" in out
    assert f"the process of {stage} was killed; `plumbline {stage} {made.run_id}` repeats it" in err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 5), (OSError(28, "No space left on device"), 5)])
def test_what_ends_a_run_leaves_the_way_on(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def ends(*_: object) -> None:
        raise error

    made = prepare_run(results, {"b0": ["true"]})
    made.write_evidence("environment", {})
    monkeypatch.setattr("plumbline.stages.launch_batch", ends)
    found, _, err = run(capsys, "run", "--resume", made.run_id)
    assert found == code
    assert f"stopped; `plumbline run --resume {made.run_id}` goes on with it" in err
    assert isinstance(error, KeyboardInterrupt) or f"{made.path}: No space left on device" in err


@pytest.mark.parametrize("stage", ["report", "track"])
def test_no_later_stage_seals_an_edited_verdict(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{results}/mlflow.db")
    made = build_run(results)
    edit_to_open(made)
    code, _, err = run(capsys, stage, str(made.path))
    assert code == ExitCode.UNREADABLE
    assert "derived/verdict.json is changed since it was judged" in err
    assert {"problem": "changed", "path": "derived/verdict.json"} in list(made.problems())


@pytest.mark.parametrize(
    ("count", "words"), [(8, "; missing: n1, n2, n3, n4, n5, n6, n7, n8\n"), (9, "n8 and 1 more\n")]
)
def test_a_cut_list_of_missing_nodes_says_how_many_more(
    results: Path, capsys: pytest.CaptureFixture[str], count: int, words: str
) -> None:
    made = build_run(results)
    data = json.loads((made.derived / "verdict.json").read_text())
    data["coverage"]["missing"] = [f"n{i + 1}" for i in range(count)]
    print_verdict(made, data)
    assert words in capsys.readouterr().out
