"""What a verdict says to people: expected, actual and why, one sentence each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.model import Code
from plumbline.validation.bounds import Bounds
from plumbline.validation.expectations import Rule

_LIMIT = {
    "valid_lower": ("≥", "valid_lower"),
    "valid_upper": ("≤", "valid_upper"),
    "ceiling": ("≤", "ceiling_limit"),
    "lower": ("≥", "lower"),
    "upper": ("≤", "upper"),
    "baseline_lower": ("≥", "baseline_lower"),
    "baseline_upper": ("≤", "baseline_upper"),
    "warn_lower": ("≥", "warn_lower"),
    "warn_upper": ("≤", "warn_upper"),
    "baseline_warn_lower": ("≥", "baseline_warn_lower"),
    "baseline_warn_upper": ("≤", "baseline_warn_upper"),
}
"""Rules that compare the value with a bound: rule id → (sign, field of Bounds)."""


def show(value: float, unit: str) -> str:
    """Write a number with its unit; the ratio's unit '1' is silent."""
    text = f"{value:.4g}" if not math.isfinite(value) or abs(value) < 1e5 else f"{value:.6g}"
    return text if unit in ("1", "") else f"{text} {unit}"


def expected_of(bounds: Bounds) -> str | None:
    """Write what a row of this kind must be, with where that comes from; None where nothing bounds it."""
    lowest = [bound for bound in (bounds.lower, bounds.baseline_lower) if bound is not None]
    highest = [bound for bound in (bounds.upper, bounds.baseline_upper) if bound is not None]
    sides = [f"≥ {show(max(lowest), bounds.unit)}"] if lowest else []
    sides += [f"≤ {show(min(highest), bounds.unit)}"] if highest else []
    return f"{' and '.join(sides)} ({source_of(bounds)})" if sides else None


def source_of(bounds: Bounds) -> str | None:
    """Name where the bounds come from; None where there are none."""
    return "; ".join(text for text in (bounds.reference_text, bounds.baseline_text) if text) or None


def expected_by(rule: Rule, bounds: Bounds, line: Any) -> str | None:
    """Write what the broken rule asks for, with its source. `line` is a row of the joined frame."""
    if rule.id == "peers":
        return f"≥ {show(line.peer_lower, '1')} of the median of its peers ({bounds.reference_text})"
    if rule.id == "unit":
        return bounds.unit
    if rule.id == "version":
        return f"benchmark version {line.benchmark_version}"
    if rule.id not in _LIMIT:
        return expected_of(bounds)
    sign, name = _LIMIT[rule.id]
    source = {
        "valid": "physically possible",
        "ceiling": bounds.ceiling_text,
        "baseline": bounds.baseline_text,
    }.get(rule.id.split("_")[0], bounds.reference_text)
    return f"{sign} {show(getattr(bounds, name), bounds.unit)} ({source})"


_MESSAGES: Mapping[Code, Callable[[Any, Bounds], str]] = {
    Code.UNPLANNED: lambda r, _: f"{r.indicator} was measured and not planned (run {r.run_id}, suite {r.suite})",
    Code.SCHEMA: lambda r, _: f"{r.indicator} is planned {r.plans:.0f} times: which value is meant can't be told",
    Code.NO_MEASUREMENT: lambda r, _: f"{r.indicator} was not measured",
    Code.DUPLICATE: lambda r, _: f"{r.indicator} was measured {r.copies:.0f} times where once was planned: none counts",
    Code.WRONG_CLUSTER: lambda r, _: f"{r.indicator} comes from cluster {r.cluster} ({r.origin})",
    Code.OLD_OUTPUT: lambda r, _: f"{r.indicator} comes from run {r.run_id}",
    Code.WRONG_HARDWARE: lambda r, _: f"{r.indicator} was computed on {r.device}",
    Code.WRONG_VERSION: lambda r, _: f"{r.indicator} was measured with benchmark version {r.measured_version}",
    Code.WRONG_PARAMETERS: lambda r, _: f"{r.indicator} was measured at {_nodes(r.measured_node_count)}",
    Code.WRONG_UNIT: lambda r, b: f"{r.indicator} is given in {r.unit}, not in {b.unit}",
    Code.NOT_A_NUMBER: lambda r, _: f"{r.indicator} is not a finite number",
    Code.IMPOSSIBLE_VALUE: lambda r, b: f"{r.indicator} of {show(r.value, b.unit)} is impossible",
    Code.ABOVE_CEILING: lambda r, b: (
        f"{r.indicator} of {show(r.value, b.unit)} is above what physics allows: formula, unit or cache is wrong"
    ),
    Code.NO_LIMITS: lambda r, b: f"{r.indicator} can't be judged: {b.problem}",
    Code.WORSE_THAN_PEERS: lambda r, b: f"only {show(r.value, b.unit)} of its peers' median",
    Code.NO_BASELINE: lambda r, b: (
        f"{r.indicator} has no reference for this hardware and no approved history "
        + (f"that is comparable: {b.otherwise}" if b.otherwise else "yet")
    ),
}


def message_of(rule: Rule, bounds: Bounds, line: Any) -> str:
    """Say in one sentence why the row got its verdict."""
    if rule.code in _MESSAGES:
        return _MESSAGES[rule.code](line, bounds)
    return f"{line.indicator} of {show(line.value, bounds.unit)} is {_off(rule, bounds, line.value)}"


def _nodes(count: float) -> str:
    """Write a node count that came through a frame, where it may be no number."""
    return f"{count:.0f} {'node' if count == 1 else 'nodes'}"


def _off(rule: Rule, bounds: Bounds, value: float) -> str:
    """Say by how much a value misses its limit, relative to the limit."""
    sign, name = _LIMIT[rule.id]
    bound = getattr(bounds, name)
    side = "below" if sign == "≥" else "above"
    what = "the warning limit" if rule.code is Code.NEAR_LIMIT else "the limit"
    source = "of approved history" if rule.id.startswith("baseline") else "of its reference"
    off = f"{abs(value - bound) / abs(bound):.1%} " if bound else ""
    return f"{off}{side} {what} {source}"
