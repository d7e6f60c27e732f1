"""The launch stage of the DAG against bare BashOperators: python -m benchmarks.launch_stage PAIRS.

Runs in a process of its own, with an Airflow of its own below the folder, and prints both lists of seconds.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployment.local_airflow import ONE_SHOT, environment, load_settings, prepare_database, private

from benchmarks.child import answer
from benchmarks.ratios import interleave
from benchmarks.section import ROOT

RUN = "PLUMBLINE_BENCHMARK_RUN"
DAGS = ROOT / "benchmarks" / "launch_dags"


def start_airflow(home: Path) -> None:
    """Set up an Airflow below `home`, with the pools of airflow_settings.yaml and the two DAGs."""
    home.mkdir(parents=True, exist_ok=True)
    os.environ["AIRFLOW_HOME"] = str(home)
    os.environ.update(environment(ONE_SHOT))
    os.environ.update(private(home))
    os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(DAGS)
    prepare_database(ONE_SHOT, home / "migrate.log")
    load_settings(ONE_SHOT)


def through_dag(run_dir: Path) -> Any:
    """Give a DAG of the launch stage alone: a LaunchOperator for each batch, as pipeline.py maps them."""
    from airflow.sdk import DAG, chain

    from plumbline import stages
    from plumbline.tracking.run_directory import RunDirectory
    from plumbline_airflow.launch import LaunchOperator

    with DAG("launches_through_plumbline", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        chain(*(
            LaunchOperator(task_id=f"launch_{n}", run_dir=str(run_dir), batch_id=batch, pool="plumbline")
            for n, batch in enumerate(stages.batch_ids(RunDirectory.open(run_dir)))
        ))  # fmt: skip
    return dag


def bare_dag(run_dir: Path) -> Any:
    """Give a DAG of BashOperators with the same commands, one a batch, in the same order."""
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.sdk import DAG, chain

    from plumbline.tracking.run_directory import RunDirectory

    plan = RunDirectory.open(run_dir).plan()
    with DAG("launches_bare", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        chain(*(
            BashOperator(
                task_id=f"bash_{n}",
                bash_command=" && ".join(
                    f"{shlex.join(spec.argv)} > out 2> err" for spec in plan.batch(batch.batch_id)
                ),
                env=dict(plan.batch(batch.batch_id)[0].env),
                append_env=True,
                cwd=str(run_dir.parent),
                pool="plumbline",
            )
            for n, batch in enumerate(plan.batches)
        ))  # fmt: skip
    return dag


def seconds_of(dag_id: str, run_dir: Path) -> float:
    """Run a DAG on a run directory in this process; give its wall seconds. Raises RuntimeError when it failed."""
    from airflow.dag_processing.dagbag import DagBag

    os.environ[RUN] = str(run_dir)
    dag = DagBag(DAGS).dags[dag_id]
    start = time.monotonic()
    run = dag.test()
    took = time.monotonic() - start
    if str(run.state) != "success":
        raise RuntimeError(f"{dag_id}: {run.state}")
    return took


def measure_pairs(pairs: int) -> dict[str, Any]:
    """Give seconds through Plumbline and bare; both DAGs ran once before, so that imports are behind them."""
    from plumbline import stages
    from plumbline.tracking.run_directory import RunDirectory

    def prepared() -> Path:
        return stages.prepare("overhead", "overhead", {}, trigger="benchmark", holder_pid=os.getpid()).path

    def through() -> float:
        run_dir = prepared()
        took = seconds_of("launches_through_plumbline", run_dir)
        left = len(list((run_dir / "evidence" / "records").glob("*.json")))
        stages.seal(run_dir)
        if left != len(RunDirectory.open(run_dir).plan().launches):
            raise RuntimeError(f"{run_dir}: {left} records")
        return took

    def bare() -> float:
        run_dir = prepared()
        took = seconds_of("launches_bare", run_dir)
        stages.seal(run_dir)  # no record in it: the run only gave the commands
        return took

    through(), bare()
    found = interleave(pairs, through, bare)
    return {"through": found[0], "bare": found[1]}


if __name__ == "__main__":
    start_airflow(ROOT / "build" / "benchmarks" / "airflow")
    answer(measure_pairs(int(sys.argv[1])))
