"""What a tool says of its own times, held against the record of its launch.

A program may print an earlier launch's output and exit at once: every number is then good, and none is this launch's.
Only the times give it away. Moments must lie within the launch, and work can't take longer than the launch did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from plumbline.benchmarks.benchmark import Finding
from plumbline.model import Code, RunRecord

SAME_CLOCK = timedelta(seconds=5)
"""Slack where the tool ran on the machine whose clock the record has: it is for a clock that is set meanwhile, and as
wide as that of the record's own two clocks (validation.record_checks)."""
OTHER_CLOCK = timedelta(seconds=120)
"""Slack where a launcher elsewhere wrote the record: nodes' clocks may differ so much, as record_checks assumes too."""
_ROUNDING_S = 0.1
_ROUNDING = 0.01
"""Durations that a tool prints are rounded, and taken by another clock than the record's; no launch is this short."""


def wrong_moments(record: RunRecord, moments: Iterable[tuple[str, float]]) -> Iterator[Finding]:
    """Give OLD_OUTPUT for the moment that lies farthest outside the launch. `moments` are (what, epoch seconds)."""
    slack = SAME_CLOCK if _has_tools_clock(record) else OTHER_CLOCK
    earliest = datetime.fromisoformat(record.started_at).timestamp() - slack.total_seconds()
    latest = datetime.fromisoformat(record.ended_at).timestamp() + slack.total_seconds()
    outside = [(max(earliest - at, at - latest) if math.isfinite(at) else math.inf, what, at) for what, at in moments]
    off, what, at = max(outside, default=(0.0, "", 0.0))
    if off > 0:
        message = (
            f"{what} {_shown(at)}, but the launch ran from {record.started_at} to {record.ended_at}: this is another "
            f"launch's output, or the clock was {off + slack.total_seconds():.0f} s off"
        )
        yield Finding(code=Code.OLD_OUTPUT, message=message)


def wrong_duration(record: RunRecord, what: str, took_s: float, indicator: str | None = None) -> Iterator[Finding]:
    """Give OLD_OUTPUT where `what` took longer than the launch. `took_s` is the least that the tool's words allow."""
    if took_s > record.duration_s * (1 + _ROUNDING) + _ROUNDING_S:
        message = (
            f"{what} took {took_s:.3g} s by the tool's own words, the whole launch {record.duration_s:.3g} s: this is "
            "another launch's output"
        )
        yield Finding(code=Code.OLD_OUTPUT, message=message, indicator=indicator)


def _has_tools_clock(record: RunRecord) -> bool:
    """Say whether the machine that wrote the record also ran the tool: a launcher of pods lists hardware by node."""
    return len(record.hosts) == 1 and "nodes" not in record.hardware


def _shown(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s after 1970"
