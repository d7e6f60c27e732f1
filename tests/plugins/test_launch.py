"""LaunchOperator in this process: one batch; stopped when the task is, with a record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from tests.prepared_run import prepare_run

from plumbline_airflow.launch import LaunchOperator
from plumbline_airflow.progress import STOP, LaunchStopped

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _no_stop_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STOP, raising=False)


def operator(run_dir: Path, batch_id: str) -> LaunchOperator:
    return LaunchOperator(task_id="launch", run_dir=str(run_dir), batch_id=batch_id)


def records(run_dir: Path) -> dict[str, dict]:
    return {p.stem: json.loads(p.read_text()) for p in (run_dir / "evidence" / "records").glob("*.json")}


def test_a_batch_is_run_in_this_process_and_leaves_its_record(tmp_path: Path) -> None:
    run = prepare_run(tmp_path, {"a-n1": ("true",), "b-n1": ("sh", "-c", "exit 3")})
    operator(run.path, "b-n1").execute({})
    assert {name: r["exit_code"] for name, r in records(run.path).items()} == {"b-n1-g0-r1.a1": 3}


def test_a_benchmark_that_fails_is_data_and_the_task_succeeds(tmp_path: Path) -> None:
    run = prepare_run(tmp_path, {"a-n1": ("/does/not/exist",)})
    operator(run.path, "a-n1").execute({})
    assert records(run.path)["a-n1-g0-r1.a1"]["outcome"] == "not_started"


def test_a_retry_runs_only_what_has_no_answer(tmp_path: Path) -> None:
    run = prepare_run(tmp_path, {"a-n1": ("true",)})
    operator(run.path, "a-n1").execute({})
    operator(run.path, "a-n1").execute({})
    assert list(records(run.path)) == ["a-n1-g0-r1.a1"]


def test_the_task_outlives_its_launches_by_a_margin(tmp_path: Path) -> None:
    run = prepare_run(tmp_path, {"a-n1": ("true",)}, timeout_s=40)
    launch = operator(run.path, "a-n1")
    launch.pre_execute({})
    assert launch.execution_timeout == timedelta(seconds=340)


def test_an_unknown_batch_fails_for_good(tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    run = prepare_run(tmp_path, {"a-n1": ("true",)})
    for step in ("pre_execute", "execute"):
        with pytest.raises(AirflowFailException, match="has no batch 'b-n1': a-n1"):
            getattr(operator(run.path, "b-n1"), step)({})


def test_a_sealed_run_takes_nothing_more(tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    run = prepare_run(tmp_path, {"a-n1": ("true",)})
    run.seal()
    with pytest.raises(AirflowFailException, match="sealed"):
        operator(run.path, "a-n1").execute({})


def test_a_volume_that_refuses_the_record_is_worth_another_try(tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    run = prepare_run(tmp_path, {"a-n1": ("true",)})
    records_folder = run.evidence / "records"
    records_folder.rmdir()
    records_folder.write_text("in the way")
    with pytest.raises(AirflowException, match="record cannot be written") as caught:
        operator(run.path, "a-n1").execute({})
    assert not isinstance(caught.value, AirflowFailException)


def test_nothing_starts_once_the_run_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare_run(tmp_path, {"a-n1": ("true",)})
    monkeypatch.setenv(STOP, "1")
    with pytest.raises(LaunchStopped):
        operator(run.path, "a-n1").execute({})
    assert records(run.path) == {}


def test_killing_the_task_ends_the_benchmark_and_leaves_a_record(tmp_path: Path) -> None:
    """As Airflow does it: SIGTERM to the task's process, whose handler calls on_kill."""
    run = prepare_run(tmp_path, {"a-n1": ("sh", "-c", "echo $$; sleep 300 & wait")})
    program = f"""
import signal
from plumbline_airflow.launch import LaunchOperator
launch = LaunchOperator(task_id="launch", run_dir={str(run.path)!r}, batch_id="a-n1")
signal.signal(signal.SIGTERM, lambda *_: launch.on_kill())
try:
    launch.execute({{}})
except Exception as error:
    print(type(error).__name__)
"""
    path = os.pathsep.join([str(ROOT / "include"), str(ROOT / "plugins")])
    task = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    stdout = run.evidence / "raw" / "a-n1-g0-r1.a1" / "stdout"
    wait_for(lambda: stdout.exists() and stdout.read_text().strip())
    benchmark = int(stdout.read_text())
    task.send_signal(signal.SIGTERM)
    assert task.communicate(timeout=300)[0].splitlines()[-1] == "LaunchStopped"
    assert records(run.path)["a-n1-g0-r1.a1"]["outcome"] == "stopped"
    wait_for(lambda: not psutil.pid_exists(benchmark))


def wait_for(condition, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.05)
