"""Run one DAG to its end in this process, with no daemon: what `make baseline` does.

    python -m deployment.run_dag nightly_baseline --cluster local --suite nightly

Progress goes to the terminal, Airflow's own log to a file. The exit code is the gate's: 0 open, 1 closed, 2 wrong
configuration, 5 when a stage failed and the gate did not close, or the cluster is busy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from deployment.local_airflow import (
    ONE_SHOT,
    ROOT,
    airflow_home,
    environment,
    load_settings,
    prepare_database,
    private,
)
from plumbline.errors import ExitCode, PlumblineError


def main(arguments: list[str] | None = None) -> int:
    """Run the DAG that the arguments name and give the exit code."""
    chosen = _parser().parse_args(arguments)
    conf = {key: value for key in ("cluster", "suite") if (value := getattr(chosen, key)) is not None}
    conf.update(json.loads(chosen.conf))
    os.environ.update(environment(ONE_SHOT))
    os.environ.update(private(airflow_home()))
    try:
        _check_before_start(conf)
    except PlumblineError as error:
        print(f"{chosen.dag}: {error}", file=sys.stderr)
        return error.exit_code
    log = airflow_home() / "logs" / f"{chosen.dag}-{time.strftime('%Y%m%dT%H%M%S')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    terminal = _Terminal(log)
    try:
        finished = _run(chosen.dag, conf, terminal, log, chosen.mark_success)
    except KeyboardInterrupt:
        finished = None
    finally:
        terminal.close()
    if finished is None or _stopped():
        print(f"stopped; what was measured stays below results/. Log: {_shown(log)}", file=sys.stderr)
        return ExitCode.INFRASTRUCTURE
    code = conclude(finished)
    print(f"log:     {_shown(log)}")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run_dag", description="Run one DAG in this process, without any daemon.")
    parser.add_argument("dag", help="a DAG of dags/, such as nightly_baseline")
    parser.add_argument("--cluster", help="cluster profile (default: the variable plumbline_cluster)")
    parser.add_argument("--suite", help="suite (default: the variable plumbline_suite)")
    parser.add_argument("--conf", default="{}", help="further parameters of the run, as JSON")
    parser.add_argument("--mark-success", help="tasks (regular expression) that are not run, such as a sign-off")
    return parser


def _check_before_start(conf: Mapping[str, Any]) -> None:
    """Refuse at once what `prepare` would refuse once Airflow is up, and will check again.

    Raises ConfigError for a profile or suite that does not load, ClusterBusyError for a cluster that a run holds.
    """
    from plumbline import stages  # noqa: PLC0415 - after the environment is set
    from plumbline.execution import lock  # noqa: PLC0415

    if "cluster" in conf and "suite" in conf:
        profile, _ = stages.load(conf["cluster"], conf["suite"], {})
        lock.refuse_if_busy(stages.results_directory(profile) / profile.name)


def _run(dag_id: str, conf: Mapping[str, Any], terminal: _Terminal, log: Path, skip: str | None) -> Finished:
    """Start an Airflow of this process's own and run the DAG in it."""
    terminal.say("starting Airflow")
    from plumbline_airflow.pipeline import HOLDER_PID  # noqa: PLC0415
    from plumbline_airflow.progress import PROGRESS_FD  # noqa: PLC0415

    prepare_database(ONE_SHOT, log)
    load_settings(ONE_SHOT)
    os.environ[PROGRESS_FD] = str(terminal.descriptor)
    os.environ[HOLDER_PID] = str(os.getpid())
    with _stopping_on_signals():
        return run_once(dag_id, conf, skip)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a DAG run ended: its state, the state of every task ('launch[0]' for a mapped one), the run directory."""

    state: str
    tasks: Mapping[str, str]
    run_dir: Path | None

    @property
    def failed_stages(self) -> list[str]:
        """The tasks that failed, without the gate and the task that only says that one did."""
        return sorted(n for n, state in self.tasks.items() if state == "failed" and n not in ("gate", "stage_failed"))


def run_once(dag_id: str, conf: Mapping[str, Any], skip: str | None = None) -> Finished:
    """Run one DAG in this process; `skip` marks tasks (regular expression) as done that nobody is there to answer."""
    dag = _find_dag(dag_id)
    _hurry(dag)
    _keep_order_of_mapped_tasks()
    run = dag.test(run_conf=dict(conf), mark_success_pattern=skip)
    states = {
        f"{ti.task_id}[{ti.map_index}]" if ti.map_index >= 0 else ti.task_id: str(ti.state)
        for ti in run.get_task_instances()
    }
    prepared = run.get_task_instance("prepare")
    text = prepared.xcom_pull(task_ids="prepare", key="run_dir") if prepared else None
    return Finished(state=str(run.state), tasks=states, run_dir=Path(text) if text else None)


def _find_dag(dag_id: str) -> Any:
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - takes seconds

    bag = DagBag(ROOT / "dags" / f"{dag_id}.py")
    if dag_id not in bag.dags:
        raise SystemExit(f"no DAG {dag_id!r} in {ROOT / 'dags'}: {bag.import_errors or 'no such file'}")
    return bag.dags[dag_id]


def _hurry(dag: Any) -> None:
    """Somebody is waiting: tell at once that the cluster is busy, and repeat what failed without a pause."""
    from datetime import timedelta  # noqa: PLC0415

    for task in dag.tasks:
        task.retry_delay = timedelta(seconds=2)
    dag.get_task("prepare").retries = 0


def _keep_order_of_mapped_tasks() -> None:
    """Let `DAG.test` take ready tasks in the order of their map index.

    It keeps them in a set, so that the batches of a suite would run in an order that differs from process to process;
    the scheduler of a running Airflow takes them by map index anyway.
    """
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415

    TaskInstance.__hash__ = lambda self: max(self.map_index, 0)  # type: ignore[method-assign]


class _stopping_on_signals:  # noqa: N801 - a context manager that reads as a phrase
    """Ctrl-C and SIGTERM end the benchmark that runs, and no further stage starts."""

    def __enter__(self) -> None:
        self._previous = signal.signal(signal.SIGINT, _stop)

    def __exit__(self, *details: object) -> None:
        signal.signal(signal.SIGINT, self._previous)


def _stop(number: int, frame: FrameType | None) -> None:
    from plumbline_airflow.progress import STOP  # noqa: PLC0415

    del number, frame
    os.environ[STOP] = "1"
    raise KeyboardInterrupt


def _stopped() -> bool:
    from plumbline_airflow.progress import STOP  # noqa: PLC0415

    return STOP in os.environ


class _Terminal:
    """Takes the terminal for progress lines; whatever else is printed meanwhile goes to the log file."""

    def __init__(self, log: Path) -> None:
        self._start = time.monotonic()
        sys.stdout.flush(), sys.stderr.flush()
        self._saved = [os.dup(1), os.dup(2)]
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1), os.dup2(descriptor, 2)
        os.close(descriptor)
        source, self.descriptor = os.pipe()
        os.set_inheritable(self.descriptor, False)
        self._thread = threading.Thread(target=self._copy, args=(source,), daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print one line with the time since the start."""
        seconds = int(time.monotonic() - self._start)
        self._out.write(f"{seconds // 60:3d}:{seconds % 60:02d}  {text}\n")
        self._out.flush()

    def close(self) -> None:
        """Give the terminal back."""
        os.close(self.descriptor)
        self._thread.join(timeout=5)
        sys.stdout.flush(), sys.stderr.flush()
        for target, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, target)
            os.close(saved)
        self._out.close()

    def _copy(self, source: int) -> None:
        with os.fdopen(source) as lines:
            for line in lines:
                self.say(line.rstrip("\n"))


def conclude(finished: Finished) -> int:
    """Print the verdict, and what failed beside it; give the exit code."""
    code = _print_run(finished.run_dir, print) if finished.run_dir else None
    for name in finished.failed_stages:
        print(f"stage failed: {name}", file=sys.stderr)
    if code is None:
        return ExitCode.INFRASTRUCTURE
    if code == ExitCode.OK and (finished.failed_stages or finished.tasks.get("gate") != "success"):
        return ExitCode.INFRASTRUCTURE
    return code


def _print_run(run_dir: Path, show: Callable[[str], None]) -> int | None:
    """Print a run's verdict; give its exit code, or None when it has no verdict."""
    from plumbline import stages  # noqa: PLC0415
    from plumbline.commands.running import print_verdict  # noqa: PLC0415
    from plumbline.errors import OutputError  # noqa: PLC0415
    from plumbline.tracking.run_directory import RunDirectory  # noqa: PLC0415

    run = RunDirectory.open(run_dir)
    try:
        result = stages.gate(run_dir)
    except OutputError as error:
        show(f"no verdict: {error}\nevidence: {_shown(run_dir)}")
        return None
    print_verdict(run, run.read_derived("verdict.json"))
    return ExitCode.OK if result.open else ExitCode.CLOSED


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
