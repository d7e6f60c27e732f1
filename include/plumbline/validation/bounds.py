"""Everything that one kind of row is compared with: what physics allows, what is expected, what history says.

A physical reference is plausibility on its good side (beyond it is INVALID) and an expectation on its bad side. It
doesn't stand in for a baseline: a row that has nothing else still says that no baseline exists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plumbline.amounts import plural
from plumbline.analysis.baseline import BaselineLimit
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError
from plumbline.indicators import indicator
from plumbline.model import Better, Indicator, Params, Reference
from plumbline.references.ceilings import TOLERANCE
from plumbline.references.reference import ReferenceSet
from plumbline.units import convert
from plumbline.validation.plausibility import Physics, physical_ceiling
from plumbline.validation.sealed_limits import MeasuredOtherwise

BOUNDS = (
    "valid_lower", "valid_upper", "ceiling", "ceiling_limit", "lower", "upper", "warn_lower", "warn_upper", "baseline",
    "baseline_lower", "baseline_upper", "baseline_warn_lower", "baseline_warn_upper",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind:
    """What bounds are looked up by."""

    benchmark: str
    benchmark_version: str
    indicator: str
    node_count: int
    params: str


@dataclass(slots=True, kw_only=True)
class Bounds:
    """The bounds of one kind of row; None is open. `problem` says why its limits can't be trusted."""

    unit: str
    better: Better
    judged: bool
    valid_lower: float | None = None
    valid_upper: float | None = None
    ceiling: float | None = None
    ceiling_limit: float | None = None
    ceiling_text: str = ""
    lower: float | None = None
    upper: float | None = None
    warn_lower: float | None = None
    warn_upper: float | None = None
    baseline: float | None = None
    baseline_lower: float | None = None
    baseline_upper: float | None = None
    baseline_warn_lower: float | None = None
    baseline_warn_upper: float | None = None
    reference_text: str = ""
    baseline_text: str = ""
    otherwise: str = ""
    """Why approved history holds nothing for this row, where it measured the benchmark otherwise."""
    has_expectation: bool = False
    problem: str = ""

    @property
    def needs_baseline(self) -> bool:
        """Whether nothing but physics bounds a row that ought to be judged."""
        return self.judged and self.better is not Better.NEITHER and not self.has_expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds are made from. `references` is None where they could not be read."""

    profile: ClusterProfile
    references: ReferenceSet | None
    baseline: Mapping[tuple[str, str, str, int, str], BaselineLimit]
    concurrency: Mapping[tuple[str, int], str]
    """(benchmark, node_count) → isolated or full."""
    physics: Physics
    param_keys: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """(benchmark, indicator) → every parameter that its rows have."""
    otherwise: Sequence[MeasuredOtherwise] = ()


def bounds_of(kind: RowKind, limits: Limits) -> Bounds:
    """Give the bounds of one kind of row. Never raises: what can't be looked up is the bounds' `problem`."""
    try:
        meant = indicator(kind.benchmark, kind.indicator)
    except ConfigError as error:
        return Bounds(unit="", better=Better.NEITHER, judged=True, problem=str(error))
    found = Bounds(
        unit=meant.unit,
        better=meant.better,
        judged=meant.judged,
        valid_lower=meant.valid_lower,
        valid_upper=meant.valid_upper,
    )
    params: dict[str, Any] = json.loads(kind.params)
    try:
        _add_ceiling(found, kind, meant, params, limits)
        _add_references(found, kind, params, limits)
        _add_baseline(found, kind, limits)
    except ConfigError as error:
        found.problem = str(error)
    return found


def _add_ceiling(found: Bounds, kind: RowKind, meant: Indicator, params: Params, limits: Limits) -> None:
    known = physical_ceiling(kind.benchmark, meant, kind.node_count, params, limits.physics)
    if known is not None:
        found.ceiling, found.ceiling_text = known
        found.ceiling_limit = found.ceiling * TOLERANCE


def _add_references(found: Bounds, kind: RowKind, params: Params, limits: Limits) -> None:
    if limits.references is None:
        found.problem = "the references could not be read: no number can be judged"
        return
    for physical in (True, False):
        item = limits.references.find(
            benchmark=kind.benchmark,
            benchmark_version=kind.benchmark_version,
            indicator=kind.indicator,
            node_count=kind.node_count,
            concurrency=limits.concurrency.get((kind.benchmark, kind.node_count), "isolated"),
            fabric=limits.profile.fabric.name,
            params=params,
            physical=physical,
        )
        if item is not None and physical:
            _add_physical(found, item)
        elif item is not None:
            _add_expectation(found, item)


def _add_physical(found: Bounds, item: Reference) -> None:
    text = _cite(item)
    found.lower, found.upper, found.reference_text = item.lower, item.upper, text
    found.warn_lower, found.warn_upper = item.warn_lower, item.warn_upper
    if found.better is Better.HIGHER and item.upper is not None:
        found.upper = None
        if found.ceiling_limit is None or item.upper < found.ceiling_limit:
            found.ceiling, found.ceiling_limit, found.ceiling_text = item.upper, item.upper, text
    if found.better is Better.LOWER and item.lower is not None:
        found.lower = None
        found.valid_lower = max(item.lower, found.valid_lower if found.valid_lower is not None else item.lower)


def _add_expectation(found: Bounds, item: Reference) -> None:
    """Let an expectation take over from physical bounds, side by side: its open side keeps the physical bound."""
    found.has_expectation = True
    found.reference_text = _cite(item)
    for name in ("lower", "upper", "warn_lower", "warn_upper"):
        if getattr(item, name) is not None:
            setattr(found, name, getattr(item, name))


def _add_baseline(found: Bounds, kind: RowKind, limits: Limits) -> None:
    key = (kind.benchmark, kind.benchmark_version, kind.indicator, kind.node_count, kind.params)
    limit = limits.baseline.get(key)
    if limit is None:
        found.otherwise = "; ".join(
            f"{item.reason} ({plural(len(item.runs), 'run')})"
            for item in limits.otherwise
            if item.holds_for(kind.benchmark, kind.indicator)
        )
        return

    def in_unit(value: float | None) -> float | None:
        return None if value is None else convert(value, limit.unit, found.unit)

    found.baseline = in_unit(limit.value)
    found.baseline_lower, found.baseline_upper = in_unit(limit.lower), in_unit(limit.upper)
    found.baseline_warn_lower, found.baseline_warn_upper = in_unit(limit.warn_lower), in_unit(limit.warn_upper)
    found.baseline_text = limit.source
    bound = {Better.HIGHER: limit.lower, Better.LOWER: limit.upper}.get(found.better)
    found.has_expectation = found.has_expectation or bound is not None


def _cite(item: Reference) -> str:
    note = f"; {item.note}" if item.note else ""
    return f"{item.kind} reference for {item.hardware}: {item.source}, {item.date}{note}"


def unmatchable(references: ReferenceSet, param_keys: Mapping[tuple[str, str], frozenset[str]]) -> Sequence[str]:
    """Name the references that ask for a parameter which no row of their indicator has: they could never bind."""
    problems = []
    for item in references.references:
        keys = param_keys.get((item.benchmark, item.indicator))
        for key in item.match:
            if keys is not None and key not in keys:
                known = ", ".join(sorted(keys)) or "none"
                problems.append(
                    f"the reference for {item.benchmark}/{item.indicator} asks for parameter {key!r}, which no row has "
                    f"(known: {known})"
                )
    return problems
