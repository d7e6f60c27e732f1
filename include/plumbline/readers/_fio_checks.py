"""Whether a job did what its options say, and whether the options are those that were asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from plumbline.model import Scalar
from plumbline.readers._expectations import expected_count
from plumbline.readers._fio_model import Job, is_set, seconds, size_bytes

_DEFAULTS = {"direct": "0", "numjobs": "1", "iodepth": "1", "bs": "4096", "rw": "read"}
"""fio's own defaults. Source: fio HOWTO."""
_WORKLOADS = {
    "read": {"read"}, "randread": {"read"}, "write": {"write"}, "randwrite": {"write"}, "trim": {"trim"},
    "randtrim": {"trim"}, "rw": {"read", "write"}, "readwrite": {"read", "write"}, "randrw": {"read", "write"},
    "trimwrite": {"trim", "write"},
}  # fmt: skip
_IDLE_ENGINES = ("cpuio", "exec", "null", "filecreate", "filestat", "filedelete", "dircreate", "dirstat", "dirdelete")
_OTHER_ENDS = (
    "exitall", "exitall_on_error", "number_ios", "steadystate", "ss", "read_iolog", "replay_no_stall", "fill_device",
    "fill_fs", "zonemode", "flow", "trigger_file", "trim_percentage", "latency_target", "max_latency",
)  # fmt: skip
"""Options by which a job may end before its runtime and its size, as it was meant to."""
_REACHED = 0.98
"""A runtime from this part of the one that was asked for on counts as reached: fio ends a job between I/Os."""


def announced_runtime(jobs: Sequence[Job]) -> float | None:
    """Give the runtime in seconds that all jobs were asked for, or None when they differ or don't tell."""
    asked = {seconds(job.options["runtime"]) if "runtime" in job.options else None for job in jobs}
    return asked.pop() if len(asked) == 1 else None


def shortfalls(job: Job) -> Iterator[str]:
    """Say what a job did not do although its options ask for it and it reports no error."""
    if job.error:
        return
    name = f"{job.name} on {job.hostname}" if job.hostname else job.name
    if any(is_set(job.options.get(key)) for key in ("create_only", "verify_only")) or not is_set(
        job.options.get("stats", "1")
    ):
        return
    idle = job.options.get("ioengine", "").split(",")[0] in _IDLE_ENGINES
    ways = {transfer.direction for transfer in job.transfers if transfer.ran}
    if not ways:
        if not idle:
            yield f"{name} did no I/O"
        return
    missing = _WORKLOADS.get(job.options.get("rw", "").split(":")[0], set()) - ways
    mixed = any(key.startswith(("rwmix", "trim_", "unified_rw")) for key in job.options) or "mixed" in ways
    if missing and not mixed and not idle:
        yield f"{name} was asked for {job.options['rw']} and did no {' or '.join(sorted(missing))}"
    if short := _runtime_shortfall(job):
        yield f"{name} {short}"


def _runtime_shortfall(job: Job) -> str | None:
    """Say that a job stopped before its runtime although its size was not done: an interrupted run has error 0."""
    asked = seconds(job.options.get("runtime", ""))
    if not asked or job.steady or job.runtime_ms >= asked * 1000 * _REACHED:
        return None
    if any(is_set(job.options.get(key)) for key in _OTHER_ENDS):
        return None
    if is_set(job.options.get("time_based")) or not _may_have_finished(job):
        return f"ran {job.runtime_ms / 1000:.3f} s of the {asked:g} s asked for"
    return None


def _may_have_finished(job: Job) -> bool:
    """Say whether the job may have ended because its size was done, as far as options and bytes tell."""
    amount = size_bytes(job.options.get("io_size", job.options.get("size", "")))
    if amount is None or "bssplit" in job.options:
        return True
    loops = _whole(job.options.get("loops")) or 1
    block = size_bytes(job.options.get("bs", "4096").partition(",")[0].rpartition("-")[2]) or 0
    if job.total_bytes < amount * 0.99 - block:
        return False
    alone = job.total_run_ms is not None and job.total_run_ms < 1.5 * job.runtime_ms
    # More than the size: only time_based goes on, which fio does not print when it was given as a flag.
    return not alone or "verify" in job.options or job.total_bytes <= amount * loops * 1.01 + block


def differences(jobs: Sequence[Job], expect: Mapping[str, Scalar], *, errors: int = 0) -> Iterator[tuple[str, str]]:
    """Give (key, what is wrong) for every expectation that the jobs don't meet. 'not told …': nobody can say.

    Raises ConfigError for a count that is none.
    """
    for key, wanted in expect.items():
        if key in ("jobs", "errors"):
            found = len(jobs) if key == "jobs" else errors
            if expected_count(expect, key) not in (None, found):
                yield key, f"{found} found, {wanted} expected"
        elif wrong := _option_difference(key, str(wanted), jobs):
            yield key, wrong


def _option_difference(key: str, wanted: str, jobs: Sequence[Job]) -> str | None:
    option = "runtime" if key == "runtime_s" else key
    untold = None
    for job in jobs:
        given = _given(job, option)
        if given is None and option == "runtime" and job.runtime_ms:
            asked = seconds(wanted)
            if asked and job.runtime_ms < asked * 1000 * _REACHED:
                return f"{job.name} ran {job.runtime_ms / 1000:.3f} s, {asked:g} s expected"
        elif given is None:
            untold = f"not told by the output of {job.name}"
        elif not _same(option, given, wanted):
            return f"{job.name} ran with {given or 'none'}, {wanted} expected"
    return untold


def _given(job: Job, option: str) -> str | None:
    """Give an option of a job, fio's default where the output lists options, or None where it doesn't tell."""
    if option == "direct" and "direct" not in job.options and "buffered" in job.options:
        return "0" if is_set(job.options["buffered"]) else "1"
    if option in job.options:
        return job.options[option]
    if not job.options_whole:
        return None
    return _DEFAULTS.get(option, "" if option in ("runtime", "size") else None)


def _same(option: str, given: str, wanted: str) -> bool:
    if option == "direct":
        return is_set(given) == is_set({"True": "1", "False": "0"}.get(wanted, wanted))
    if option == "runtime":
        return seconds(given) is not None and seconds(given) == seconds(wanted)
    if option in ("bs", "size"):
        sizes = {size_bytes(part) for part in given.split(",")}
        return sizes == {size_bytes(wanted)} and None not in sizes
    if option in ("numjobs", "iodepth"):
        return _whole(given) is not None and _whole(given) == _whole(wanted)
    if option == "rw":
        return given.partition(":")[0].replace("readwrite", "rw") == wanted.replace("readwrite", "rw")
    return given == wanted


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,12}", text.strip()) else None
