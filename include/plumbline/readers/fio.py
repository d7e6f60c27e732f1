"""Reads what fio prints: JSON and json+ of 2.x and 3.x, client/server, text since 1.x, terse; other text around it.

Numbers are given once: entries in which fio adds others up ("All clients"), interim reports of
`--status-interval`, and the second format of one report are not measurements again.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from plumbline.errors import OutputError
from plumbline.model import Params, Scalar
from plumbline.readers._fio_checks import announced_runtime, differences, shortfalls
from plumbline.readers._fio_entries import run_of, salvage
from plumbline.readers._fio_facts import facts
from plumbline.readers._fio_json import Broken, sift
from plumbline.readers._fio_model import Job, Latency, Run, Transfer
from plumbline.readers._fio_text import TextReports
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status, readings_of
from plumbline.readers.source import Source

__all__ = ["Job", "Latency", "Run", "Transfer", "differences", "examine", "read", "sniff"]

NAME = "fio"
TOOL = "fio 1.x to 3.x: JSON, json+, client/server, text, terse (axboe/fio)"
INDICATORS = {
    "bandwidth": ("MB/s", "bytes of one job and direction by its runtime"),
    "iops": ("IOPS", "I/O operations a second of one job and direction"),
    "completion_latency_mean": ("us", "mean time from submission to completion of an I/O"),
    "completion_latency": ("us", "percentile of completion latency, param percentile"),
    "total_latency_mean": ("us", "mean time from creation to completion of an I/O"),
    "total_latency": ("us", "percentile of total latency, param percentile (lat_percentiles=1)"),
    "submission_latency_mean": ("us", "mean time to submit an I/O"),
    "total_bytes": ("B", "bytes that one job moved in one direction"),
    "runtime": ("ms", "time that one job ran in one direction"),
}
_UNITS = {name: unit for name, (unit, _) in INDICATORS.items()}
FACTS = {
    "fio_version": "version string of fio, a list when runs differ",
    "container": "where the entries stood: jobs, client_stats, text or terse",
    "json_docs": "fio documents found",
    "n_jobs": "entries of jobs, without those that add others up",
    "n_job_entries": "entries, with those that add others up",
    "has_all_clients_entry": "whether fio added an entry for all clients",
    "all_clients": "what that entry says",
    "first_job": "name, rates as printed and p99 of the first entry",
    "errors": "errors that fio reports, of jobs and of itself",
    "messages": "other lines that begin with 'fio: '",
    "options": "job options as fio printed them (an allow-list; lists where jobs differ)",
    "asked_runtime_s": "runtime that was asked for",
    "io_bytes_unit": "what io_bytes is counted in: B, or KiB before fio 2.21",
    **{
        f"{way}_{key}": f"{meaning}, {way}"
        for way in ("read", "write", "trim", "mixed")
        for key, meaning in {
            "sum_bw_KiBps": "sum of the entries' KiB/s as printed",
            "sum_bw_MiBps": "the same in MiB/s",
            "sum_iops": "sum of the entries' IOPS",
            "max_runtime_ms": "longest runtime of an entry",
            "total_ios": "I/Os of all entries",
            "all_clients_bw_KiBps": "KiB/s of the 'All clients' entry",
            "all_clients_iops": "IOPS of the 'All clients' entry",
        }.items()
    },
}
EXPECTATIONS = {
    "jobs": "number of entries (jobs; without 'All clients')",
    "runtime_s": "runtime that was asked for, in seconds",
    "direct": "whether direct I/O was asked for (1 or 0)",
    "bs": "block size ('4k', '1M')",
    "rw": "workload (read, randwrite, randrw …)",
    "numjobs": "numjobs of every job",
    "iodepth": "iodepth of every job",
    "ioengine": "I/O engine of every job",
    "size": "size of every job ('1G')",
    "errors": "number of errors (0)",
}

_MESSAGE = re.compile(r"(?:.*[\s\]])?fio: (?!client_stats)(.+)")
_VERIFY = re.compile(r"\bverify(?:: bad | failed (?:at file|for zeroed data))")
"""What --verify says of a block that isn't as written: such lines don't begin with `fio: `."""
_SIGNAL = re.compile(r"terminating on signal (\d{1,3})")
_FATAL = re.compile(
    r"err=\s*[1-9]\d*/|\berror=|io_u error|got signal=|disappeared|failed to start|startup hung|timed out|\bkilled\b|"
    r"verify failed|bad magic",
)
_WORST = (Status.COMPLETE, Status.UNKNOWN, Status.INCOMPLETE, Status.NOT_STARTED, Status.ABORTED, Status.FAILED)
_MOST_MESSAGES = 50


def sniff(head: str) -> float:
    """Say how sure this is fio's output."""
    if '"fio version"' in head or re.search(r"\(groupid=\d+, jobs=\d+\): err=", head):
        return 0.99
    if re.search(r"^[345];fio-\d", head, re.MULTILINE) or re.search(r"\(g=\d+\): rw=\w+, bs", head):
        return 0.95
    if '"jobname"' in head or re.search(r"^hostname=.*, fio=fio-", head, re.MULTILINE):
        return 0.8
    return 0.4 if re.search(r"^fio: ", head, re.MULTILINE) else 0.0


class _Output:
    """All that one source holds."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.documents = 0
        self._documents: dict[tuple[object, ...], Run] = {}
        self.empty_object = False
        self.messages: list[str] = []
        self.fatal: list[str] = []
        self.signals: list[int] = []
        self.announced = 0
        self.connected = 0
        self.begun: list[str] = []
        self.first_line = ""

    def jobs(self) -> list[Job]:
        return [job for run in self.runs for job in run.jobs]

    def errors(self) -> list[str]:
        return [*(_error(job) for job in self.jobs() if job.error), *self.fatal]

    def add_document(self, run: Run) -> None:
        self.documents += 1
        key = (run.version, run.ended_ms, *map(_fingerprint, run.jobs))
        if self._documents.setdefault(key, run) is not run and self._documents[key] == run:
            return  # the same report, printed or captured twice
        if self.runs and _is_later_report(self.runs[-1], run):
            self.runs[-1] = run
        else:
            self.runs.append(run)

    def add_text(self, text: TextReports) -> None:
        """Add the runs in text and terse form, unless they are the same reports in a second format."""
        self.announced, self.connected, self.begun = text.announced(), text.connected(), text.begun()
        told = _Told()
        broken = _Broken()
        for index, run in enumerate(self.runs):
            told.add(run)
            broken.add(index, run)
        for run in text.runs():
            if told.add(run):
                continue
            for index in broken.told_by({_fingerprint(job) for job in run.jobs}, run.container):
                # A document that was cut holds less than the text of the same report: what is missing stays said.
                self.runs[index] = replace(self.runs[index], jobs=(), all_clients=None)
            broken.add(len(self.runs), run)
            self.runs.append(run)

    def add_message(self, line: str) -> None:
        match = _MESSAGE.match(line)
        if match is None:
            return
        text = match[1].strip()
        if signal := _SIGNAL.search(text):
            self.signals.append(int(signal[1]))
        elif len(self.fatal) < _MOST_MESSAGES and _FATAL.search(text):
            self.fatal.append(text)
        elif len(self.messages) < _MOST_MESSAGES:
            self.messages.append(text)


class _Told:
    """The jobs of each format: which runs are told by another format already, or twice by their own?"""

    def __init__(self) -> None:
        self._jobs: dict[str, Counter[tuple[object, ...]]] = {}
        """Format → its jobs, as often as it tells them."""
        self._runs: dict[tuple[object, ...], Run] = {}

    def add(self, run: Run) -> bool:
        """Take over a run. True when nothing in it is new: repetitions may have equal runtimes, so it's counted."""
        key = (
            run.container,
            *((_fingerprint(job), *((t.bytes_per_s, t.iops) for t in job.transfers)) for job in run.jobs),
        )
        if self._runs.setdefault(key, run) is not run and self._runs[key] == run:
            return True
        mine = Counter(map(_fingerprint, run.jobs))
        own = self._jobs.setdefault(run.container, Counter())
        own.update(mine)  # `+=` would look at all that is there
        others = [jobs for container, jobs in self._jobs.items() if container != run.container]
        if not mine:
            return any(self._jobs.values())
        return any(all(own[job] <= jobs[job] for job in mine) for jobs in others)


class _Broken:
    """The runs that have problems: which of them holds nothing but what another run tells?"""

    def __init__(self) -> None:
        self._jobs: dict[int, set[tuple[object, ...]]] = {}
        self._by_job: dict[tuple[object, ...] | None, list[int]] = {}
        """One job of each run, None where it has none → the run's place."""
        self._format: dict[int, str] = {}

    def add(self, index: int, run: Run) -> None:
        if run.problems:
            jobs = self._jobs[index] = {_fingerprint(job) for job in run.jobs}
            self._by_job.setdefault(next(iter(jobs), None), []).append(index)
            self._format[index] = run.container

    def told_by(self, jobs: set[tuple[object, ...]], container: str) -> list[int]:
        """Take out the runs of other formats whose jobs are all among these."""
        found: list[int] = []
        for one in (None, *jobs):
            if (indices := self._by_job.pop(one, None)) is not None:
                told = {index for index in indices if self._jobs[index] <= jobs and self._format[index] != container}
                found += sorted(told)
                if left := [index for index in indices if index not in told]:
                    self._by_job[one] = left
        return found


def _fingerprint(job: Job) -> tuple[object, ...]:
    """Give what is the same of a job in all formats of one report: runtimes in ms are exact in all of them."""
    return (job.name, job.error, *sorted((t.direction, t.runtime_ms) for t in job.transfers if t.ran))


def _gather(source: Source) -> _Output:
    output = _Output()
    text = TextReports()
    held: list[str] = []
    for item in sift(source):
        text.feed(held)
        held = []
        if isinstance(item, list):
            held = item
            output.first_line = output.first_line or item[0]
            for line in item:
                if "fio: " in line:
                    output.add_message(line)
                elif "verify" in line and _VERIFY.search(line) and len(output.fatal) < _MOST_MESSAGES:
                    output.fatal.append(line.strip()[:300])
        elif isinstance(item, Broken):
            output.runs.append(salvage(item.text))
            output.documents += 1
        elif item:
            output.add_document(run_of(item))
        else:
            output.empty_object = True
    text.feed(held, whole=source.ends_whole)
    output.add_text(text)
    if not (output.runs or output.messages or output.fatal or output.empty_object or output.announced):
        raise OutputError("no fio output in it", source=source.name, excerpt=output.first_line)
    return output


def examine(source: Source, expect: Mapping[str, Scalar]) -> tuple[list[Run], Completeness]:
    """Give everything that fio reported, latency histograms included, and the statement that read ends with.

    Raises OutputError when nothing in the source is fio's.
    """
    output = _gather(source)
    return output.runs, _statement(output, expect)


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the readings of every job and direction. Raises OutputError when nothing in the source is fio's."""
    output = _gather(source)
    shown = [run for run in output.runs if run.jobs]
    for number, run in enumerate(shown):
        yield from _readings(run, number if len(shown) > 1 else None)
    yield from facts(output.runs, output.documents)
    yield Fact("errors", output.errors())
    if output.messages:
        yield Fact("messages", output.messages)
    yield _statement(output, expect)


def _is_later_report(first: Run, second: Run) -> bool:
    """Say whether the second report is of the same run, later (--status-interval).

    It is when the same jobs' runtimes have grown by the time that passed between the reports.
    """
    if first.problems or first.ended_ms is None or second.ended_ms is None or first.container != second.container:
        return False
    if [(j.name, j.group, j.hostname) for j in first.jobs] != [(j.name, j.group, j.hostname) for j in second.jobs]:
        return False
    passed = second.ended_ms - first.ended_ms
    slack = 1100 if first.ended_ms % 1000 == 0 and second.ended_ms % 1000 == 0 else 250
    grown = [new.runtime_ms - old.runtime_ms for old, new in zip(first.jobs, second.jobs, strict=True)]
    less = any(new.total_bytes < old.total_bytes for old, new in zip(first.jobs, second.jobs, strict=True))
    if less or passed < 0 or any(step < 0 or step > passed + slack for step in grown):
        return False
    return any(step > 0 and abs(step - passed) <= max(slack, passed * 0.2) for step in grown)


def _readings(run: Run, number: int | None) -> Iterator[Reading]:
    places = [(job.name, job.hostname) for job in run.jobs]
    times = Counter(places)
    seen: dict[tuple[str, str | None], int] = {}
    for job, place in zip(run.jobs, places, strict=True):
        instance = seen.get(place, 0)
        seen[place] = instance + 1
        for transfer in job.transfers:
            if not transfer.ran:
                continue
            params: dict[str, Scalar] = {"job": job.name, "direction": transfer.direction}
            if job.hostname is not None:
                params["hostname"] = job.hostname
            if times[place] > 1:
                params["instance"] = instance
            if number is not None:
                params["run"] = number
            yield from _transfer_readings(transfer, params)


def _transfer_readings(transfer: Transfer, params: dict[str, Scalar]) -> list[Reading]:
    names: list[str] = []
    values: list[float] = []
    places: list[Params] = []

    def give(name: str, value: float | None) -> None:
        if value is not None:
            names.append(name)
            values.append(value)
            places.append(params)

    give("bandwidth", None if transfer.bytes_per_s is None else transfer.bytes_per_s / 1e6)
    give("iops", transfer.iops)
    for kind, latency in transfer.latency.items():
        give(f"{kind}_latency_mean", latency.mean_us)
        if kind != "submission" and latency.percentiles:
            names += [f"{kind}_latency"] * len(latency.percentiles)
            values += latency.percentiles.values()
            places += [{**params, "percentile": _as_printed(percentile)} for percentile in latency.percentiles]
    give("total_bytes", transfer.total_bytes)
    give("runtime", transfer.runtime_ms)
    return readings_of(names, values, map(_UNITS.__getitem__, names), places)


@lru_cache(maxsize=256)
def _as_printed(percentile: float) -> float:
    return whole if (whole := int(percentile)) == percentile else percentile


_ERRNOS = 4096
"""Linux gives errors the numbers below. Source: include/linux/err.h, MAX_ERRNO."""


def _error(job: Job) -> str:
    meaning = job.error_text or (os.strerror(job.error) if 0 < job.error < _ERRNOS else "no error that a system has")
    return f"{job.name}: error {job.error} ({meaning})"


def _statement(output: _Output, expect: Mapping[str, Scalar]) -> Completeness:
    """Judge whether fio said all that it had to say, and whether it is what was expected."""
    jobs, errors = output.jobs(), output.errors()
    found: dict[str, object] = {"jobs": len(jobs), "errors": len(errors)}
    causes: list[tuple[Status, str]] = [] if jobs else [_no_result(output)]
    causes += [(Status.FAILED, error) for error in errors]
    causes += [(Status.ABORTED, f"fio was stopped by signal {number}") for number in output.signals]
    for run in output.runs:
        causes += [(Status.INCOMPLETE, problem) for problem in run.problems]
        if run.container == "terse" and "jobs" not in expect:
            causes.append((Status.UNKNOWN, "terse output has no end mark, and no number of jobs was expected"))
    causes += [(Status.INCOMPLETE, problem) for job in jobs for problem in shortfalls(job)]
    clients = {(job.hostname, job.port) for job in jobs if job.hostname is not None}
    if clients and output.connected > len(clients):
        causes.append((Status.INCOMPLETE, f"{output.connected} clients connected, {len(clients)} reported"))
    causes += [(Status.INCOMPLETE, reason) for reason in output.begun]
    for key, wrong in differences(jobs, expect, errors=len(errors)):
        status = Status.INCOMPLETE if key == "jobs" else Status.FAILED
        causes.append((Status.UNKNOWN if wrong.startswith("not told") else status, f"{key}: {wrong}"))
    asked = announced_runtime(jobs)
    if asked is not None:
        found["asked_runtime_s"] = asked
        found["runtime_s"] = max(job.runtime_ms for job in jobs) / 1000
    worst = max((status for status, _ in causes), key=_WORST.index, default=Status.COMPLETE)
    reasons = list(dict.fromkeys(text for status, text in causes if status is worst or status is not Status.UNKNOWN))
    reason = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    return Completeness(reader=NAME, status=worst, expected=dict(expect), found=found, reason=reason)


def _no_result(output: _Output) -> tuple[Status, str]:
    if output.messages and not output.runs:
        return Status.FAILED, output.messages[0]
    if output.empty_object and not output.runs:
        return Status.FAILED, "an empty JSON object: fio wrote no result"
    if output.announced:
        return Status.INCOMPLETE, f"fio announced {output.announced} processes and reported none"
    return Status.INCOMPLETE, "no job in it"
