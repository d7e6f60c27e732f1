"""What one fio run reported, whatever format it was printed in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from plumbline.errors import ConfigError
from plumbline.units import parse_bytes

DIRECTIONS = ("read", "write", "trim", "mixed")
"""`mixed` is the total of the others: fio prints it with unified_rw_reporting."""
ALIASES = {"blocksize": "bs", "readwrite": "rw", "timeout": "runtime", "io_limit": "io_size"}
"""fio's other names of the options that are read here. Source: fio options.c, `.alias`."""

_TIME = re.compile(r"([\d.]{1,18})\s*(us|usec|ms|msec|s|m|h|d)?")
_SECONDS = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One kind of latency of one direction, in microseconds.

    `percentiles` maps 99.0 to microseconds; `bins` maps the nanoseconds of a histogram bucket to its count (json+).
    """

    mean_us: float | None = None
    percentiles: Mapping[float, float] = field(default_factory=dict)
    bins: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What one job did in one direction. None where fio printed nothing or 0 for 'none'.

    `latency` has the keys completion, total and submission. `bw_kib` is the KiB/s as printed, for sums.
    """

    direction: str
    bytes_per_s: float | None = None
    bw_kib: float | None = None
    iops: float | None = None
    runtime_ms: float | None = None
    total_bytes: int | None = None
    total_ios: int | None = None
    latency: Mapping[str, Latency] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        """Whether any I/O was done in this direction."""
        return bool(self.runtime_ms or self.total_bytes or self.total_ios or self.bytes_per_s or self.iops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One entry of fio's report: one job, or several reported as one (`members`, where known).

    `options` holds the global and the job's own options as fio printed them, aliases resolved; it is empty where
    the format does not print them.
    """

    name: str
    group: int | None = None
    hostname: str | None = None
    port: int | None = None
    pid: int | None = None
    members: int | None = None
    error: int = 0
    error_text: str = ""
    transfers: tuple[Transfer, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    options_whole: bool = False
    """True: every option that was given is in `options`, so fio's default holds for the rest."""
    total_run_ms: float | None = None
    """Time of all members together; their number is this by the runtime."""
    elapsed_s: float | None = None
    steady: bool = False
    """A steady-state criterion was attained: the job ended before its runtime on purpose."""

    def transfer(self, direction: str) -> Transfer | None:
        """Give what the job did in a direction, or None when fio reports nothing of it."""
        return next((item for item in self.transfers if item.direction == direction), None)

    @property
    def runtime_ms(self) -> float:
        """The longest runtime of any direction, 0 when nothing ran."""
        return max((item.runtime_ms or 0.0 for item in self.transfers), default=0.0)

    @property
    def total_bytes(self) -> int:
        """Bytes of all directions."""
        return sum(item.total_bytes or 0 for item in self.transfers if item.direction != "mixed") or max(
            (item.total_bytes or 0 for item in self.transfers), default=0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One report of one fio run.

    `container` is jobs, client_stats, text or terse. `all_clients` is the entry in which fio adds up the other
    entries: never part of `jobs`. `problems` says what is missing of the report itself.
    """

    container: str
    version: str | None = None
    ended_ms: float | None = None
    jobs: tuple[Job, ...] = ()
    all_clients: Job | None = None
    problems: tuple[str, ...] = ()
    bytes_unit: str | None = None
    """What JSON counted io_bytes in: B, or KiB before fio 2.21."""


def seconds(text: str) -> float | None:
    """Read a time option ('10', '10s', '2m', '500ms') in seconds, or None when it is none."""
    match = _TIME.fullmatch(text.strip().lower())
    if match is None:
        return None
    try:
        return float(match[1]) * _SECONDS[match[2] or "s"]
    except ValueError:
        return None


def size_bytes(text: str) -> int | None:
    """Read a size option ('4k', '1M', '4096M') in bytes, or None when it is none (percent, list, expression)."""
    try:
        return parse_bytes(text)
    except ConfigError:
        return None


def is_set(text: str | None) -> bool:
    """Say whether a flag option is on: fio prints a flag without a value as ''."""
    return text is not None and text.strip().lower() not in ("0", "false", "no")
