"""The launcher of Kubernetes clusters, for the command line. In Airflow, LaunchOperator does the same with its pod."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from plumbline.clusters.inventory import Inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError
from plumbline.execution.launcher import Progress
from plumbline.kubernetes import lease as leases
from plumbline.kubernetes.access import connect, settings_of
from plumbline.kubernetes.api import ApiError
from plumbline.kubernetes.batch_pod import BatchPod
from plumbline.kubernetes.doctor import State, quick_checks
from plumbline.kubernetes.inventory import read_inventory
from plumbline.kubernetes.reaper import reap_run, remains
from plumbline.model import LaunchSpec

log = logging.getLogger(__name__)
RETRY_PAUSE_S = 10.0


def inventory(profile: ClusterProfile, today: date) -> Inventory:
    """Ask the cluster which nodes it has and which are idle, and whether it has all else that a run needs.

    Raises ApiError, and ConfigError with everything that is missing and how to mend it.
    """
    api = connect(profile)
    found = read_inventory(api, profile, today)
    wrong = [
        check for check in quick_checks(api, profile, today) if check.state is State.FAIL and check.name != "nodes"
    ]
    if wrong:
        lines = [f"{check.name}: {check.found}; {check.mend}" for check in wrong]
        raise ConfigError(f"profile {profile.name}: the cluster lacks what a run needs:\n  " + "\n  ".join(lines))
    return found


def launch(profile: ClusterProfile, specs: Sequence[LaunchSpec], evidence: Path, progress: Progress) -> None:
    """Run a batch in its pod, again where infrastructure stopped it and that may have passed. Raises LaunchError."""
    batch_id = f"{specs[0].benchmark}-n{specs[0].node_count}"
    for _ in range(1 + settings_of(profile).retries):
        pod = BatchPod(profile, batch_id, specs, evidence, progress)
        if pod.answered() or not run_pod(pod):
            return
        time.sleep(RETRY_PAUSE_S)


def hold(profile: ClusterProfile, run_id: str, holder: str, lease: timedelta, pid: int | None = None) -> None:
    """Take the cluster for a run, among all who reach its API. Raises ClusterBusyError, ApiError, ConfigError."""
    leases.acquire(connect(profile), profile, run_id, holder, lease, pid)


def let_go(profile: ClusterProfile, run_id: str) -> None:
    """Remove what is left of a run that has ended, wait until it is gone, and give the cluster back.

    What can't be done is logged, and left to the Lease's end and to `plumbline reap`: the run has ended all the same.
    """
    try:
        api = connect(profile)
        removed = reap_run(api, profile, run_id)
        for one in removed:
            log.warning("%s %s of %s was left over: %s", one.kind, one.name, run_id, one.error or "removed")
        end = time.monotonic() + 2 * settings_of(profile).waits.grace_s
        while time.monotonic() < end and remains(api, profile, run_id):
            time.sleep(1)
        leases.release(api, profile, run_id)
    except (ApiError, ConfigError) as error:
        log.warning("%s: the cluster could not be tidied up: %s", run_id, error)


def run_pod(batch: BatchPod) -> bool:
    """Put a batch's pod into its cluster and see it through; say whether another try may help.

    Whatever interrupts this removes the pod; what was measured by then stays.
    """
    found = None
    try:
        found = batch.put(batch.manifest)
        return batch.settle(batch.follow(found) if found is not None else None)
    except (KeyboardInterrupt, SystemExit):
        if found is not None:
            batch.remove(str(found["metadata"]["name"]), patience_s=5)
        raise
