"""The stages of a run, top to bottom. The command line and the DAGs call these and nothing beside them.

prepare → launch_batch (for every batch) → seal → judge → report → track → gate. Every stage after `seal` can be
repeated at any time; each reads what it needs from the run directory. What people decide on a judged run (approve)
is tracking/approvals.py, and what a stage holds derived/ against before it tells or seals it tracking/derived_seal.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from plumbline import __version__
from plumbline.clusters.profile import ClusterProfile, load_profile, profile_folders
from plumbline.configuration import find_document, parse, project_root
from plumbline.errors import ConfigError, OutputError
from plumbline.execution import budget, kubernetes, lock
from plumbline.execution.asked import asked_otherwise
from plumbline.execution.environment import hardware_identity, software_environment
from plumbline.execution.launcher import launcher
from plumbline.execution.parameters import check_profile, check_settings, check_suite
from plumbline.execution.plan import make_plan, plan_data
from plumbline.suites.suite import Baseline, Suite, load_suite, suite_folders
from plumbline.tracking.approvals import approvable, approve, standing_approval
from plumbline.tracking.derived_seal import (
    PAGE,
    WRITTEN_LATER,
    contradiction,
    judgement,
    refuse_changed,
    refuse_rejudged,
    refuse_taken_back,
    refuse_unfinished,
    taken_back_by,
)
from plumbline.tracking.run_directory import RunDirectory, link_latest, misplaced, new_run_id, run_time
from plumbline.validation.seals import note_seal

__all__ = [
    "GateResult", "Progress", "approvable", "approve", "batch_ids", "code_version", "contradiction", "default_results",
    "gate", "judge", "launch_batch", "lease", "limits_in_force", "load", "planted_in", "prepare", "report",
    "results_directory", "seal", "standing_approval", "take", "track",
]  # fmt: skip

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What the gate says of a judged run: `open`, the display verdict, and the reasons as in verdict.json."""

    open: bool
    verdict: str
    reasons: tuple[Mapping[str, Any], ...]


def results_directory(profile: ClusterProfile) -> Path:
    """Give where runs of a cluster are kept: PLUMBLINE_RESULTS, else the profile's."""
    return Path(os.environ["PLUMBLINE_RESULTS"]) if "PLUMBLINE_RESULTS" in os.environ else profile.path(profile.results)


def load(cluster: str, suite: str, settings: Mapping[str, Any]) -> tuple[ClusterProfile, Suite]:
    """Read profile and suite with its settings, checked against each other. Raises ConfigError."""
    profile, chosen = load_profile(cluster), load_suite(suite, dict(settings))
    check_profile(profile, find_document("cluster profile", cluster, profile_folders()))
    check_suite(load_suite(suite) if settings else chosen, find_document("suite", suite, suite_folders()))
    check_settings(settings)
    if chosen.faults and profile.launcher != "simulated":
        raise ConfigError(f"--set faults: {profile.name} is a real cluster; faults are planted in simulated ones only")
    if chosen.faults:
        from plumbline.simulation.faults import load_scenario  # noqa: PLC0415 - only for simulated runs
        from plumbline.simulation.planting import check_faults  # noqa: PLC0415

        check_faults(load_scenario(chosen.faults, 0), profile, chosen.faults)
    if profile.kubernetes is not None and chosen.retries < profile.kubernetes.retries:
        section = profile.kubernetes.model_copy(update={"retries": chosen.retries})
        profile = profile.model_copy(update={"kubernetes": section})
    if profile.repeatability is not None:
        given = {**chosen.baseline.model_dump(), **profile.repeatability.model_dump()}
        baseline = parse(Baseline, given, f"profile {profile.name}: repeatability")
        chosen = chosen.model_copy(update={"baseline": baseline})
    return profile, chosen


def prepare(
    cluster: str,
    suite: str,
    settings: Mapping[str, Any],
    *,
    trigger: str,
    tags: Mapping[str, str] | None = None,
    holder_pid: int | None = None,
    now: datetime | None = None,
) -> RunDirectory:
    """Take the cluster's lock, plan, and write down all that judging will need: the run can start.

    `trigger` says who asked (cli, nightly, acceptance). With `holder_pid` the lock ends with that process. `now` sets
    the night of a simulated cluster; a measured run can't choose its time.
    Raises ConfigError, ClusterBusyError, LaunchError; the lock is given back when something fails.
    """
    profile, chosen = load(cluster, suite, settings)
    results = results_directory(profile)
    if now is not None and profile.launcher != "simulated":
        raise ConfigError(f"{profile.name} is a real cluster: a run of another time than now can't be measured")
    moment = now or datetime.now(UTC)
    run_id = new_run_id(moment)
    holder = f"{trigger} {chosen.name}"
    take(profile, results, run_id, holder, holder_pid)
    try:
        inventory = launcher(profile).inventory(profile, moment.date())
        plan = make_plan(profile, chosen, inventory, run_id=run_id, seed=int(run_id[-6:], 16))
        limits = limits_in_force(profile, chosen, results, run_id)
        run = RunDirectory.create(results, profile.name, chosen.name, run_id)
        run.write_evidence("profile", profile.model_dump(mode="json"))
        run.write_evidence("suite", chosen.model_dump(mode="json"))
        run.write_evidence("references", limits)
        environment = {**_environment(trigger, settings, tags or {}), **planted_in(chosen, moment)}
        environment["asked"] = asked_otherwise(profile, load_suite(suite), chosen)
        run.write_evidence("environment", {**environment, "prepared_at": _utc(moment)})
        run.write_evidence("plan", plan_data(plan))
    except BaseException:
        lock.release(results / profile.name, run_id)
        if profile.launcher == "kubernetes":
            kubernetes.let_go(profile, run_id)
        raise
    return run


def take(profile: ClusterProfile, results: Path, run_id: str, holder: str, pid: int | None) -> None:
    """Take a cluster for a run: its lock here, which ends with the process `pid`, and on Kubernetes its Lease.

    A run whose process was killed has nobody else who would end its pods and give its Lease back. One whose process
    lives is never taken up by another: both would measure.
    Raises ClusterBusyError, ApiError, ConfigError; the lock is as it was then.
    """
    folder = results / profile.name
    taken = lock.acquire(folder, run_id, holder, lease(profile), pid)
    if profile.launcher != "kubernetes":
        return
    try:
        if taken.abandoned is not None:
            kubernetes.let_go(profile, taken.abandoned)
        kubernetes.hold(profile, run_id, holder, lease(profile), pid)
    except BaseException:
        lock.put_back(folder, run_id, taken.before)
        raise


def lease(profile: ClusterProfile) -> timedelta:
    """Give how long a run may hold its cluster: the profile's limit and ten minutes to end."""
    return timedelta(minutes=profile.limits.minutes + 10)


def limits_in_force(profile: ClusterProfile, suite: Suite, results: Path, run_id: str) -> dict[str, Any]:
    """Give everything that judging compares with, as plain data: a later change elsewhere can't change this run."""
    from plumbline.validation.limits import collect_limits  # noqa: PLC0415 - reads history: imports pyarrow

    return collect_limits(profile, suite, results, run_id)


def _environment(trigger: str, settings: Mapping[str, Any], tags: Mapping[str, str]) -> dict[str, Any]:
    return {
        "plumbline": __version__,
        "code": dict(code_version()),
        "trigger": trigger,
        "settings": dict(settings),
        "tags": dict(tags),
        "hardware": hardware_identity(),
        "software": software_environment(),
    }


def planted_in(suite: Suite, moment: datetime) -> dict[str, Any]:
    """Give what `--set faults` plants in a run that begins at a moment, under `planted`; nothing without it."""
    if not suite.faults:
        return {}
    from plumbline.simulation.faults import load_scenario  # noqa: PLC0415 - only for simulated runs
    from plumbline.simulation.planting import planted  # noqa: PLC0415

    measured = {entry.benchmark for entry in suite.benchmarks}
    return {"planted": planted(load_scenario(suite.faults, 0), suite.faults, moment, measured)}


@cache
def code_version() -> Mapping[str, Any]:
    """Name the code: package version, and a digest of the installed sources (what ran, whatever git says).

    Read once a process: sources that change under a running one aren't what it runs.
    """
    import hashlib  # noqa: PLC0415

    digest = hashlib.sha256()
    package = Path(__file__).parent
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".yaml", ".j2") and path.is_file():
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return {"version": __version__, "sources_sha256": digest.hexdigest()}


def batch_ids(run: RunDirectory) -> list[str]:
    """Give the batches of a run in the order in which they are launched."""
    return [batch.batch_id for batch in run.plan().batches]


def launch_batch(run_dir: Path, batch_id: str, progress: Progress) -> None:
    """Run one batch. What has an answer already is left alone, so this may be repeated. Raises LaunchError."""
    run = RunDirectory.open(run_dir)
    if run.sealed:
        raise ConfigError(f"{run.run_id} is sealed: nothing can be added to it")
    profile, plan = run.profile(), run.plan()
    try:
        specs = plan.batch(batch_id)
    except KeyError:
        raise ConfigError(f"{run.run_id} has no batch {batch_id!r}: {', '.join(batch_ids(run))}") from None
    if not budget.refused(run, specs, progress):
        launcher(profile).launch(profile, specs, run.evidence, progress)


def seal(run_dir: Path) -> str:
    """End the run's evidence, give the cluster back, and give the manifest's digest."""
    run = RunDirectory.open(run_dir)
    profile = run.profile()
    if profile.launcher == "kubernetes":
        kubernetes.let_go(profile, run.run_id)  # before the seal: a pod that is left over may still write
    digest = run.seal(_clock(run))
    note_seal(run)
    lock.release(_results_of(run) / run.path.parent.parent.name, run.run_id)
    link_latest(_results_of(run), run)
    return digest


def _clock(run: RunDirectory) -> datetime | None:
    """Give a simulated run's own clock; None stands for now."""
    if run.profile().launcher != "simulated":
        return None
    from plumbline.simulation.launcher import clock_of  # noqa: PLC0415 - only for simulated runs

    return clock_of(run.evidence)


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _results_of(run: RunDirectory) -> Path:
    return run.path.parents[2]


def judge(run_dir: Path) -> dict[str, Any]:
    """Read, derive and validate; write derived/ and give verdict.json's content.

    The evidence is sealed, so what an earlier judge wrote of it stays true of its judge, and stays until this one has
    finished. One that ends otherwise takes it away: an open gate never outlasts a judge that says it can't judge. Of
    two at once the second waits for the first.
    Raises OutputError for a run that is unfinished, or pruned: what was derived of that one is all that is left.
    """
    run = RunDirectory.open(run_dir)
    refuse_unfinished(run)
    run.refuse_pruned()
    run_time(run.run_id)  # before anything is touched: a folder that was renamed is no judge's failure
    with run.derived_anew("mlflow.json") as anew:
        from plumbline.validation.judging import judge_run  # noqa: PLC0415 - imports great_expectations

        verdict = judge_run(anew)
        anew.write_provenance(code_version())
    return verdict


def report(run_dir: Path) -> Path:
    """Write derived/report.html and findings.json; give the report's path.

    The page of a pruned run stays as it is: it quotes raw output that another one could not.
    Raises OutputError for a run that is unfinished, or whose evidence or verdict is not what was judged.
    """
    from plumbline.reports.report import write_report  # noqa: PLC0415
    from plumbline.tracking.judged_run import why_untrusted  # noqa: PLC0415

    run = RunDirectory.open(run_dir)
    with run.derived_locked():
        refuse_changed(run, *WRITTEN_LATER)
        refuse_taken_back(run)
        if run.pruned and why_untrusted(run, *PAGE) is None:
            return run.derived / PAGE[0]
        path = write_report(run)
        run.write_provenance(code_version())
    return path


def track(run_dir: Path, tracking_uri: str | None = None) -> str:
    """Log the run to MLflow, once however often this is called; give its MLflow run id.

    The store is spoken to without holding up a judge. Raises TrackingError (try again), also when the run was judged
    otherwise meanwhile; OutputError for derived files that are not what the judge wrote.
    """
    from plumbline.tracking.judged_run import JudgedRun  # noqa: PLC0415
    from plumbline.tracking.mlflow_payload import run_payload  # noqa: PLC0415
    from plumbline.tracking.mlflow_tracking import begin  # noqa: PLC0415
    from plumbline.tracking.mlflow_tracking import track as log_run  # noqa: PLC0415

    run = RunDirectory.open(run_dir)
    with run.derived_locked():
        judged = judgement(run)
        payload = run_payload(JudgedRun(run))
    mlflow_run_id = begin(run, tracking_uri, payload)
    with run.derived_locked():
        refuse_rejudged(run, judged)
        verdict = run.read_derived("verdict.json")
        if verdict.get("mlflow_run_id") != mlflow_run_id:
            run.write_derived_json("verdict.json", {**verdict, "mlflow_run_id": mlflow_run_id})
            run.write_provenance(code_version())  # a store that goes down below must not leave a verdict unsealed
    log_run(run, tracking_uri, payload)
    with run.derived_locked():
        refuse_rejudged(run, judged)
        run.write_provenance(code_version())
    return mlflow_run_id


def gate(run_dir: Path) -> GateResult:
    """Read the gate's word from verdict.json.

    Raises OutputError when the run is unfinished or not judged, derived/ is not what its judge wrote of this evidence,
    or the word is open and evidence has changed or is missing since. Raw output that `plumbline prune` deleted, and
    noted, takes nothing back.
    """
    run = RunDirectory.open(run_dir)
    refuse_unfinished(run)
    data = run.read_derived("verdict.json")
    problems = list(run.problems())
    own = [p for p in problems if p["path"] in ("derived/verdict.json", "derived/provenance.json")]
    if own:
        raise OutputError(f"derived/ doesn't belong to this evidence: {own[0]['problem']}", source=run.run_id)
    if reason := misplaced(run, data) or contradiction(data):
        raise OutputError(reason, source=run.run_id)
    if data["gate"] == "open" and (touched := taken_back_by(problems)):
        raise OutputError(f"{touched['path']} is {touched['problem']} since it was judged", source=run.run_id)
    return GateResult(open=data["gate"] == "open", verdict=data["verdict"], reasons=tuple(data["reasons"]))


def default_results() -> Path:
    """Give where runs are looked for when no cluster is named: PLUMBLINE_RESULTS, else results/ of the project."""
    return Path(os.environ.get("PLUMBLINE_RESULTS", project_root() / "results"))
