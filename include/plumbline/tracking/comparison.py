"""What changed between two runs: like with like, and in words what cannot be compared."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.amounts import plural
from plumbline.errors import ConfigError
from plumbline.model import Better, canonical_json, to_plain
from plumbline.tracking.history import rows_of
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.run_directory import RunDirectory
from plumbline.tracking.significance import paired, unpaired
from plumbline.tracking.surroundings import differences, surroundings

P_LIMIT = 0.01
"""Below this a difference is called significant; low, because hundreds of values are compared at once."""
SAME = 1e-9
"""A smaller relative change is none: rounding of the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value in run a and in run b: medians over repeats, and over places where `node` is None.

    `change` is (b - a) ÷ |a|, None where a is 0. `direction` is better, worse, same, or changed where the indicator
    has no good direction. `p_value` is None where too few values exist for a statement; see `significance`.
    """

    benchmark: str
    indicator: str
    node_count: int
    node: str | None
    params: str
    unit: str
    a: float
    b: float
    values_a: int
    values_b: int
    change: float | None
    direction: str
    p_value: float | None

    @property
    def significant(self) -> bool | None:
        """Whether the difference is more than the scatter; None where nobody can tell."""
        return None if self.p_value is None else self.p_value < P_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class NotComparable:
    """Something that is in both runs, or in one, and can't be set against each other."""

    item: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Changes from run a to run b, the largest worsening first; and everything that limits their meaning."""

    run_a: str
    run_b: str
    warnings: tuple[str, ...]
    surroundings: tuple[str, ...]
    """What differs in hardware, software and tool versions."""
    changes: tuple[Change, ...]
    not_comparable: tuple[NotComparable, ...]

    def to_plain(self) -> dict[str, Any]:
        """Give JSON-ready data."""
        data: dict[str, Any] = to_plain(self)
        for item, change in zip(data["changes"], self.changes, strict=True):
            item["significant"] = change.significant
        return data

    def text(self) -> str:
        """Give a table for the terminal."""
        return "\n".join(_lines(self))


Key = tuple[str, str, str, str, int, str]
"""benchmark, version, indicator, unit, node_count, params."""
Places = dict[tuple[Any, ...], list[float]]
"""(group, node, gpu) → the values of its repeats."""


def compare(a: RunDirectory, b: RunDirectory) -> Comparison:
    """Compare two runs at every node count, over all places. Raises OutputError for a run that is not judged."""
    return compare_judged(JudgedRun(a), JudgedRun(b), values_by_key(a), values_by_key(b))


def compare_judged(a: JudgedRun, b: JudgedRun, left: Mapping[Key, Places], right: Mapping[Key, Places]) -> Comparison:
    """Compare two runs whose values are read already. Raises ConfigError when one has none."""
    for run, rows in ((a, left), (b, right)):
        if not rows:
            raise ConfigError(f"{run.run_id} has no valid measurement: there is nothing to compare")
    settings = _differing_settings(a, b)
    apart = [NotComparable(item=name, reason=reason) for name, reason in settings.items()]
    left = {key: places for key, places in left.items() if key[0] not in settings}
    right = {key: places for key, places in right.items() if key[0] not in settings}
    changes = [_change(key, None, left[key], right[key]) for key in left.keys() & right.keys()]
    apart += _unmatched(left, right, a.run_id, b.run_id)
    return Comparison(
        run_a=a.run_id,
        run_b=b.run_id,
        warnings=tuple(_warnings(a, b)),
        surroundings=tuple(differences(surroundings(a.launches), surroundings(b.launches))),
        changes=tuple(sorted(changes, key=_worst_first)),
        not_comparable=tuple(apart),
    )


def changes_by_node(left: Mapping[Key, Places], right: Mapping[Key, Places]) -> list[Change]:
    """Compare node by node what was measured on single nodes in both runs, the largest worsening first."""
    found = []
    for key in left.keys() & right.keys():
        old, new = _by_node(left[key]), _by_node(right[key])
        found += [_change(key, node, {(node,): old[node]}, {(node,): new[node]}) for node in old.keys() & new.keys()]
    return sorted(found, key=_worst_first)


def _by_node(places: Places) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (_, node, _), values in places.items():
        if node is not None:
            found.setdefault(node, []).extend(values)
    return found


def values_by_key(run: RunDirectory) -> dict[Key, Places]:
    """Give a run's valid values by what they are, then by place. A named node is the same place in any group."""
    names = ("benchmark", "benchmark_version", "indicator", "unit", "node_count", "params", "group", "node", "gpu")
    table = rows_of(run, (*names, "value"))
    found: dict[Key, Places] = {}
    for *fields, value in zip(*(table[name].to_pylist() for name in (*names, "value")), strict=True):
        key, (group, node, gpu) = tuple(fields[:6]), fields[6:]
        place = (None if node is not None else group, node, gpu)
        found.setdefault(key, {}).setdefault(place, []).append(value)
    return found


def _change(key: Key, node: str | None, left: Places, right: Places) -> Change:
    benchmark, _, indicator, unit, node_count, params = key
    old = statistics.median(statistics.median(values) for values in left.values())
    new = statistics.median(statistics.median(values) for values in right.values())
    change = None if old == 0 else (new - old) / abs(old)
    return Change(
        benchmark=benchmark,
        indicator=indicator,
        node_count=node_count,
        node=node,
        params=params,
        unit=unit,
        a=old,
        b=new,
        values_a=sum(len(values) for values in left.values()),
        values_b=sum(len(values) for values in right.values()),
        change=change,
        direction=_direction(better(benchmark, indicator), old, new),
        p_value=significance(left, right),
    )


def better(benchmark: str, indicator: str) -> Better:
    """Give an indicator's good direction; one that this version of Plumbline no longer knows has none."""
    from plumbline.indicators import indicator as look_up  # noqa: PLC0415 - imports every benchmark

    try:
        return look_up(benchmark, indicator).better
    except ConfigError:
        return Better.NEITHER


def _direction(good: Better, old: float, new: float) -> str:
    if abs(new - old) <= SAME * max(abs(old), abs(new)):
        return "same"
    if good is Better.NEITHER:
        return "changed"
    return "better" if (new > old) == (good is Better.HIGHER) else "worse"


def significance(left: Places, right: Places) -> float | None:
    """Give the probability of such a difference by chance, or None where there are too few values to tell.

    Places that both runs measured are compared in pairs, by the medians of their repeats; a single place is compared
    by its repeats.
    """
    common = left.keys() & right.keys()
    if len(common) > 1:
        return paired([statistics.median(right[place]) - statistics.median(left[place]) for place in common])
    if len(common) == 1 == len(left) == len(right):
        (old,), (new,) = left.values(), right.values()
        return unpaired(old, new)
    return None


def _worst_first(change: Change) -> tuple[int, float, str]:
    rank = {"worse": 0, "changed": 1, "better": 2, "same": 3}[change.direction]
    size = float("inf") if change.change is None else abs(change.change)
    name = f"{change.benchmark} {change.indicator} {change.node_count:06d} {change.params} {change.node}"
    return rank, -size, name


# -- what can't be compared ------------------------------------------------------------------------------------------


def _warnings(a: JudgedRun, b: JudgedRun) -> Iterator[str]:
    for name, left, right in (
        ("clusters", a.cluster, b.cluster),
        ("suites", a.suite_name, b.suite_name),
        ("devices", a.device.value, b.device.value),
        ("accelerators", a.profile.accelerator.model, b.profile.accelerator.model),
        ("fabrics", a.profile.fabric.name, b.profile.fabric.name),
    ):
        if left != right:
            yield f"different {name}: {left} and {right}"
    if a.origin is not b.origin:
        yield (
            f"{a.run_id} is {a.origin.value} and {b.run_id} is {b.origin.value}: "
            "the differences say nothing about hardware"
        )


def _differing_settings(a: JudgedRun, b: JudgedRun) -> dict[str, str]:
    """Give benchmark → what differs in its version or parameters, for benchmarks that are in both plans."""
    left, right = _settings(a), _settings(b)
    found = {}
    for name in sorted(left.keys() & right.keys()):
        (old_version, old), (new_version, new) = left[name], right[name]
        if old_version != new_version:
            found[name] = f"benchmark version {old_version} → {new_version}"
            continue
        differing = [
            f"{key}: {_setting(old.get(key))} → {_setting(new.get(key))}"
            for key in sorted({*old, *new})
            if old.get(key) != new.get(key) and not _selects(key, old.get(key), new.get(key))
        ]
        if differing:
            found[name] = f"parameters differ: {'; '.join(differing)}"
    return found


def _settings(run: JudgedRun) -> dict[str, tuple[str, Mapping[str, Any]]]:
    return {spec.benchmark: (spec.benchmark_version, spec.params) for spec in run.plan.launches}


def _selects(key: str, old: Any, new: Any) -> bool:
    """Say whether a parameter only chooses which rows there are; the rows that both have stay comparable."""
    lists = any(isinstance(value, str) and "," in value for value in (old, new))
    return lists or key in _SELECTING


_SELECTING = ("operations", "operation", "jobs", "min_bytes", "max_bytes", "size_count")


def _setting(value: Any) -> str:
    return "absent" if value is None else canonical_json(value)


def _unmatched(left: Mapping[Key, Any], right: Mapping[Key, Any], a: str, b: str) -> list[NotComparable]:
    """Name what only one run has, put together by benchmark, indicator and node count."""
    found: dict[tuple[str, int, str], int] = {}
    for keys, run in ((left.keys() - right.keys(), a), (right.keys() - left.keys(), b)):
        for benchmark, _, indicator, unit, node_count, _ in keys:
            item = (f"{benchmark}/{indicator} [{unit}]", node_count, run)
            found[item] = found.get(item, 0) + 1
    return [
        NotComparable(item=f"{name} at {plural(nodes, 'node')}", reason=f"{plural(count, 'value')} only in {run}")
        for (name, nodes, run), count in sorted(found.items())
    ]


# -- text ------------------------------------------------------------------------------------------------------------

_SHOWN_CHANGES = 40


def _lines(found: Comparison) -> Iterator[str]:
    yield f"{found.run_a} → {found.run_b}"
    for warning in found.warnings:
        yield f"  ! {warning}"
    for line in found.surroundings:
        yield f"  ~ {line}"
    moved = [c for c in found.changes if c.direction != "same"]
    if not moved:
        yield f"  no change in {plural(len(found.changes), 'value')}"
    cells: list[tuple[str, ...]] = [("value", found.run_a[:15], found.run_b[:15], "change", "", "chance")]
    cells += [_cells(change) for change in moved[:_SHOWN_CHANGES]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells if moved else ():
        left = row[0].ljust(widths[0])
        yield ("  " + left + "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))).rstrip()
    if len(moved) > _SHOWN_CHANGES:
        yield f"  … and {len(moved) - _SHOWN_CHANGES} more (--json shows all)"
    for item in found.not_comparable:
        yield f"  not comparable: {item.item}: {item.reason}"


def _cells(change: Change) -> tuple[str, ...]:
    return (
        describe(change),
        f"{change.a:.4g}",
        f"{change.b:.4g}",
        "" if change.change is None else f"{change.change:+.1%}",
        change.direction,
        "" if change.p_value is None else f"p {change.p_value:.2g}",
    )


def describe(change: Change) -> str:
    """Name what changed for people: 'nccl_tests bus_bandwidth [GB/s] at 4 nodes, message_bytes 1048576'."""
    parts = [f"{change.benchmark} {change.indicator} [{change.unit}] at {plural(change.node_count, 'node')}"]
    parts += [f"node {change.node}"] if change.node else []
    parts += _params_in_words(json.loads(change.params))
    return ", ".join(parts)


def _params_in_words(params: Mapping[str, Any]) -> Sequence[str]:
    from plumbline.units import show_bytes  # noqa: PLC0415

    return [
        show_bytes(value) if key.endswith("_bytes") and isinstance(value, int) else f"{key} {value}"
        for key, value in params.items()
    ]
