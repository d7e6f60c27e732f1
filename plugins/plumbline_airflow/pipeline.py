"""The stages of a run as Airflow tasks, top to bottom: the one place that says what follows what.

    prepare → launch (a task for each batch, one after the other) → seal → judge → report → track → notify → gate
                                                                            (any stage failed: stage_failed)

Everything after the launches runs even when some failed, so nothing measured is lost. Two tasks can turn a run red:
`gate` when the cluster may not be used, `stage_failed` when a stage broke. MLflow being down is only the second.
XCom carries ids and paths; numbers stay in the run directory.
"""

from __future__ import annotations

import itertools
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from plumbline_airflow import notify as notifications
from plumbline_airflow.assets import JUDGED_RUN
from plumbline_airflow.failures import errors_explained
from plumbline_airflow.launch import LaunchOperator
from plumbline_airflow.progress import say
from plumbline_airflow.request import read_request
from plumbline_airflow.run import RUN_DIR, judged_directory, run_directory
from plumbline_airflow.track import TrackOperator

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol as TaskInstance

POOL = "plumbline"
HOLDER_PID = "PLUMBLINE_HOLDER_PID"
"""Set where one process runs the whole DAG: the cluster's lock then ends with it."""
STAGE_LIMIT = timedelta(hours=1)
"""A stage other than a launch that takes longer hangs."""
BUSY_RETRIES, BUSY_DELAY = 12, timedelta(minutes=10)
"""A cluster that another run holds is asked for again for two hours."""


def build_pipeline(trigger: str) -> Any:
    """Build the stages in the current DAG; give the one that the gate follows. `trigger` is nightly or acceptance."""
    batches = prepare(trigger)
    launches = LaunchOperator.partial(
        task_id="launch",
        run_dir=f"{{{{ ti.xcom_pull(task_ids='prepare', key='{RUN_DIR}') }}}}",
        pool=POOL,
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.batch_id }}",
        retries=1,
        retry_delay=timedelta(seconds=10),
    ).expand(batch_id=batches)
    track = TrackOperator(
        task_id="track",
        trigger_rule=TriggerRule.ALL_DONE,
        retries=2,
        retry_delay=timedelta(seconds=30),
        execution_timeout=STAGE_LIMIT,
    )
    stages = [batches, launches, seal(), judge(), report(), track, notify()]
    for earlier, later in itertools.pairwise(stages):
        earlier >> later
    stages[-1] >> gate()
    stages >> stage_failed()
    return stages[-1]


@task(retries=BUSY_RETRIES, retry_delay=BUSY_DELAY, execution_timeout=STAGE_LIMIT)
def prepare(trigger: str, *, params: Any, dag: Any, dag_run: Any, ti: TaskInstance) -> list[str]:
    """Take the cluster's lock and plan. Gives the batches, in order; the run directory goes under its own key."""
    from plumbline import stages  # noqa: PLC0415 - not needed to parse a DAG

    request = read_request(params, dag_run.conf, dag.params)
    say(f"prepare: suite {request.suite} on cluster {request.cluster}")
    with errors_explained():
        run = stages.prepare(
            request.cluster,
            request.suite,
            request.settings,
            trigger=trigger,
            tags={"airflow_dag_id": dag_run.dag_id, "airflow_run_id": dag_run.run_id},
            holder_pid=int(os.environ[HOLDER_PID]) if HOLDER_PID in os.environ else None,
        )
        batches = stages.batch_ids(run)
    ti.xcom_push(RUN_DIR, str(run.path))
    say(f"prepare: {run.run_id}, {len(batches)} batches: {', '.join(batches)}")
    return batches


@task(trigger_rule=TriggerRule.ALL_DONE, execution_timeout=STAGE_LIMIT)
def seal(*, ti: TaskInstance) -> str:
    """End the evidence and give the cluster back, however the launches went. Gives the manifest's digest."""
    from plumbline import stages  # noqa: PLC0415

    run_dir = run_directory(ti)
    if run_dir is None:
        raise AirflowSkipException("nothing was prepared")
    say("seal")
    with errors_explained():
        return stages.seal(run_dir)


@task(execution_timeout=STAGE_LIMIT)
def judge(*, ti: TaskInstance) -> None:
    """Read, derive and validate: the only stage that gives verdicts."""
    from plumbline import stages  # noqa: PLC0415

    say("judge")
    with errors_explained():
        stages.judge(_prepared(ti))


@task(outlets=[JUDGED_RUN], execution_timeout=STAGE_LIMIT)
def report(*, ti: TaskInstance, outlet_events: Any) -> str:
    """Write the report. Gives its path."""
    from plumbline import stages  # noqa: PLC0415

    say("report")
    run_dir = _prepared(ti)
    with errors_explained():
        path = stages.report(run_dir)
    outlet_events[JUDGED_RUN].extra = {"run_id": run_dir.name, "run_dir": str(run_dir)}
    return str(path)


@task(trigger_rule=TriggerRule.ALL_DONE, retries=1, retry_delay=timedelta(seconds=30), execution_timeout=STAGE_LIMIT)
def notify(*, ti: TaskInstance) -> None:
    """Tell people, where a connection says how."""
    run_dir = judged_directory(ti)
    if run_dir is None:
        raise AirflowSkipException("there is no verdict to tell")
    say("notify")
    with errors_explained():
        notifications.send_verdict(run_dir, ti.dag_id, ti.run_id)


@task(trigger_rule=TriggerRule.ALL_DONE, execution_timeout=STAGE_LIMIT)
def gate(*, ti: TaskInstance) -> None:
    """Fail unless the verdict says open: a verdict that is missing, skipped or unreadable is closed."""
    from plumbline import stages  # noqa: PLC0415

    run_dir = run_directory(ti)
    if run_dir is None:
        raise AirflowFailException("gate closed: nothing was prepared, so nothing was measured")
    with errors_explained():
        result = stages.gate(run_dir)
    say(f"gate {'open' if result.open else 'closed'}: {result.verdict}")
    if not result.open:
        raise AirflowFailException(f"gate closed: {result.verdict}\n" + "\n".join(_reason_lines(result.reasons)))


@task(trigger_rule=TriggerRule.ONE_FAILED, on_failure_callback=notifications.stage_failed)
def stage_failed(*, ti: TaskInstance) -> None:
    """Turn the run red because a stage broke. Skipped, and so silent, when none did."""
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id])[ti.run_id]
    broken = sorted(task_id for task_id, state in states.items() if state == "failed" and task_id != "gate")
    raise AirflowFailException(f"failed: {', '.join(broken)}. Its log says why; the gate is told apart.")


def _prepared(ti: TaskInstance) -> Path:
    run_dir = run_directory(ti)
    if run_dir is None:
        raise AirflowFailException("nothing was prepared")
    return run_dir


def _reason_lines(reasons: Any, most: int = 20) -> list[str]:
    lines = [f"  {r['verdict']} {r['code']} {r['place']}: {r['message']}" for r in reasons[:most]]
    return lines if len(reasons) <= most else [*lines, f"  … and {len(reasons) - most} more: see the report"]
