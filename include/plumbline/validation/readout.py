"""From sealed evidence to rows: which attempt answers each launch, what it yielded, what it should have yielded.

Plausibility comes before performance: a record that is not this launch's, is older than the run, or whose raw files
are not those that the record lists, never yields a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.model import Measurement, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow:
    """One row that the plan says must exist; its key is (launch_id, indicator, node, gpu, params)."""

    launch_id: str
    benchmark: str
    benchmark_version: str
    indicator: str
    node_count: int
    wave: int
    group: int | None
    node: str | None
    gpu: str | None
    repeat: int
    params: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSummary:
    """How one launch went, for the report and for tracking."""

    launch_id: str
    benchmark: str
    node_count: int
    wave: int
    group: int
    repeat: int
    nodes: tuple[str, ...]
    attempts: int
    outcome: str | None
    """None where no record came back."""
    exit_code: int | None
    reason: str
    started_at: str | None
    duration_s: float | None
    argv: tuple[str, ...]
    timeout_s: float
    raw_dir: str | None
    hardware: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    snapshots: Mapping[str, Any] = field(default_factory=dict)
    completeness: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """All that the evidence of a run says, before limits are applied.

    `verdicts` holds what needs no limit: missing records, failed launches, unreadable output, findings, gaps.
    """

    measurements: tuple[Measurement, ...]
    expected: tuple[ExpectedRow, ...]
    verdicts: tuple[Verdict, ...]
    launches: tuple[LaunchSummary, ...]


def row_key(row: ExpectedRow | Measurement) -> tuple[str, str, str | None, str | None, str]:
    """Give what identifies a row within a run."""
    return (row.launch_id, row.indicator, row.node, row.gpu, row.params)


def duplicates(rows: Iterable[Measurement]) -> list[Measurement]:
    """Give the rows whose key was seen before: a number that is there twice counts as no number."""
    seen: set[Any] = set()
    found = []
    for row in rows:
        key = row_key(row)
        if key in seen:
            found.append(row)
        seen.add(key)
    return found
