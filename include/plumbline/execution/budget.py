"""What a run may take: once its minutes or GPU-hours are spent, no further batch starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import OutputError
from plumbline.execution import lock
from plumbline.execution.launcher import Progress
from plumbline.kubernetes import files
from plumbline.model import Code, Device, LaunchSpec
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RunDirectory, run_time


def refused(run: RunDirectory, specs: Sequence[LaunchSpec], progress: Progress, now: datetime | None = None) -> bool:
    """Say whether a batch may not start any more; its launches then have records that say why (NOT_RUN, budget).

    Counted are minutes since the run took the cluster (simulated runs have a clock of their own, which isn't), and the
    GPU-hours of every attempt so far. A batch that has begun is not cut off: its launches have time limits.
    Raises ClusterBusyError when the cluster has passed to another run, or the lock doesn't say who holds it.
    """
    lock.refuse_if_busy(run.path.parents[1], run.run_id)
    open_ = files.without_answer(run.evidence, specs)
    why = None if any(_begun(run, spec) for spec in open_) else spent(run, now or datetime.now(UTC))
    if why is None:
        return False
    for spec in open_:
        progress(f"{spec.launch_id}: not started: {why}")
        files.record_fault(spec, run.evidence, Code.BUDGET, why)
    return True


def _begun(run: RunDirectory, spec: LaunchSpec) -> bool:
    """Say whether an attempt was claimed that has no record yet: it may be running."""
    return any(
        not (run.evidence / "records" / f"{folder.name}.json").exists()
        for folder in (run.evidence / "raw").glob(f"{spec.launch_id}.a*")
    )


def spent(run: RunDirectory, now: datetime) -> str | None:
    """Say which limit of the run is used up; None while none is."""
    profile = run.profile()
    held = lock.holder_of(run.path.parents[1])
    since = datetime.fromisoformat(held["since"]) if held and held["run_id"] == run.run_id else run_time(run.run_id)
    minutes = (now - since).total_seconds() / 60
    if profile.launcher != "simulated" and minutes > profile.limits.minutes:
        return (
            f"{minutes:.0f} minutes have passed; limits.minutes of profile {profile.name} is {profile.limits.minutes:g}"
        )
    known = [(limit, name) for limit, name in _gpu_hours(profile, run.suite()) if limit is not None]
    if not known or profile.device is not Device.GPU:
        return None
    limit, name = min(known)
    used = sum(_hours(run))
    return f"{used:.1f} GPU-hours are used; {name} is {limit:g}" if used >= limit else None


def _gpu_hours(profile: ClusterProfile, suite: Suite) -> Iterator[tuple[float | None, str]]:
    yield profile.limits.gpu_hours, f"limits.gpu_hours of profile {profile.name}"
    yield suite.gpu_hours, f"gpu_hours of suite {suite.name}"


def _hours(run: RunDirectory) -> Iterator[float]:
    gpus = {spec.launch_id: len(spec.nodes) * spec.accelerators_per_node for spec in run.plan().launches}
    for _, record in run.records():
        if not isinstance(record, OutputError):  # judging tells of damaged ones
            yield record.duration_s * gpus.get(record.launch_id, 0) / 3600
