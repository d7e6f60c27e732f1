"""Facts of fio reports: versions, counts, sums of what was printed, options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from plumbline.readers._fio_checks import announced_runtime
from plumbline.readers._fio_model import DIRECTIONS, Job, Run, Transfer
from plumbline.readers.reading import Fact
from plumbline.sums import added

_SHOWN_OPTIONS = (
    "rw", "bs", "bsrange", "bssplit", "size", "filesize", "io_size", "iodepth", "direct", "buffered", "ioengine",
    "runtime", "time_based", "ramp_time", "startdelay", "numjobs", "nrfiles", "loops", "rate", "rate_iops", "rwmixread",
    "rwmixwrite", "fsync", "fdatasync", "end_fsync", "sync", "thread", "invalidate", "norandommap", "randrepeat",
    "group_reporting", "lat_percentiles", "clat_percentiles", "percentile_list", "log_avg_msec", "stonewall",
    "directory", "filename",
)  # fmt: skip
"""Options that say how the measurement was made. Others may hold secrets (http_s3_key, …)."""


def facts(runs: Sequence[Run], documents: int) -> Iterator[Fact]:
    """Give the facts of all runs of one output. Sums are over entries, not over entries that are sums themselves."""
    for name, values in (
        ("fio_version", [run.version for run in runs]),
        ("container", [run.container for run in runs]),
        ("io_bytes_unit", [run.bytes_unit for run in runs]),
    ):
        if different := list(dict.fromkeys(value for value in values if value)):
            yield Fact(name, different[0] if len(different) == 1 else different)
    yield Fact("json_docs", documents)
    if runs:
        yield from _job_facts(
            [job for run in runs for job in run.jobs], [run.all_clients for run in runs if run.all_clients is not None]
        )


def _job_facts(jobs: Sequence[Job], everyone: Sequence[Job]) -> Iterator[Fact]:
    yield Fact("n_jobs", len(jobs))
    yield Fact("n_job_entries", len(jobs) + len(everyone))
    yield Fact("has_all_clients_entry", bool(everyone))
    if jobs:
        yield Fact("first_job", _entry(jobs[0]))
    if everyone:
        yield Fact("all_clients", _entry(everyone[0]))
    for way in DIRECTIONS:
        if way in ("read", "write") or any((t := job.transfer(way)) and t.ran for job in jobs):
            yield from _sums(way, jobs, everyone)
    if options := _options(jobs):
        yield Fact("options", options)
    asked = announced_runtime(jobs) if jobs else None
    if asked is not None:
        yield Fact("asked_runtime_s", asked)


def _entry(job: Job) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": job.name}
    for transfer in job.transfers:
        completion = transfer.latency.get("completion")
        entry[f"{transfer.direction}_bw"] = transfer.bw_kib
        entry[f"{transfer.direction}_iops"] = transfer.iops
        entry[f"{transfer.direction}_clat_p99_us"] = completion.percentiles.get(99.0) if completion else None
    return {key: _short(value) for key, value in entry.items() if value is not None}


def _sums(way: str, jobs: Sequence[Job], everyone: Sequence[Job]) -> Iterator[Fact]:
    transfers = [transfer for job in jobs if (transfer := job.transfer(way)) is not None]

    def values(pick: Callable[[Transfer], float | None]) -> list[float]:
        return [value for transfer in transfers if (value := pick(transfer)) is not None]

    if rates := values(lambda t: t.bw_kib):
        yield Fact(f"{way}_sum_bw_KiBps", _short(added(rates)))
        yield Fact(f"{way}_sum_bw_MiBps", added(rates) / 1024)
    if iops := values(lambda t: t.iops if t.ran else 0.0):
        yield Fact(f"{way}_sum_iops", added(iops))
    if runtimes := values(lambda t: t.runtime_ms):
        yield Fact(f"{way}_max_runtime_ms", _short(max(runtimes)))
    if ios := values(lambda t: t.total_ios):
        yield Fact(f"{way}_total_ios", _short(sum(ios)))
    for job in everyone:
        if (transfer := job.transfer(way)) is not None:
            if transfer.bw_kib is not None:
                yield Fact(f"{way}_all_clients_bw_KiBps", _short(transfer.bw_kib))
            if transfer.iops is not None:
                yield Fact(f"{way}_all_clients_iops", transfer.iops)


def _options(jobs: Sequence[Job]) -> dict[str, Any]:
    """Give the allowed options: one value where all jobs agree, else a list in the order of the jobs."""
    options: dict[str, Any] = {}
    known = {key for job in jobs for key in job.options}
    for key in _SHOWN_OPTIONS:
        if key not in known:
            continue
        given = [job.options.get(key) for job in jobs]
        if any(value is not None for value in given):
            options[key] = given[0] if len(set(given)) == 1 else given
    return options


def _short(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value == int(value) else value
