"""What can be wrong with a record before any number is read from it, and how a launch ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from plumbline.amounts import node_list
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.launcher import ANSWERS
from plumbline.execution.plan import Plan
from plumbline.execution.pods import batch_seconds
from plumbline.execution.run_one import file_sha256
from plumbline.model import KIND_OF_CODE, Code, LaunchSpec, Outcome, RunRecord, Verdict, VerdictKind, verdict
from plumbline.tracking.run_directory import RunDirectory, run_time
from plumbline.validation.snapshot_checks import snapshot_problems

CLOCK_TOLERANCE = timedelta(seconds=120)
"""How far clocks of nodes and orchestrator may differ before a record's times count as wrong. Assumption: NTP is on."""

_TO_END = timedelta(minutes=10)
"""A run holds its cluster so much longer than its limits.minutes (stages.lease)."""


def launch_place(spec: LaunchSpec) -> str:
    """Name a launch's place for people."""
    return f"{spec.benchmark} at {spec.node_count} node{'s' if spec.node_count != 1 else ''}, group {spec.group}"


def launch_fields(spec: LaunchSpec) -> dict[str, Any]:
    """Give the fields of a verdict on a whole launch."""
    return {
        "benchmark": spec.benchmark,
        "launch_id": spec.launch_id,
        "node_count": spec.node_count,
        "group": spec.group,
        "node": spec.nodes[0] if len(spec.nodes) == 1 else None,
    }


def record_verdicts(
    run: RunDirectory, profile: ClusterProfile, spec: LaunchSpec, record: RunRecord, hardware: str | None
) -> Iterator[Verdict]:
    """Say what is wrong with a record before any number is read from it."""
    place, fields = launch_place(spec), launch_fields(spec)
    wrong = [
        (record.run_id != spec.run_id, Code.OLD_OUTPUT, f"the record is of run {record.run_id}"),
        (record.cluster != spec.cluster, Code.WRONG_CLUSTER, f"the record is of cluster {record.cluster}"),
        (record.spec_sha256 != spec.digest(), Code.WRONG_PARAMETERS, "the record answers another launch spec"),
        (record.argv != spec.argv, Code.WRONG_PARAMETERS, "another command was run than was planned"),
        (record.origin != spec.origin, Code.WRONG_PARAMETERS, f"the record is {record.origin.value}"),
        (record.device != spec.device, Code.WRONG_HARDWARE, f"ran on {record.device.value}, not {spec.device.value}"),
    ]
    yield from (verdict(code, place, message, **fields) for bad, code, message in wrong if bad)
    yield from (verdict(code, place, message, **fields) for code, message in _clock_problems(run, record))
    yield from (verdict(code, place, message, **fields) for code, message in _host_problems(profile, spec, record))
    found = record.hardware.get("hardware_id")
    if profile.launcher == "local" and hardware and found and found != hardware:
        yield verdict(Code.WRONG_HARDWARE, place, f"ran on hardware {found}, planned on {hardware}", **fields)
    yield from (verdict(code, place, message, **fields) for code, message in _raw_problems(run, spec, record))
    yield from (
        verdict(code, place, message, **fields)
        for code, message in snapshot_problems(spec.placed(record.replaced), record)
    )


def earlier_verdicts(spec: LaunchSpec, record: RunRecord, attempts: Sequence[RunRecord]) -> Iterator[Verdict]:
    """Say what stopped earlier attempts, where the record that counts would hide it.

    An answer takes back what infrastructure did before, but not what is the cluster's own fault (a missing GPU, too
    little memory). Without an answer every attempt's reason stays: the last one may be a harmless gap.
    """
    told = {record.code}
    for one in attempts:
        if one.attempt >= record.attempt or one.code is None or one.code in told:
            continue
        if one.outcome is not Outcome.INFRASTRUCTURE:
            continue  # whose doing a stop was is in a record of its own
        if record.outcome not in ANSWERS or KIND_OF_CODE[one.code] is VerdictKind.FAIL:
            told.add(one.code)
            message = f"attempt {one.attempt}: {one.reason}"
            yield verdict(one.code, launch_place(spec), message, **launch_fields(spec))


def replacement_verdicts(
    plan: Plan, spec: LaunchSpec, record: RunRecord, attempts: Sequence[RunRecord]
) -> Iterator[Verdict]:
    """Say which planned nodes others stood in for: they were not measured. INVALID where nothing allowed that.

    Only what infrastructure did to an earlier attempt lets another node of the inventory take a place.
    """
    if not record.replaced:
        return
    place, fields = launch_place(spec), launch_fields(spec)
    lost = [one for one in attempts if one.attempt < record.attempt and one.outcome is Outcome.INFRASTRUCTURE]
    usable = {node.name for node in plan.inventory if node.unusable is None}
    nodes = spec.placed(record.replaced).nodes
    wrong = [
        (not lost, "no earlier attempt was stopped by infrastructure"),
        (bool(set(record.replaced) - set(spec.nodes)), "it names nodes that this launch was not planned on"),
        (bool(set(record.replaced.values()) & set(spec.nodes)), "a node stands in for another of the same launch"),
        (len(set(nodes)) != len(nodes), "one node stands in for two"),
        (bool(set(record.replaced.values()) - usable), "a node stands in that the plan does not know as usable"),
    ]
    for message in (message for bad, message in wrong if bad):
        yield verdict(Code.WRONG_HOST, place, f"nodes were replaced, and {message}", **fields)
    for node, substitute in sorted(record.replaced.items()):
        why = f"attempt {lost[-1].attempt}: {lost[-1].reason}" if lost else "no reason is on record"
        message = f"not measured: {substitute} took its place after {why}"
        yield verdict(Code.REPLACED, f"{place}, node {node}", message, **{**fields, "node": node})


def out_of_time(
    run: RunDirectory, plan: Plan, profile: ClusterProfile, records: Mapping[str, tuple[RunRecord | None, Any]]
) -> Mapping[str, str]:
    """Say which launches are too old to be of one run with its last one: launch_id → why.

    `records` holds by launch the record that counts and all attempts. A run that was taken up days later would mix
    what the cluster was then with what it is now. No batch starts after limits.minutes, and one that began may run on.
    Records whose own times can't be are told by record_verdicts, and bound nothing.
    """
    latest = _sealed(run) + CLOCK_TOLERANCE
    attempts = [one for _, every in records.values() for one in every]
    spans = sorted(span for one in attempts if (span := _span(one)) is not None and span[0] <= span[1] <= latest)
    if not spans:
        return {}
    pause = timedelta(minutes=profile.limits.minutes) + _TO_END
    ended = max(end for _, end in spans)
    earliest = ended - pause - _longest_batch(plan, profile)
    before = spans[0][1]
    for start, end in spans:
        if start - before > pause:  # nothing ran for longer than a run may take
            earliest = max(earliest, start)
        before = max(before, end)
    limit = f"limits.minutes of profile {profile.name} is {profile.limits.minutes:g}"
    return {
        launch_id: f"started {record.started_at}, and the run's last launch ended {ended:%Y-%m-%dT%H:%M:%SZ}: no run "
        f"takes so long ({limit}), and what the cluster did then is not what it does now; start a new run"
        for launch_id, (record, _) in records.items()
        if record is not None and (span := _span(record)) is not None and span[0] < earliest
    }


def _span(record: RunRecord) -> tuple[datetime, datetime] | None:
    try:
        return _moment(record.started_at), _moment(record.ended_at)
    except ValueError:
        return None


def _longest_batch(plan: Plan, profile: ClusterProfile) -> timedelta:
    """Give the most time that one batch may take: on Kubernetes its pod's deadline, else one launch after another."""
    batches = [plan.batch(batch.batch_id) for batch in plan.batches]
    if profile.launcher == "kubernetes":
        data = profile.model_dump(mode="json")
        seconds: list[float] = [batch_seconds(data, specs) for specs in batches if specs]
    else:
        seconds = [sum(spec.timeout_s for spec in specs) for specs in batches]
    return timedelta(seconds=max(seconds, default=0.0))


def _clock_problems(run: RunDirectory, record: RunRecord) -> Iterator[tuple[Code, str]]:
    try:
        started, ended = _moment(record.started_at), _moment(record.ended_at)
    except ValueError:
        yield Code.SCHEMA, f"times are not UTC ISO-8601: {record.started_at!r}, {record.ended_at!r}"
        return
    made = run_time(run.run_id)
    if started < made - CLOCK_TOLERANCE:
        yield Code.OLD_OUTPUT, f"started {record.started_at}, before the run was made ({made:%Y-%m-%dT%H:%M:%SZ})"
    sealed = _sealed(run)
    if ended > sealed + CLOCK_TOLERANCE:
        yield Code.CLOCK_SKEW, f"ended {record.ended_at}, after the run was sealed ({sealed:%Y-%m-%dT%H:%M:%SZ})"
    if ended < started or abs((ended - started).total_seconds() - record.duration_s) > max(5, record.duration_s * 0.1):
        yield (
            Code.CLOCK_SKEW,
            f"wall clock says {(ended - started).total_seconds():.1f} s, it took {record.duration_s} s",
        )


def _sealed(run: RunDirectory) -> datetime:
    """Give when the run was sealed; now where it isn't yet."""
    sealed = run.sealed_at() or datetime.now(UTC)
    return sealed if sealed.tzinfo is not None else sealed.replace(tzinfo=UTC)  # seals.py tells it


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment


def _host_problems(profile: ClusterProfile, spec: LaunchSpec, record: RunRecord) -> Iterator[tuple[Code, str]]:
    """On a cluster the hosts of the record must be the planned nodes; emulated nodes share one host."""
    meant = set(spec.placed(record.replaced).nodes)
    if profile.nodes.emulated is None and record.outcome in ANSWERS and set(record.hosts) != meant:
        missing = sorted(meant - set(record.hosts))
        other = sorted(set(record.hosts) - meant)
        yield (
            Code.WRONG_HOST,
            f"planned nodes absent: {node_list(missing, 5) or 'none'}; others present: {node_list(other, 5) or 'none'}",
        )


def _raw_problems(run: RunDirectory, spec: LaunchSpec, record: RunRecord) -> Iterator[tuple[Code, str]]:
    folder = run.evidence / record.raw_dir
    if record.raw_dir != f"raw/{record.launch_id}.a{record.attempt}":
        yield Code.SCHEMA, f"raw output is claimed to be in {record.raw_dir!r}"
        return
    for raw in record.raw_files:
        path = folder / raw.path
        if not path.is_file():
            yield Code.EVIDENCE_CHANGED, f"raw file {raw.path} is missing"
        elif path.stat().st_size != raw.size_bytes or file_sha256(path) != raw.sha256:
            yield Code.EVIDENCE_CHANGED, f"raw file {raw.path} is not the one that the record lists"
    if record.outcome in ANSWERS:
        yield from ((Code.EVIDENCE_CHANGED, message) for message in _unlisted(folder, spec, record))


def _unlisted(folder: Path, spec: LaunchSpec, record: RunRecord) -> Iterator[str]:
    """Name raw files that the record doesn't list: an old or foreign output would be read as this launch's.

    A record lists no links, so a link matters only where a benchmark would read it.
    """
    listed = {raw.path for raw in record.raw_files}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        read = not path.is_symlink() or any(fnmatch(name, pattern) for pattern in spec.outputs)
        if path.is_file() and name not in listed and read:
            yield f"raw file {name} is not in the record: something else wrote it, or wrote it later"


def outcome_problems(run: RunDirectory, record: RunRecord) -> Iterator[tuple[Code, str]]:
    """Say how a launch ended when it did not end well: code and message, with the tool's last words."""
    if record.outcome is Outcome.EXITED and record.exit_code == 0:
        return
    tail = _last_words(run.evidence / record.raw_dir)
    if record.outcome is Outcome.TIMEOUT:
        yield Code.TIMEOUT, f"{record.reason}{tail}"
    elif record.outcome is Outcome.EXITED:
        yield Code.BENCHMARK_FAILED, f"exit code {record.exit_code}{tail}"
    elif record.outcome is Outcome.SIGNALLED:
        hint = "; SIGKILL from outside is often out of memory" if record.signal == 9 else ""
        yield Code.BENCHMARK_FAILED, f"{record.reason}{hint}{tail}"
    else:
        yield record.code or Code.INFRASTRUCTURE, record.reason


def _last_words(raw_dir: Path) -> str:
    """Give the last non-empty line of stderr, or of stdout, as evidence in a message."""
    for name in ("stderr", "stdout"):
        path = raw_dir / name
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as stream:
                stream.seek(max(0, path.stat().st_size - 4096))
                lines = [line.strip() for line in stream.read().decode("utf-8", "replace").splitlines()]
            if words := [line for line in lines if line]:
                return f": {words[-1][:200]}"
    return ""
