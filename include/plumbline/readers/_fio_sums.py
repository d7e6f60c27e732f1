"""Whether the numbers of one direction of a job agree with one another: each follows from two others.

fio computes `bw_bytes`, `bw` and `iops` from bytes, I/Os and runtime when it prints (stat.c, `add_ddir_status_json`):
a report in which they differ was not printed by fio as it stands. Bytes are of I/Os that ended and `total_ios` counts
those that began, so these two differ by what was under way when the ramp and the job ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.readers._fio_model import DIRECTIONS, Job, Transfer, is_set, size_bytes

_ROUNDING = 0.01
"""Rates are cut to whole numbers, which matters where they are small; runtimes to whole milliseconds."""
_UNITS_CUT = 1.5
_OTHER_SIZES = (
    "bsrange",
    "bssplit",
    "bs_unaligned",
    "bs_is_seq_rand",
    "zonemode",
    "zonesize",
    "zonerange",
    "read_iolog",
)
"""Options with which not every I/O has the size that `bs` says."""


def contradictions(entry: Mapping[str, Any], job: Job) -> Iterator[str]:
    """Say which numbers of an entry contradict one another. `job` is the entry as it was read."""
    for way in DIRECTIONS:
        data, transfer = entry.get(way), job.transfer(way)
        if isinstance(data, dict) and transfer is not None:
            name = f"{job.name} on {job.hostname}" if job.hostname else job.name
            yield from (f"{name}, {way}: {wrong}" for wrong in _rates(data, transfer))
            yield from (f"{name}, {way}: {wrong}" for wrong in _block_sizes(data, transfer, job))


def _rates(data: Mapping[str, Any], transfer: Transfer) -> Iterator[str]:
    """Hold bytes and I/Os by the runtime against the rates."""
    total, ios, runtime = transfer.total_bytes, transfer.total_ios, transfer.runtime_ms
    kib = _number(data, "io_kbytes")
    if kib is not None and total is not None and not _agree(kib, total / 1024):
        yield f"io_bytes is {total}, io_kbytes {kib:.0f}"
    if not runtime:
        return
    if total is not None:
        by_time = total * 1000 / runtime
        for key, rate, scale in (
            ("bw_bytes", _number(data, "bw_bytes"), 1.0),
            ("bw", transfer.bw_kib, 1024.0),
        ):
            if rate is not None and not _agree(rate, by_time / scale):
                yield f"{total} bytes in {runtime:.0f} ms give {key} {by_time / scale:.0f}, printed is {rate:.0f}"
    if ios is not None and transfer.iops is not None and not _agree(transfer.iops, ios * 1000 / runtime):
        yield f"{ios} I/Os in {runtime:.0f} ms give {ios * 1000 / runtime:.1f} IOPS, printed is {transfer.iops:.1f}"


def _block_sizes(data: Mapping[str, Any], transfer: Transfer, job: Job) -> Iterator[str]:
    """Hold bytes against I/Os of the block size, where all have the same."""
    total, ios, block = transfer.total_bytes, transfer.total_ios, _block(transfer, job)
    if total is None or ios is None or block is None:
        return
    members = size_bytes(job.options.get("numjobs", "1")) or 1
    under_way = block * (size_bytes(job.options.get("iodepth", "1")) or 1) * members
    whole = not _number(data, "short_ios") and not _number(data, "drop_ios") and not job.error
    most, least = ios * block * (1 + _ROUNDING) + under_way, ios * block * (1 - _ROUNDING) - under_way
    if total > most or (whole and total < least):
        yield f"{ios} I/Os of {block} bytes are {ios * block} bytes, io_bytes is {total}"


def _block(transfer: Transfer, job: Job) -> int | None:
    """Give the one size of all I/Os, or None where there are several or nobody can say."""
    options = job.options
    if transfer.direction not in ("read", "write") or "bs" not in options or is_set(options.get("group_reporting")):
        return None  # in a group the options are those of its first job
    if any(key in options for key in _OTHER_SIZES) or any("verify" in key for key in options):
        return None
    sizes = options["bs"].split(",")
    return size_bytes(sizes[0] if len(sizes) == 1 or transfer.direction == "read" else sizes[1])


def _number(data: Mapping[str, Any], key: str) -> float | None:
    """Give a number as printed, infinity for one that fio can't have counted, None where there is none."""
    value = data.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1 << 63 else math.inf


def _agree(printed: float, computed: float) -> bool:
    return math.isfinite(printed) and abs(printed - computed) <= _UNITS_CUT + _ROUNDING * max(printed, computed)
