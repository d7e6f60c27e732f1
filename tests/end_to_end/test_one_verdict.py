"""One night, one word: every place that tells a run's verdict and gate tells the same, whatever the verdict is.

The evidence of a night is SIMULATED and broken in one way (tests/validation/mutant_night.py); the real DAG seals,
judges, reports, tracks, notifies and gates it.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deployment.run_dag import Finished, conclude, run_once
from tests.validation.mutant_night import NCCL, NCCL_ONE, PROFILE, SUITE, TABLE, Broken, make_base
from tests.validation.mutations_output import slower

from plumbline import stages
from plumbline.cli import main
from plumbline.errors import ExitCode
from plumbline.model import Origin
from plumbline.notification import compose
from plumbline.tracking.history import load_history, rows_of
from plumbline.tracking.run_directory import RunDirectory

SMALL = {**SUITE, "benchmarks": SUITE["benchmarks"][:1]}
WAIVER = {"reason": "cable ordered", "owner": "ops", "until": "2999-01-01", "benchmark": "nccl_tests"}


def calm(night: Broken) -> None:
    """Let no healthy value be a WARN: noise decides that, and the night is to be what it is broken to."""
    night.evidence(
        "references",
        lambda data: (
            [row.update(warn_lower=row["lower"], warn_upper=row["upper"]) for row in data["baseline"]] and None
        ),
    )


def nothing(_: Broken) -> None:
    """Leave the night as it is."""


def slow(night: Broken) -> None:
    night.output(NCCL_ONE, TABLE, slower(2.0))


def foreign(night: Broken) -> None:
    night.record(NCCL, spec_sha256="0" * 64)


def node_lost(night: Broken) -> None:
    night.record(NCCL, outcome="infrastructure", exit_code=None, code="node_lost", reason="a node was lost")


def waived(**what: str) -> Callable[[Broken], None]:
    return lambda night: night.evidence("references", lambda data: data.update(waivers=[{**WAIVER, **what}]))


def slow_and_waived(night: Broken) -> None:
    slow(night)
    codes = ("outside_reference", "worse_than_baseline", "worse_than_peers")
    night.evidence("references", lambda data: data.update(waivers=[{**WAIVER, "code": code} for code in codes]))


NIGHTS: Mapping[str, tuple[Callable[[Broken], object], str, str]] = {
    "pass": (nothing, "PASS", "open"),
    "waived": (slow_and_waived, "WAIVED", "open"),
    "warn": (waived(code="timeout"), "WARN", "open"),  # nothing needs the waiver
    "not run": (node_lost, "NOT_RUN", "closed"),
    "invalid": (foreign, "INVALID", "closed"),
    "fail": (slow, "FAIL", "closed"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("one-verdict"), SMALL)


def measured_by_the_dag(night: Broken, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """Run the DAG over evidence that is there: its launches find that they have records."""
    for kind, data in (("PROFILES", PROFILE), ("SUITES", SMALL)):
        folder = night.folder / kind.lower()
        folder.mkdir()
        (folder / f"{data['name']}.yaml").write_text(json.dumps(data))
        monkeypatch.setenv(f"PLUMBLINE_{kind}", str(folder))
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(night.folder / "results"))
    # One store for all nights: making one takes seconds.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{night.base.parents[3] / 'mlflow.db'}")
    monkeypatch.setattr(stages, "prepare", lambda *_, **__: night.run)
    return run_once("nightly_baseline", {"cluster": PROFILE["name"], "suite": SUITE["name"]})


def told(night: Broken, finished: Finished, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Give verdict and gate of every place that tells them; a place without a word for one takes it from the file."""
    from mlflow import MlflowClient

    run = night.run
    verdict = run.read_derived("verdict.json")
    word, gate = verdict["verdict"], verdict["gate"]
    page = re.sub(r"<[^>]+>", " ", (run.derived / "report.html").read_text())
    seal = re.search(r"[✓○!–⧖?✗] ([A-Z ]+) gate (\w+)", " ".join(html.unescape(page).split()))
    foot = re.search(r"run \S+ · (\w+), gate (\w+)", page)
    assert seal is not None and foot is not None
    mlflow = MlflowClient().get_run(verdict["mlflow_run_id"])
    message, result = compose(run), stages.gate(run.path)

    def cli(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(arguments)
        return code, json.loads(capsys.readouterr().out)

    [listed] = cli("list", "runs", "--json")[1]
    status = cli("status", "--cluster", PROFILE["name"], "--suite", SUITE["name"], "--max-age", "36500d", "--json")[1]
    closing = [item["blocks"] for item in run.read_derived("findings.json")]
    found = {
        "verdict.json": (word, gate),
        "gate stage": (result.verdict, "open" if result.open else "closed"),
        "gate task": (word, "open" if finished.tasks["gate"] == "success" else "closed"),
        "DAG run": (word, "open" if finished.state == "success" else "closed"),
        "exit status of make baseline": (word, "open" if conclude(finished) == ExitCode.OK else "closed"),
        "what make baseline prints": re.findall(r"^(\w+): the gate is (\w+)", capsys.readouterr().out, re.M)[0],
        "report, head": (seal[1].strip().replace(" ", "_"), seal[2]),
        "report, foot": (foot[1], foot[2]),
        "findings.json": (word, "closed" if any(closing) else "open"),
        "MLflow's tags": (mlflow.data.tags["plumbline.verdict"], mlflow.data.tags["plumbline.gate"]),
        "MLflow's state": (word, "open" if mlflow.info.status == "FINISHED" else "closed"),
        "message": (message.verdict, message.gate),
        "subject": re.findall(r"^(\w+), gate (\w+):", message.subject)[0],
        "text": re.findall(r"^(\w+), gate (\w+)$", message.text, re.M)[0],
        "mail": re.findall(r">(\w+), gate (\w+)<", message.html)[0],
        "list runs": (listed["verdict"], listed["gate"]),
        "status": (status["newest"]["verdict"], status["newest"]["gate"]),
    }
    code, again = cli("judge", str(run.path), "--json")
    found["judged again"] = (again["verdict"], again["gate"])
    found["exit status of judge"] = (word, {ExitCode.OK: "open", ExitCode.CLOSED: "closed"}[ExitCode(code)])
    return found


@pytest.mark.parametrize("kind", NIGHTS)
def test_all_tell_the_same(
    kind: str, base: Path, tmp_path: Path, airflow_database: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    breaks, word, gate = NIGHTS[kind]
    night = Broken(base, tmp_path)
    calm(night)
    breaks(night)
    finished = measured_by_the_dag(night, monkeypatch)
    assert finished.run_dir == night.run.path
    assert finished.tasks["stage_failed"] == "skipped", finished.tasks
    places = told(night, finished, capsys)
    assert set(places.values()) == {(word, gate)}, places
    assert_history_agrees(night.run, kind)


def assert_history_agrees(run: RunDirectory, kind: str) -> None:
    """A number that the run calls INVALID, or doesn't have, is none for the nights to come; all others are."""
    history = load_history(run.path.parents[2], PROFILE["name"], origin=Origin.SIMULATED)
    assert [item.run_id for item in history.runs] == [run.run_id] and not history.skipped
    launches = set(rows_of(run, ["launch_id"])["launch_id"].to_pylist())
    assert (NCCL in launches) == (kind in ("pass", "waived", "warn", "fail"))
    assert NCCL_ONE in launches
