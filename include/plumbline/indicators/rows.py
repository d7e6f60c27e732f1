"""What derivations work on: a run's expected rows and their values, and the rows they give."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Plan
from plumbline.model import Measurement, Params, Scalar, canonical_params
from plumbline.validation.readout import ExpectedRow, Readout, row_key

Key = tuple[str, str, str | None, str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A row that must exist, and its value where its inputs were measured. `source` is a row that it rests on."""

    row: ExpectedRow
    value: float | None
    unit: str
    source: Measurement | None


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A readout, indexed. A row that was measured more than once, or is not finite, has no value."""

    readout: Readout
    plan: Plan
    profile: ClusterProfile

    @cached_property
    def measured(self) -> Mapping[Key, Measurement]:
        """Row key → measurement."""
        found: dict[Key, Measurement] = {}
        twice: set[Key] = set()
        for row in self.readout.measurements:
            key = row_key(row)
            if key in found:
                twice.add(key)
            found[key] = row
        return {key: row for key, row in found.items() if key not in twice and _is_number(row.value)}

    def of(self, row: ExpectedRow) -> Measurement | None:
        """Give what was measured for an expected row."""
        return self.measured.get(row_key(row))

    def expected(self, benchmark: str, indicator: str) -> Iterator[ExpectedRow]:
        """Give the expected rows of one indicator in plan order."""
        return (r for r in self.readout.expected if r.benchmark == benchmark and r.indicator == indicator)

    @cached_property
    def launch_params(self) -> Mapping[str, Params]:
        """launch_id → the parameters that the launch was asked to use."""
        return {spec.launch_id: spec.params for spec in self.plan.launches}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@lru_cache(maxsize=65536)
def params_of(text: str) -> dict[str, Any]:
    """Read the params column; equal texts are read once. Don't change what is given."""
    data: dict[str, Any] = json.loads(text)
    return data


@lru_cache(maxsize=65536)
def with_param(text: str, key: str, value: Scalar) -> str:
    """Give params with one more, canonical."""
    return canonical_params({**params_of(text), key: value})


def per_launch(row: ExpectedRow, indicator: str, params: str | None = None) -> ExpectedRow:
    """Give the derived row that stands beside one measured row."""
    return replace(
        row, launch_id=f"derived-{row.launch_id}", indicator=indicator, params=row.params if params is None else params
    )


def per_rung(row: ExpectedRow, indicator: str, params: str | None = None) -> ExpectedRow:
    """Give the derived row that stands for all groups and repeats of a rung."""
    return replace(
        row,
        launch_id=f"derived-{row.benchmark}-n{row.node_count}",
        indicator=indicator,
        params=row.params if params is None else params,
        wave=1,
        group=None,
        node=None,
        gpu=None,
        repeat=1,
    )


def median(values: Sequence[float]) -> float | None:
    """Give the median; None of nothing."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return None
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
