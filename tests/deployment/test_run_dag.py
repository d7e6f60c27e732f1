"""The program behind `make baseline`: what its exit code says, and what it refuses before Airflow is started."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from deployment.run_dag import Finished, conclude
from tests.run_builder import build_run

from plumbline.errors import ExitCode
from plumbline.execution import lock
from plumbline.model import Code, verdict

ROOT = Path(__file__).resolve().parents[2]
GREEN = {"prepare": "success", "launch[0]": "success", "track": "success", "gate": "success", "stage_failed": "skipped"}


def finished(run_dir: Path | None, **tasks: str) -> Finished:
    return Finished(state="success", tasks={**GREEN, **tasks}, run_dir=run_dir)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return build_run(tmp_path).path


def test_an_open_gate_is_0(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude(finished(good)) == ExitCode.OK
    assert "the gate is open" in capsys.readouterr().out


def test_a_closed_gate_is_1_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = build_run(tmp_path, extra=[verdict(Code.WRONG_RESULT, "rung 4 group 0", "3 wrong elements")])
    assert conclude(finished(run.path, gate="failed")) == ExitCode.CLOSED
    assert "3 wrong elements" in capsys.readouterr().out


def test_a_stage_that_failed_under_an_open_gate_is_5(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude(finished(good, track="failed", stage_failed="failed")) == ExitCode.INFRASTRUCTURE
    captured = capsys.readouterr()
    assert "the gate is open" in captured.out
    assert captured.err == "stage failed: track\n"


def test_without_a_verdict_it_is_5(good: Path) -> None:
    (good / "derived" / "verdict.json").unlink()
    assert conclude(finished(good, judge="failed")) == ExitCode.INFRASTRUCTURE
    assert conclude(finished(None, prepare="failed")) == ExitCode.INFRASTRUCTURE


@pytest.mark.parametrize("gate", ["skipped", "upstream_failed", "None", "removed"])
def test_a_gate_that_did_not_speak_is_never_0(good: Path, gate: str) -> None:
    assert conclude(finished(good, gate=gate)) == ExitCode.INFRASTRUCTURE


def test_a_verdict_that_was_edited_is_never_0(tmp_path: Path) -> None:
    run = build_run(tmp_path, extra=[verdict(Code.WRONG_RESULT, "rung 4 group 0", "3 wrong elements")])
    path = run.derived / "verdict.json"
    path.write_text(path.read_text().replace('"gate": "closed"', '"gate": "open"'))
    assert conclude(finished(run.path)) == ExitCode.INFRASTRUCTURE


def run_program(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "include", "plugins"))
    return subprocess.run(
        [sys.executable, "-m", "deployment.run_dag", *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, **variables}, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), [
    (("--cluster", "lcal", "--suite", "nightly"), "no cluster profile 'lcal'; did you mean 'local'?"),
    (("--cluster", "local", "--suite", "nigthly"), "no suite 'nigthly'; did you mean 'nightly'?"),
])  # fmt: skip
def test_a_wrong_name_is_refused_before_airflow_starts(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run_program("nightly_baseline", *arguments, AIRFLOW_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert message in done.stderr
    assert not (tmp_path / "one_shot.db").exists()


def test_a_busy_cluster_is_told_before_airflow_starts(tmp_path: Path) -> None:
    lock.acquire(tmp_path / "local", "20260301T020000Z-000001", "cli nightly", timedelta(hours=1), os.getpid())
    done = run_program(
        "nightly_baseline", "--cluster", "local", "--suite", "nightly", AIRFLOW_HOME=str(tmp_path / "airflow"),
        PLUMBLINE_RESULTS=str(tmp_path),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (ExitCode.INFRASTRUCTURE, "")
    assert "cluster local is busy: run 20260301T020000Z-000001 (cli nightly) holds it since" in done.stderr
    assert f"wait for its end, or stop process {os.getpid()}" in done.stderr
    assert not (tmp_path / "airflow" / "one_shot.db").exists()
    assert lock.holder_of(tmp_path / "local")["run_id"] == "20260301T020000Z-000001"
