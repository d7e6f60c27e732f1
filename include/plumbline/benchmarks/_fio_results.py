"""From the files of the fio clients to values, findings and statements of completeness."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.benchmarks._fio_jobs import JOBS, block_size, chosen_jobs, client_count, planned_directory, row_params
from plumbline.benchmarks._fio_windows import Activity, Common, common, contradiction, merged_percentile, parse_log
from plumbline.benchmarks._launch_times import wrong_duration, wrong_moments
from plumbline.benchmarks.benchmark import Finding, Measured, Value
from plumbline.errors import OutputError
from plumbline.model import Code, LaunchSpec, RunRecord, Scalar
from plumbline.readers.fio import Job, differences, examine
from plumbline.readers.reading import Completeness, Fact, Status
from plumbline.readers.source import Source
from plumbline.units import parse_bytes

_LEAST_WINDOW = 0.5
"""Clients must have this part of the asked runtime in common, or no aggregate is given."""
_CODE_OF_KIND = {
    "directory_missing": Code.STORAGE_UNAVAILABLE, "permission": Code.STORAGE_UNAVAILABLE,
    "read_only": Code.STORAGE_UNAVAILABLE, "no_space": Code.STORAGE_UNAVAILABLE,
    "not_mounted": Code.STORAGE_UNAVAILABLE, "io_error": Code.STORAGE_UNAVAILABLE,
    "mount_hung": Code.STORAGE_UNAVAILABLE, "too_slow": Code.TIMEOUT, "stalled": Code.TIMEOUT,
    "stopped": Code.STOPPED,
}  # fmt: skip
"""Kinds of error of plumbline_bench/fio_storage.py; any other is BENCHMARK_FAILED."""
_SHOWN_FACTS = ("fio_version", "filesystem", "direct", "page_cache", "footprint_bytes", "layout_s", "removed_leftovers")

Told = Mapping[str, Any]
"""One facts file."""


@dataclass(slots=True)
class _Collected:
    """What the files gave so far."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    completeness: list[Completeness] = field(default_factory=list)
    moments: list[tuple[str, float]] = field(default_factory=list)
    """What happened when, epoch seconds, by the clocks of the clients."""
    took_s: float = 0.0
    """Ramp and runtime of all jobs, one after the other: of each job its slowest client."""

    def find(self, code: Code, message: str, job: str | None = None) -> None:
        self.findings.append(Finding(code=code, message=message, params={"job": job} if job else {}))

    def state(self, reader: str, status: Status, reason: str) -> None:
        self.completeness.append(Completeness(reader=reader, status=status, reason=reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """One client of one job as the facts file lists it."""

    name: str
    node: str
    output: Path
    bw_log: Path


def read_results(spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read all files of a launch. Raises OutputError when there is no facts file, or it is none."""
    told = [_told(path) for path in sorted(raw_dir.glob("fio-facts-*.json"))]
    if not told:
        raise OutputError("no fio-facts-*.json: the clients' program did not start", source=raw_dir.name)
    collected = _Collected()
    for facts in told:
        _take_program(spec, facts, collected)
    seen = sorted(str(node) for facts in told for node in facts["asked"].get("nodes", ()))
    if seen != sorted(spec.nodes):
        message = f"measured on {', '.join(seen)}, planned on {', '.join(spec.nodes)}"
        collected.find(Code.WRONG_HOST, message)
    for job in chosen_jobs(spec.params):
        clients = [client for facts in told for client in _job_clients(facts, job, raw_dir)]
        if len(clients) == client_count(spec) and len({client.name for client in clients}) == len(clients):
            collected.moments += (moment for facts in told for moment in _times(facts, job))
            _take_job(spec, job, clients, told, collected)
        elif not any(facts.get("error") for facts in told):
            reason = f"{job}: {len(clients)} clients ran, {client_count(spec)} were asked for"
            collected.state("fio_clients", Status.INCOMPLETE, reason)
    collected.findings += wrong_moments(record, collected.moments)
    collected.findings += wrong_duration(record, "all jobs together", collected.took_s)
    return Measured(
        values=tuple(collected.values),
        findings=tuple(collected.findings),
        facts=tuple(collected.facts),
        completeness=tuple(collected.completeness),
    )


def _told(path: Path) -> Told:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(f"not readable: {error}", source=path.name) from None
    if not isinstance(data, dict) or data.get("schema") != 1 or not isinstance(data.get("asked"), dict):
        raise OutputError("not a facts file of fio_clients", source=path.name)
    return data


def _take_program(spec: LaunchSpec, facts: Told, collected: _Collected) -> None:
    """Take what the clients' program tells of itself: errors, page cache, and with what it was called."""
    error = facts.get("error")
    nodes = ", ".join(map(str, facts["asked"].get("nodes", ())))
    if facts.get("status") == "ok":
        collected.state("fio_clients", Status.COMPLETE, "")
    elif isinstance(error, dict):
        kind, message = str(error.get("kind")), str(error.get("message"))
        collected.state("fio_clients", Status.FAILED, f"{kind}: {message}")
        collected.find(_CODE_OF_KIND.get(kind, Code.BENCHMARK_FAILED), f"{kind}: {message} (on {nodes})")
    else:
        collected.state("fio_clients", Status.ABORTED, f"it stopped without a word on {nodes}")
    if facts.get("page_cache"):
        kind = facts["filesystem"].get("type") if isinstance(facts.get("filesystem"), dict) else "unknown"
        message = f"the page cache took part on {nodes} (file system {kind}): memory was measured as much as storage"
        collected.find(Code.PAGE_CACHE, message)
    wanted = {
        "clients": spec.params["clients"],
        "size_bytes": parse_bytes(str(spec.params["size"])),
        "runtime_s": spec.params["runtime_s"],
        "ramp_s": spec.params["ramp_s"],
        "directory": planned_directory(spec),
    }
    for name, value in wanted.items():
        if (given := facts["asked"].get(name)) != value:
            collected.find(Code.WRONG_PARAMETERS, f"{name} was {given} on {nodes}, the plan says {value}")
    collected.facts += [Fact(name, facts[name]) for name in _SHOWN_FACTS if name in facts]


def _times(facts: Told, job: str) -> Iterator[tuple[str, float]]:
    """Give when the clients of a job started and ended by their program's clock."""
    for entry in facts.get("jobs", ()):
        for client in entry["clients"] if entry["job"] == job else ():
            for key in ("started_at", "ended_at"):
                if isinstance(client.get(key), (int, float)):
                    yield f"the facts say of {job} {key}", float(client[key])


def _job_clients(facts: Told, job: str, raw_dir: Path) -> Iterator[_Client]:
    """Give the clients that a facts file lists for a job. Raises OutputError for a damaged list."""
    try:
        for entry in facts.get("jobs", ()):
            if entry["job"] == job:
                for client in entry["clients"]:
                    yield _Client(
                        name=f"{client['node']}/c{client['client']}",
                        node=str(client["node"]),
                        output=raw_dir / Path(client["output"]).name,
                        bw_log=raw_dir / Path(client["bw_log"]).name,
                    )
    except (KeyError, TypeError) as error:
        raise OutputError(f"the list of jobs in the facts file is damaged: {error}") from None


def _take_job(
    spec: LaunchSpec, job: str, clients: Sequence[_Client], told: Sequence[Told], collected: _Collected
) -> None:
    """Take one job: its clients' files, and what they did together."""
    expect = _expectations(spec, job, direct=all(facts.get("direct") for facts in told))
    read = []
    for client in clients:
        try:
            read.append(_read_client(spec, client, job, expect, collected))
        except OutputError as error:
            collected.find(Code.UNREADABLE, f"{client.name}: {error}", job)
    done = [item for item in read if item is not None]
    if done:
        slowest_s = max(activity.runtime_ms for activity, _ in done) / 1000
        collected.took_s += slowest_s + _number(spec, "ramp_s")
    if len(done) < len(clients):
        return
    shared = common([activity for activity, _ in done])
    if shared is None or shared.window_s < _LEAST_WINDOW * _number(spec, "runtime_s"):
        collected.find(*_no_overlap(spec, shared), job)
        return
    collected.values += _values(spec, job, shared, [bins for _, bins in done])
    rates = {name: round(rate / 1e6, 3) for name, rate in shared.per_client.items()}
    collected.facts.append(Fact(f"{job}_window", {"window_s": round(shared.window_s, 3), "client_MBps": rates}))


def _expectations(spec: LaunchSpec, job: str, *, direct: bool) -> dict[str, Scalar]:
    return {
        "rw": JOBS[job][0],
        "bs": str(block_size(spec, job)),
        "runtime_s": _number(spec, "runtime_s"),
        "size": spec.params["size"],
        "iodepth": spec.params["iodepth"],
        "ioengine": spec.params["ioengine"],
        "direct": int(direct),
    }


def _read_client(
    spec: LaunchSpec, client: _Client, job: str, expect: Mapping[str, Scalar], collected: _Collected
) -> tuple[Activity, Mapping[int, int]] | None:
    """Read a client's report and log: what it did, and its latency histogram. None when that gives no number.

    Raises OutputError when a file is absent or unreadable.
    """
    runs, statement = examine(_source(client.output), {"jobs": 1})
    collected.completeness.append(statement)
    jobs = [item for run in runs for item in run.jobs]
    for key, wrong in differences(jobs, expect):
        collected.find(Code.WRONG_PARAMETERS, f"{client.name}: {key}: {wrong}", job)
    for wrong in _wrong_places(spec, jobs):
        collected.find(Code.WRONG_PARAMETERS, f"{client.name}: {wrong}", job)
    if len(jobs) != 1 or statement.status is not Status.COMPLETE:
        return None
    activity = _activity(client, jobs[0], runs[0].ended_ms, JOBS[job][1])
    if wrong_log := contradiction(activity):
        collected.find(Code.INCOMPLETE_OUTPUT, wrong_log, job)
        return None
    told = f"{client.name}: {job}:"
    collected.moments.append((f"{told} fio's report is of", activity.reported_ms / 1000))
    collected.moments.append((f"{told} its I/O began", (activity.reported_ms - activity.runtime_ms) / 1000))
    for which, (at, _) in (("first", activity.entries[0]), ("last", activity.entries[-1])):
        collected.moments.append((f"{told} the {which} entry of its log is of", at / 1000))
    transfer = jobs[0].transfer(JOBS[job][1])
    latency = transfer.latency.get("completion") if transfer else None
    return activity, latency.bins if latency else {}


def _wrong_places(spec: LaunchSpec, jobs: Sequence[Job]) -> Iterator[str]:
    """Say of jobs that their file did not lie in the directory under test, or that nobody can say where it lay."""
    directory = os.path.normpath(planned_directory(spec))
    for job in jobs:
        name = job.options.get("filename")
        if name is None:
            yield "fio does not say which file it used"
        elif not Path(os.path.normpath(name.replace("\\:", ":"))).is_relative_to(directory):
            yield f"fio used {name}, the plan says a file in {directory}"


def _activity(client: _Client, job: Job, ended_ms: float | None, direction: str) -> Activity:
    transfer = job.transfer(direction)
    if transfer is None or not transfer.total_bytes or not transfer.runtime_ms or ended_ms is None:
        raise OutputError(f"tells no bytes or no time of {direction}", source=client.output.name)
    return Activity(
        name=client.name,
        total_bytes=transfer.total_bytes,
        total_ios=transfer.total_ios or 0,
        runtime_ms=transfer.runtime_ms,
        reported_ms=ended_ms,
        entries=parse_log(_source(client.bw_log).text(), client.bw_log.name),
    )


def _source(path: Path) -> Source:
    try:
        return Source.of_path(path)
    except OSError as error:
        raise OutputError(f"cannot be read: {error.strerror}", source=path.name) from None


def _no_overlap(spec: LaunchSpec, shared: Common | None) -> tuple[Code, str]:
    window = 0.0 if shared is None else shared.window_s
    message = (
        f"all clients ran at once for {window:.2f} s of {_number(spec, 'runtime_s'):g} s: no aggregate can be given"
    )
    if len(spec.nodes) > 1:
        return Code.CLOCK_SKEW, f"{message}; the clocks of the nodes differ, or one began late"
    return Code.INCOMPLETE_OUTPUT, message


def _values(spec: LaunchSpec, job: str, shared: Common, histograms: Sequence[Mapping[int, int]]) -> Iterator[Value]:
    direction, params = JOBS[job][1], row_params(spec, job)
    if job.startswith("seq"):
        yield Value(indicator=f"{direction}_bandwidth", value=shared.bytes_per_s / 1e6, unit="MB/s", params=params)
    else:
        yield Value(indicator=f"{direction}_iops", value=shared.ios_per_s, unit="IOPS", params=params)
        for percentile in (50, 99):
            found = merged_percentile(histograms, percentile) if all(histograms) else None
            if found is not None:
                name = f"{direction}_latency_p{percentile}"
                yield Value(indicator=name, value=found / 1000, unit="us", params=params)
    middle = statistics.median(shared.per_client.values())
    if len(shared.per_client) > 1 and middle > 0:
        spread = min(shared.per_client.values()) / middle
        yield Value(indicator="client_spread", value=spread, unit="1", params={**params, "job": job})


def _number(spec: LaunchSpec, name: str) -> float:
    return float(str(spec.params[name]))
