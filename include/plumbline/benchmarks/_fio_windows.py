"""What several fio clients did at the same time: pure functions on bandwidth logs and histograms.

fio's JSON tells exactly how much a client moved and for how long; its bandwidth log tells when. A log entry holds the
mean rate of the interval before it, and an interval without a completed I/O has no entry (fio stat.c,
`__add_samples`), so entries are the shape of the transfer and never its amount.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plumbline.errors import OutputError
from plumbline.sums import added

LOG_MS = 100.0
"""Interval of the bandwidth log that the clients are asked for."""
_ENTRY = re.compile(r"\s*(\d{1,16}), (\d{1,18}), ([012]), \d+(?:, .*)?")
_DIFFERS = 0.05
"""Log and report may differ by this part: rates are rounded, and an interval may be a millisecond short."""
_UNLOGGED_MS = 4 * LOG_MS
"""The log may miss what was moved in so much time: fio does not log the interval in which a job ends, nor one in which
no I/O ended. Measured: up to 276 ms of a job of 1 s on a busy machine of two cores, 102 ms of jobs of 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One client in one job: what it moved, and when.

    `entries` are (epoch ms at the end of an interval, KiB/s in it), ascending.
    """

    name: str
    total_bytes: int
    total_ios: int
    runtime_ms: float
    reported_ms: float
    """Epoch ms at which fio wrote its report: the I/O had ended by then."""
    entries: tuple[tuple[float, float], ...]

    @property
    def begin_ms(self) -> float:
        """Epoch ms at which the measured I/O began: one interval before the first entry, or earlier."""
        return min(self.entries[0][0] - LOG_MS, self.reported_ms - self.runtime_ms)

    @property
    def end_ms(self) -> float:
        """Epoch ms at which the measured I/O ended."""
        return self.begin_ms + self.runtime_ms

    def share(self, begin_ms: float, end_ms: float) -> float:
        """Give the part of the transfer, 0 to 1, that fell into a time.

        What the entries don't account for is taken as spread evenly over the time that no entry covers: the interval
        in which a job ends is never logged.
        """
        begin_ms, end_ms = max(begin_ms, self.begin_ms), min(end_ms, self.end_ms)
        inside = logged = covered = covered_inside = 0.0
        before = self.begin_ms
        for at, rate in self.entries:
            first, last = max(at - LOG_MS, before), min(at, self.end_ms)
            before = max(at, before)
            if last <= first:
                continue
            amount, overlap = rate * 1.024 * (last - first), max(0.0, min(last, end_ms) - max(first, begin_ms))
            logged, covered = logged + amount, covered + last - first
            inside, covered_inside = inside + amount * overlap / (last - first), covered_inside + overlap
        rest, uncovered = max(0.0, self.total_bytes - logged), self.runtime_ms - covered
        if uncovered > 0:
            inside += rest * max(0.0, end_ms - begin_ms - covered_inside) / uncovered
        return min(1.0, inside / max(logged, self.total_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all clients of a job did in the time that they have in common."""

    window_s: float
    bytes_per_s: float
    ios_per_s: float
    per_client: Mapping[str, float]
    """Client name → bytes/s in the window."""


def parse_log(text: str, source: str) -> tuple[tuple[float, float], ...]:
    """Read a bandwidth log: (epoch ms, KiB/s) of every whole line. Raises OutputError for a line that is none."""
    entries = []
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    else:
        raise OutputError("the bandwidth log stops in a line", source=source, line=len(lines), excerpt=lines[-1])
    for number, line in enumerate(lines, 1):
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise OutputError("not an entry of a bandwidth log", source=source, line=number, excerpt=line)
        entries.append((float(match[1]), float(match[2])))
    if not entries:
        raise OutputError("the bandwidth log is empty", source=source)
    if entries != sorted(entries, key=lambda entry: entry[0]):
        raise OutputError("the bandwidth log goes back in time", source=source)
    return tuple(entries)


def contradiction(activity: Activity) -> str | None:
    """Say that a log does not belong to its report, or None: another amount, or another time.

    An entry tells of one interval at least, and at most of all the time since the entry before it: what was moved
    lies between the two sums.
    """
    entries = activity.entries
    befores = [entries[0][0] - LOG_MS, *(at for at, _ in entries)]
    least = sum(rate for _, rate in entries) * 1.024 * LOG_MS
    most = sum(rate * max(at - before, LOG_MS) for (at, rate), before in zip(entries, befores, strict=False)) * 1.024
    unlogged = _DIFFERS + _UNLOGGED_MS / activity.runtime_ms
    if least > activity.total_bytes * (1 + _DIFFERS) or most < activity.total_bytes * (1 - unlogged):
        return f"{activity.name}: the log tells {least:.0f} to {most:.0f} bytes, the report {activity.total_bytes}"
    latest = entries[-1][0]
    if latest > activity.reported_ms + LOG_MS or latest - activity.begin_ms > activity.runtime_ms + 10 * LOG_MS:
        return f"{activity.name}: the log is of another time than the report"
    return None


def common(activities: Sequence[Activity]) -> Common | None:
    """Give what the clients did while all of them ran, or None when they were never all running."""
    begin = max(activity.begin_ms for activity in activities)
    end = min(activity.end_ms for activity in activities)
    window_s = (end - begin) / 1000
    if window_s <= 0:
        return None
    shares = {activity.name: activity.share(begin, end) for activity in activities}
    rates = {activity.name: activity.total_bytes * shares[activity.name] / window_s for activity in activities}
    return Common(
        window_s=window_s,
        bytes_per_s=added(rates.values()),
        ios_per_s=added(activity.total_ios * shares[activity.name] for activity in activities) / window_s,
        per_client=rates,
    )


def merged_percentile(histograms: Sequence[Mapping[int, int]], percentile: float) -> float | None:
    """Give a percentile of several histograms together, in the unit of their buckets; None when they are empty.

    Adding counts bucket by bucket is exact: the result is what one process that saw all I/Os would have printed. The
    rule is fio's own: the first bucket at which the count reaches the percentile. Source: fio stat.c,
    `calc_clat_percentiles`.
    """
    counts: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            counts[bucket] = counts.get(bucket, 0) + count
    total = sum(counts.values())
    needed = math.ceil(percentile / 100 * total - 1e-9)
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= needed:
            return float(bucket)
    return None
