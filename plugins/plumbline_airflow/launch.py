"""LaunchOperator: one batch (one benchmark at one rung) is one task, whatever kind of cluster it runs on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowFailException

from plumbline.kubernetes.access import use_connections
from plumbline_airflow.failures import errors_explained
from plumbline_airflow.progress import STOP, LaunchStopped, say

if TYPE_CHECKING:
    from airflow.sdk import Context
    from kubernetes.client import models as k8s

    from plumbline.clusters.profile import ClusterProfile
    from plumbline.kubernetes.batch_pod import BatchPod
    from plumbline.model import LaunchSpec
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
            deferrable=False,  # whatever Airflow's default is: launches of a run follow each other
            on_finish_action="delete_pod",
            log_events_on_failure=True,
            log_pod_spec_on_failure=False,
            termination_message_policy="FallbackToLogsOnError",
            random_name_suffix=False,  # a batch has one pod at a time: the API refuses a second one of its name
            **kwargs,
        )
        self.run_dir = run_dir
        self.batch_id = batch_id
        self._in_process = False
        self._batch: BatchPod | None = None

    def pre_execute(self, context: Context) -> None:
        """Give the task the time that its launches may take by plan, and the margin."""
        super().pre_execute(context)
        with errors_explained():
            run = self._run()
            plan, profile = run.plan(), run.profile()
        batches = [batch.batch_id for batch in plan.batches]
        if self.batch_id not in batches:
            raise AirflowFailException(f"{plan.run_id} has no batch {self.batch_id!r}: {', '.join(batches)}")
        limit_s = _seconds(profile, plan.batch(self.batch_id)) + TIMEOUT_MARGIN_S
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
        """Stop: in this process by an exception into the launcher, which records it; otherwise by removing the pod."""
        if self._in_process:
            os.environ[STOP] = "1"  # where one process runs the whole DAG, the next batch must not start either
            raise LaunchStopped(f"{self.batch_id}: the task was asked to stop")
        if self._batch is not None and self.pod is not None:
            self._killed = True
            self._batch.remove(self.pod.metadata.name, patience_s=10)

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

    # -- in a pod ---------------------------------------------------------------------------------------------------

    def _launch_in_pod(self, context: Context) -> None:
        from plumbline.errors import ConfigError  # noqa: PLC0415 - not needed to parse a DAG
        from plumbline.execution import budget  # noqa: PLC0415
        from plumbline.kubernetes.batch_pod import BatchPod  # noqa: PLC0415

        with errors_explained():
            run = self._run()
            plan, profile = run.plan(), run.profile()
            if run.sealed:
                raise ConfigError(f"{run.run_id} is sealed: nothing can be added to it")
            specs = self._planned(plan)
            self._batch = BatchPod(profile, self.batch_id, specs, run.evidence, say)
            if self._batch.answered() or budget.refused(run, specs, say):
                return
            self._reach(profile)
            self.pod_template_dict = self._batch.manifest
            super().execute(context)

    def execute_sync(self, context: Context) -> None:
        """Run the pod that KubernetesPodOperator builds, and account for it.

        KubernetesPodOperator's own way through gives an API that doesn't answer 15 seconds, deletes a pod that it lost
        sight of, and runs one that has ended again. Here the pod is waited for, and records say what happened.
        """
        from plumbline.errors import LaunchError  # noqa: PLC0415 - not needed to parse a DAG

        assert self._batch is not None  # made by _launch_in_pod
        self.pod_request_obj = self.build_pod_request_obj(context)
        self.pod = self.get_or_create_pod(self.pod_request_obj, context)
        final = None
        if self.pod is not None:
            _tell_airflow(context, self.pod)
            final = self._batch.follow(_plain(self.pod))
        if self._batch.settle(final) and _tries_left(context, self._batch.settings.retries):
            raise LaunchError(f"{self.batch_id}: infrastructure stopped it; the records say what, another try may help")

    def get_or_create_pod(self, pod_request_obj: k8s.V1Pod, context: Context) -> k8s.V1Pod | None:  # noqa: ARG002
        """Give the batch's pod, whichever try or process started it; None where an earlier one can't be removed."""
        from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator  # noqa: PLC0415 - as above

        assert self._batch is not None  # made by _launch_in_pod
        found = self._batch.put(_plain(pod_request_obj))
        return PodGenerator.deserialize_model_dict(dict(found)) if found is not None else None

    def _planned(self, plan: Any) -> tuple[LaunchSpec, ...]:
        from plumbline.errors import ConfigError  # noqa: PLC0415 - not needed to parse a DAG

        batches = [batch.batch_id for batch in plan.batches]
        if self.batch_id not in batches:
            raise ConfigError(f"{plan.run_id} has no batch {self.batch_id!r}: {', '.join(batches)}")
        found: tuple[LaunchSpec, ...] = plan.batch(self.batch_id)
        return found

    def _reach(self, profile: ClusterProfile) -> None:
        """Give KubernetesPodOperator the same way to the API that the profile names."""
        assert profile.kubernetes is not None  # its launcher is kubernetes
        access = profile.kubernetes.access
        self.kubernetes_conn_id = access.connection
        self.config_file = str(profile.path(access.kubeconfig)) if access.kubeconfig else None
        self.cluster_context = access.context
        self.in_cluster = access.in_cluster or None


def connection_extras(name: str) -> dict[str, Any]:
    """Give what an Airflow connection of type kubernetes holds, without the prefix of old ones."""
    from airflow.sdk import BaseHook  # noqa: PLC0415 - not needed to parse a DAG

    extras = BaseHook.get_connection(name).extra_dejson
    return {key.removeprefix("extra__kubernetes__"): value for key, value in extras.items()}


use_connections(connection_extras)


def _seconds(profile: ClusterProfile, specs: Sequence[LaunchSpec]) -> float:
    """Give the most seconds that a batch takes: its launches, and on Kubernetes all that its pod may wait for."""
    if profile.kubernetes is None:
        return sum(spec.timeout_s for spec in specs)
    from plumbline.execution.pods import batch_seconds  # noqa: PLC0415 - not needed to parse a DAG

    waits = profile.kubernetes.waits
    before = waits.start_s + 2 * waits.grace_s + waits.node_lost_s + waits.outage_s
    return batch_seconds(profile.model_dump(mode="json"), specs) + before


def _plain(pod: k8s.V1Pod) -> dict[str, Any]:
    from kubernetes.client import ApiClient  # noqa: PLC0415 - not needed to parse a DAG

    data: dict[str, Any] = ApiClient().sanitize_for_serialization(pod)
    return data


def _tell_airflow(context: Context, pod: k8s.V1Pod) -> None:
    """Show the pod where KubernetesPodOperator shows it."""
    if ti := context.get("ti"):
        ti.xcom_push(key="pod_name", value=pod.metadata.name)
        ti.xcom_push(key="pod_namespace", value=pod.metadata.namespace)


def _tries_left(context: Context, retries: int) -> bool:
    ti = context.get("ti")
    return ti is not None and ti.try_number <= min(ti.max_tries or 0, retries)
