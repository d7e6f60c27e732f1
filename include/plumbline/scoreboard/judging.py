"""The judge on sheets: the rules and limits of `validation`, on arrays of many nights, for every row at once.

great-expectations takes seconds a night and a scoreboard has a hundred thousand nights. Rules (expectations.RULES),
bounds (bounds.bounds_of), ceilings and what peers may scatter come from the product; here they are only compared.
Tests hold every row's verdict equal to the real judge's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plumbline.analysis.baseline import BaselineLimit
from plumbline.analysis.neighbours import spread_limit
from plumbline.indicators import indicator
from plumbline.indicators.definitions import BUS_HEADLINE, SHARE_OF_PEERS
from plumbline.indicators.rows import params_of
from plumbline.references.ceilings import TOLERANCE
from plumbline.references.reference import ReferenceSet
from plumbline.simulation.layout import Layout
from plumbline.simulation.sheets import Kind, Sheet
from plumbline.validation.bounds import BOUNDS, Bounds, Limits, RowKind, bounds_of
from plumbline.validation.expectations import RULES, Rule
from plumbline.validation.judgement import _limits as limits_of
from plumbline.validation.plausibility import physical_ceiling
from plumbline.validation.readout import Readout

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NOTHING = Readout(measurements=(), expected=(), verdicts=(), launches=())
VALUE_RULES: tuple[Rule, ...] = tuple(
    rule
    for rule in RULES
    if rule.id in ("measured", "limits", "baseline") or (rule.check == "at_least" and "value" in (rule.a, rule.b))
)
"""The rules that a number can break; the others are on what a row says of itself, which a sheet gets right by form."""


@dataclass(frozen=True, kw_only=True)
class JudgedSheet:
    """The verdicts of one sheet's rows: `failing` is rule id → [T, M, K] for rules that some row breaks."""

    sheet: Sheet
    failing: Mapping[str, NDArray[Any]]

    def cause(self) -> NDArray[Any]:
        """Give the index in VALUE_RULES of the first rule that each row breaks, -1 for none: [T, M, K]."""
        import numpy as np

        found = np.full(self.sheet.values.shape, -1)
        for index in range(len(VALUE_RULES) - 1, -1, -1):
            if (mask := self.failing.get(VALUE_RULES[index].id)) is not None:
                found[mask] = index
        return found


class Judge:
    """The limits of one cluster, ready for any number of its nights."""

    def __init__(
        self, layout: Layout, references: ReferenceSet, baseline: Sequence[BaselineLimit], sheets: Sequence[Sheet]
    ) -> None:
        """Look up the bounds of every kind of row in sheets of this shape."""
        self._sigmas = layout.suite.baseline.sigmas
        self._limits = limits_of(_NOTHING, layout.plan, layout.profile, references, baseline)
        self._columns = [_Columns(sheet, self._limits) for sheet in sheets]

    def judge(self, sheets: Sequence[Sheet]) -> list[JudgedSheet]:
        """Judge nights side by side."""
        best = _one_node_busbw(sheets)
        found = []
        for sheet, columns in zip(sheets, self._columns, strict=True):
            limits = columns.limits(sheet, self._sigmas, best, self._limits)
            failing = {}
            for rule in VALUE_RULES:
                mask = _broken(rule, sheet.values, limits, columns)
                if mask is not None and mask.any():
                    failing[rule.id] = mask
            found.append(JudgedSheet(sheet=sheet, failing=failing))
        return found


def _broken(
    rule: Rule, values: NDArray[Any], limits: Mapping[str, NDArray[Any]], columns: _Columns
) -> NDArray[Any] | None:
    """Say which rows break a rule; None for no row of the sheet. A missing side breaks nothing."""
    import numpy as np

    if rule.id == "measured":
        return np.asarray(np.isnan(values))
    if rule.id in ("limits", "baseline"):
        mark = columns.problem if rule.id == "limits" else columns.needs_baseline
        return np.asarray(np.broadcast_to(mark, values.shape)) if mark.any() else None
    other = rule.b if rule.a == "value" else rule.a
    bound = limits.get(other)
    if bound is None:
        return None
    return np.asarray(values < bound if rule.a == "value" else bound < values)


class _Columns:
    """The bounds of each kind of row of one sheet."""

    def __init__(self, sheet: Sheet, limits: Limits) -> None:
        import numpy as np

        self.bounds: list[Bounds] = [
            bounds_of(
                RowKind(
                    benchmark=sheet.benchmark, benchmark_version=sheet.benchmark_version, indicator=kind.indicator,
                    node_count=sheet.node_count, params=kind.params,
                ),
                limits,
            )
            for kind in sheet.kinds
        ]  # fmt: skip
        self.problem = np.array([bool(item.problem) for item in self.bounds])
        self.needs_baseline = np.array([item.needs_baseline for item in self.bounds])
        arrays = {name: np.array([getattr(item, name) for item in self.bounds], float) for name in BOUNDS}
        self._fixed = {name: array for name, array in arrays.items() if not np.isnan(array).all()}
        self._of_peers = [k for k, kind in enumerate(sheet.kinds) if kind.indicator == SHARE_OF_PEERS]
        self._by_one_node = [
            (k, str(params_of(kind.params).get("operation")), _physical_upper(sheet, k, limits))
            for k, kind in enumerate(sheet.kinds)
            if sheet.node_count > 1 and _is_busbw(kind)
        ]

    def limits(
        self, sheet: Sheet, sigmas: float, best: Mapping[str, NDArray[Any]], limits: Limits
    ) -> Mapping[str, NDArray[Any]]:
        """Give bound → [K] or [T, 1, K]: those that tonight's own values move are worked out anew."""
        import numpy as np

        if not self._of_peers and not self._by_one_node:
            return self._fixed
        found = dict(self._fixed)
        shape = (len(sheet.values), 1, len(sheet.kinds))
        if self._by_one_node:
            moved = np.broadcast_to(self._fixed.get("ceiling_limit", np.nan), shape).copy()
            operations = dict.fromkeys(operation for _, operation, _ in self._by_one_node)
            tops = {}
            for name in operations:
                columns = [k for k, operation, _ in self._by_one_node if operation == name]
                highest = np.fmax.reduce(sheet.values[:, :, columns], axis=(1, 2))
                tops[name] = _ceiling_limits(sheet, name, best, limits, highest)
            for k, operation, most in self._by_one_node:
                moved[:, 0, k] = np.fmin(tops[operation], most)
            found["ceiling_limit"] = moved
        if self._of_peers:
            fail, warn = (self._fixed.get(name, np.full(shape[2], np.nan)) for name in ("lower", "warn_lower"))
            peer_lower, warn_lower = np.full(shape, np.nan), np.broadcast_to(warn, shape).copy()
            for k in self._of_peers:
                ordinary = spread_limits(sheet.values[:, :, k], float(np.fmax(fail[k], warn[k])), sigmas)
                peer_lower[:, 0, k], warn_lower[:, 0, k] = np.minimum(fail[k], ordinary), np.minimum(warn[k], ordinary)
            found["peer_lower"], found["warn_lower"] = peer_lower, warn_lower
            found["lower"] = np.where(
                [k in self._of_peers for k in range(shape[2])], np.nan, found.get("lower", np.nan)
            )
        return found


def spread_limits(values: NDArray[Any], floor: float, sigmas: float) -> NDArray[Any]:
    """Give the lowest share of each night's peers that their scatter makes ordinary, [T, M] to [T].

    The limit is the floor or lower, so only nights with a share below the highest floor need their own; for the others
    it is left open: infinite.
    """
    import numpy as np

    found = np.full(len(values), np.inf)
    for t in np.flatnonzero((values < floor).any(axis=1)).tolist():
        found[t] = spread_limit(values[t], np.inf, sigmas)
    return found


def _one_node_busbw(sheets: Sequence[Sheet]) -> dict[str, NDArray[Any]]:
    """Give operation → the highest bus bandwidth measured in one node of each night, [T]; NaN where there is none."""
    import numpy as np

    best: dict[str, NDArray[Any]] = {}
    for sheet in sheets:
        for k, kind in enumerate(sheet.kinds):
            if sheet.node_count == 1 and _is_busbw(kind):
                operation = str(params_of(kind.params).get("operation"))
                most = np.fmax.reduce(sheet.values[:, :, k], axis=1)
                best[operation] = np.fmax(best[operation], most) if operation in best else most
    return best


def _ceiling_limits(
    sheet: Sheet, operation: str, best: Mapping[str, NDArray[Any]], limits: Limits, highest: NDArray[Any]
) -> NDArray[Any]:
    """Give each night's ceiling of a bus bandwidth with its tolerance, [T]: it rests on that night's own one node.

    A faster node never lowers the ceiling: where the `highest` value of a night, [T], is below the ceiling of the
    slowest night, that one stands for the night's own.
    """
    import numpy as np

    expected = limits.physics.one_node_busbw.get(operation, 0.0)
    one_node = np.fmax(best.get(operation, np.full(len(sheet.values), np.nan)), expected)
    least = _ceiling_limit(sheet, operation, float(one_node.min()), limits)
    found = np.full(len(one_node), least)
    for t in np.flatnonzero(~(highest <= least)).tolist():
        found[t] = _ceiling_limit(sheet, operation, float(one_node[t]), limits)
    return found


def _ceiling_limit(sheet: Sheet, operation: str, one_node: float, limits: Limits) -> float:
    """Give the ceiling of one operation with its tolerance, from the best of one node; NaN where none is known."""
    physics = replace(limits.physics, one_node_busbw={operation: one_node} if one_node > 0 else {})
    meant = indicator(sheet.benchmark, BUS_HEADLINE)
    top = physical_ceiling(sheet.benchmark, meant, sheet.node_count, {"operation": operation}, physics)
    return float("nan") if top is None else top[0] * TOLERANCE


def _is_busbw(kind: Kind) -> bool:
    return kind.unit == "GB/s" and kind.indicator.startswith("bus_bandwidth")


def _physical_upper(sheet: Sheet, k: int, limits: Limits) -> float:
    """Give the upper bound that a physical reference sets, NaN for none."""
    kind = sheet.kinds[k]
    item = limits.references and limits.references.find(
        benchmark=sheet.benchmark, benchmark_version=sheet.benchmark_version, indicator=kind.indicator,
        node_count=sheet.node_count, params=params_of(kind.params), physical=True, fabric=limits.profile.fabric.name,
        concurrency=limits.concurrency.get((sheet.benchmark, sheet.node_count), "isolated"),
    )  # fmt: skip
    return float("nan") if not item or item.upper is None else item.upper
