"""LaunchOperator: one batch (one benchmark at one rung) is one task, whatever kind of cluster it runs on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowFailException

from plumbline_airflow.failures import errors_explained
from plumbline_airflow.progress import STOP, LaunchStopped, say

if TYPE_CHECKING:
    from airflow.sdk import Context

    from plumbline.tracking.run_directory import RunDirectory

TIMEOUT_MARGIN_S = 300.0
"""run_one ends a benchmark at its own limit, Kubernetes a pod 120 s later, Airflow the task 300 s later: a hang leaves
a record before anything else can cut it off."""


class LaunchOperator(KubernetesPodOperator):
    """Run one batch of a prepared run.

    The kind of cluster is read from the run's own profile when the task starts: `local` and `simulated` clusters are
    served in this process, `kubernetes` by the pod that this operator then starts. Numbers never pass through here:
    every launch leaves its record in the run directory.

    Args:
        run_dir: the run directory that `prepare` made.
        batch_id: one of the plan's batches, such as 'nccl_tests-n4'.
    """

    template_fields: Sequence[str] = (*KubernetesPodOperator.template_fields, "run_dir", "batch_id")

    def __init__(self, *, run_dir: str, batch_id: str, **kwargs: Any) -> None:
        super().__init__(
            do_xcom_push=False,
            on_finish_action="delete_pod",
            log_events_on_failure=True,
            log_pod_spec_on_failure=False,
            termination_message_policy="FallbackToLogsOnError",
            **kwargs,
        )
        self.run_dir = run_dir
        self.batch_id = batch_id
        self._in_process = False

    def pre_execute(self, context: Context) -> None:
        """Give the task the time that its launches may take by plan, and the margin."""
        super().pre_execute(context)
        with errors_explained():
            plan = self._run().plan()
        batches = [batch.batch_id for batch in plan.batches]
        if self.batch_id not in batches:
            raise AirflowFailException(f"{plan.run_id} has no batch {self.batch_id!r}: {', '.join(batches)}")
        limit_s = sum(spec.timeout_s for spec in plan.batch(self.batch_id)) + TIMEOUT_MARGIN_S
        self.execution_timeout = timedelta(seconds=limit_s)
        say(f"launch {batches.index(self.batch_id) + 1}/{len(batches)}: {self.batch_id}")

    def execute(self, context: Context) -> None:
        """Run the batch to its end. What has a record already is not run again, so a retry loses nothing."""
        with errors_explained():
            launcher = self._run().profile().launcher
        if launcher == "kubernetes":
            self._launch_in_pod(context)
        else:
            self._launch_here()

    def on_kill(self) -> None:
        """Stop: in this process by an exception into the launcher, which records it; otherwise with the pod."""
        if self._in_process:
            os.environ[STOP] = "1"  # where one process runs the whole DAG, the next batch must not start either
            raise LaunchStopped(f"{self.batch_id}: the task was asked to stop")
        super().on_kill()

    def _run(self) -> RunDirectory:
        from plumbline.tracking.run_directory import RunDirectory  # noqa: PLC0415 - not needed to parse a DAG

        return RunDirectory.open(Path(self.run_dir))

    def _launch_here(self) -> None:
        from plumbline import stages  # noqa: PLC0415 - not needed to parse a DAG

        self._in_process = True
        try:
            with errors_explained():
                stages.launch_batch(Path(self.run_dir), self.batch_id, say)
        finally:
            self._in_process = False

    def _launch_in_pod(self, context: Context) -> None:  # noqa: ARG002 - the pod needs it
        # The one place where the pod of a Kubernetes cluster is to be built from the batch's LaunchSpecs and run with
        # KubernetesPodOperator.execute.
        raise AirflowFailException(
            "the kubernetes launcher is not part of this release: choose a profile whose launcher is local or simulated"
        )
