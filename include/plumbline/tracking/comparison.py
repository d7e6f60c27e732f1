"""What changed between two runs: like with like, and in words what cannot be compared."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from plumbline.amounts import plural
from plumbline.errors import ConfigError
from plumbline.model import Better, to_plain
from plumbline.tracking.comparability import Difference, asked_otherwise, differing_settings, warnings, word
from plumbline.tracking.history import rows_of
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.run_directory import RunDirectory
from plumbline.tracking.significance import paired, unpaired
from plumbline.tracking.surroundings import differences, surroundings

P_LIMIT = 0.01
"""Below this a difference is called significant; low, because hundreds of values are compared at once."""
SAME = 1e-9
"""A smaller shift is none: rounding of the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value in run a and in run b: medians over repeats, and over places where `node` and `place` are None.

    `change` is (b - a) ÷ |a|, None where a is 0. `direction` is better, worse, same, or changed where the indicator
    has no good direction; same is a shift of at most `tolerance`, or of the step in which the tool prints the value.
    `place` names the places whose value this is, where it is the worst of several. `p_value` is None where too few
    values exist for a statement; see `significance`.
    """

    benchmark: str
    indicator: str
    node_count: int
    node: str | None
    place: str | None = None
    params: str
    unit: str
    a: float
    b: float
    values_a: int
    values_b: int
    change: float | None
    tolerance: float
    direction: str
    p_value: float | None

    @property
    def shift(self) -> float:
        """The difference as a part of the larger value: as large from a to b as from b to a, 0 to 2."""
        return shift(self.a, self.b)

    @property
    def score(self) -> float:
        """The shift in tolerances."""
        return self.shift / max(self.tolerance, SAME)

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
    """Changes from run a to run b, the largest in tolerances first; and everything that limits their meaning."""

    run_a: str
    run_b: str
    word_a: str
    word_b: str
    """Verdict and gate, such as 'FAIL, the gate is closed'."""
    warnings: tuple[str, ...]
    settings: tuple[str, ...]
    """What differs in what the runs were asked for, such as 'node_counts: ladder → 1,2'."""
    surroundings: tuple[str, ...]
    """What differs in hardware, software and tool versions."""
    tolerance: float
    """The shift that neither suite warns at; that of an indicator which is known to scatter more is its own."""
    changes: tuple[Change, ...]
    worst: tuple[Change, ...]
    """The worst place of each value that several places have: one bad group doesn't move their median."""
    not_comparable: tuple[NotComparable, ...]

    def to_plain(self) -> dict[str, Any]:
        """Give JSON-ready data."""
        data: dict[str, Any] = to_plain(self)
        for name, changes in (("changes", self.changes), ("worst", self.worst)):
            for item, change in zip(data[name], changes, strict=True):
                item["significant"] = change.significant
        return data


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
    settings = differing_settings(a, b)
    apart = list(_apart(settings, left.keys() & right.keys()))
    left, right = ({key: rows[key] for key in rows if not _differs(settings, key)} for rows in (left, right))
    tolerance = tolerances(a, b)
    common = left.keys() & right.keys()
    changes = [_change(key, None, left[key], right[key], tolerance(key)) for key in common]
    groups = {(spec.benchmark, spec.node_count, spec.group): spec.nodes for spec in b.plan.launches}
    worst = [found for key in common if (found := _worst(key, left[key], right[key], tolerance(key), groups))]
    apart += _unmatched(left, right, a.run_id, b.run_id)
    return Comparison(
        run_a=a.run_id,
        run_b=b.run_id,
        word_a=word(a),
        word_b=word(b),
        warnings=tuple(warnings(a, b)),
        settings=tuple(asked_otherwise(a, b)),
        surroundings=tuple(differences(surroundings(a.launches), surroundings(b.launches))),
        tolerance=_suites_tolerance(a, b),
        changes=tuple(sorted(changes, key=_largest_first)),
        worst=tuple(sorted(worst, key=_largest_first)),
        not_comparable=tuple(apart),
    )


def _differs(settings: Mapping[str, Difference], key: Key) -> str | None:
    """Say why a kind of row is another number in the other run, by the settings; None when it is the same."""
    found = settings.get(key[0])
    return None if found is None else found.reason or found.summary(key[5])


def _apart(settings: Mapping[str, Difference], common: Collection[Key]) -> Iterator[NotComparable]:
    """Name the benchmarks that were measured otherwise, and the indicators of rows that stand for other rows."""
    for name, found in settings.items():
        if found.reason:
            version = found.reason.startswith("benchmark version")
            yield NotComparable(item=name, reason=found.reason if version else f"parameters differ: {found.reason}")
            continue
        others = {(key[2], reason) for key in common if key[0] == name and (reason := found.summary(key[5]))}
        for indicator, reason in sorted(others):
            yield NotComparable(item=f"{name} {indicator}", reason=f"of other rows: {reason}")


def changes_by_node(
    left: Mapping[Key, Places], right: Mapping[Key, Places], tolerance: Callable[[Key], float]
) -> list[Change]:
    """Compare node by node what was measured on single nodes in both runs, the largest worsening first."""
    found = []
    for key in left.keys() & right.keys():
        old, new = _by_node(left[key]), _by_node(right[key])
        found += [
            _change(key, node, {(node,): old[node]}, {(node,): new[node]}, tolerance(key))
            for node in old.keys() & new.keys()
        ]
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


def _suites_tolerance(a: JudgedRun, b: JudgedRun) -> float:
    return max(run.suite.baseline.warn_tolerance for run in (a, b))


def tolerances(a: JudgedRun, b: JudgedRun) -> Callable[[Key], float]:
    """Give what finds the shift that is no news: what the suites warn at, or the scatter that references know of."""
    from plumbline.references.reference import references_from  # noqa: PLC0415 - imports every benchmark
    from plumbline.validation.limits import known_scatter  # noqa: PLC0415 - imports what reads history

    least = _suites_tolerance(a, b)
    sealed = [(run.run.read_evidence("references").get("references"), run.profile) for run in (a, b)]
    known = [known_scatter(references_from(references), profile) for references, profile in sealed if references]

    @cache
    def of_indicator(benchmark: str, version: str, indicator: str, node_count: int) -> float:
        return max([least, *(scatter(benchmark, version, indicator, node_count).warn for scatter in known)])

    return lambda key: of_indicator(key[0], key[1], key[2], key[4])


Groups = Mapping[tuple[str, int, int], Sequence[str]]
"""(benchmark, node count, group) → its nodes."""


def _worst(key: Key, left: Places, right: Places, tolerance: float, groups: Groups) -> Change | None:
    """Compare the worst place of either run; None where one has a single place, or no direction is bad."""
    good = better(key[0], key[2])
    if good is Better.NEITHER or min(len(left), len(right)) < 2:
        return None
    pick = min if good is Better.HIGHER else max
    old, new = (pick(places, key=lambda place: statistics.median(places[place])) for places in (left, right))
    found = _change(key, None, {old: left[old]}, {new: right[new]}, tolerance)
    group, node, gpu = new
    what = "groups" if node is None else "nodes" if gpu is None else "GPUs"
    nodes = groups.get((key[0], key[4], group), ()) if node is None else (node,)
    name = ", ".join(nodes) if 0 < len(nodes) <= 4 else f"group {group}"
    name += "" if gpu is None else f" GPU {gpu}"
    return replace(found, place=f"worst of {len(right)} {what} ({name})", p_value=None)


def shift(a: float, b: float) -> float:
    """Give the difference as a part of the larger value; a rate that falls by it is a time that grows likewise."""
    return abs(b - a) / max(abs(a), abs(b), 1e-300)


def _change(key: Key, node: str | None, left: Places, right: Places, tolerance: float) -> Change:
    benchmark, _, indicator, unit, node_count, params = key
    old = statistics.median(statistics.median(values) for values in left.values())
    new = statistics.median(statistics.median(values) for values in right.values())
    change = None if old == 0 else (new - old) / abs(old)
    return Change(
        benchmark=benchmark,
        indicator=indicator,
        node_count=node_count,
        node=node,
        tolerance=tolerance,
        params=params,
        unit=unit,
        a=old,
        b=new,
        values_a=sum(len(values) for values in left.values()),
        values_b=sum(len(values) for values in right.values()),
        change=change,
        direction=_direction(benchmark, indicator, old, new, tolerance),
        p_value=significance(left, right),
    )


def better(benchmark: str, indicator: str) -> Better:
    """Give an indicator's good direction; one that this version of Plumbline no longer knows has none."""
    return _known(benchmark, indicator)[0]


@cache
def _known(benchmark: str, indicator: str) -> tuple[Better, float]:
    """Give an indicator's good direction and the step in which the tool prints it, in its unit."""
    from plumbline.indicators import indicator as look_up  # noqa: PLC0415 - imports every benchmark

    try:
        found = look_up(benchmark, indicator)
    except ConfigError:
        return Better.NEITHER, 0.0
    return found.better, found.resolution


def _direction(benchmark: str, indicator: str, old: float, new: float, tolerance: float) -> str:
    good, step = _known(benchmark, indicator)
    if shift(old, new) <= max(tolerance, SAME) or abs(new - old) <= step * (1 + SAME):
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
    return rank, -size, _name(change)


def _name(change: Change) -> str:
    return f"{change.benchmark} {change.indicator} {change.node_count:06d} {change.params} {change.node}"


def _largest_first(change: Change) -> tuple[bool, float, str]:
    return change.direction == "same", -change.score, _name(change)


def _unmatched(left: Mapping[Key, Any], right: Mapping[Key, Any], a: str, b: str) -> list[NotComparable]:
    """Name what only one run has, put together by benchmark and node count."""
    found: dict[tuple[str, int, str], list[str]] = {}
    for keys, run in ((left.keys() - right.keys(), a), (right.keys() - left.keys(), b)):
        for benchmark, _, indicator, unit, node_count, _ in keys:
            found.setdefault((benchmark, node_count, run), []).append(f"{indicator} [{unit}]")
    return [
        NotComparable(
            item=f"{name} at {plural(nodes, 'node')}",
            reason=f"{plural(len(values), 'value')} only in {run}: {_some(sorted(set(values)))}",
        )
        for (name, nodes, run), values in sorted(found.items())
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


# -- names -----------------------------------------------------------------------------------------------------------


def describe(change: Change, only: Collection[str] | None = None) -> str:
    """Name what changed for people: 'nccl_tests bus_bandwidth [GB/s] at 4 nodes, message_bytes 1048576'.

    `only` names the parameters that are said; None says all.
    """
    parts = [f"{change.benchmark} {change.indicator} [{change.unit}] at {plural(change.node_count, 'node')}"]
    parts += [f"node {change.node}"] if change.node else []
    params = json.loads(change.params)
    parts += _params_in_words({key: value for key, value in params.items() if only is None or key in only})
    parts += [change.place] if change.place else []
    return ", ".join(parts)


def _params_in_words(params: Mapping[str, Any]) -> Sequence[str]:
    from plumbline.units import show_bytes  # noqa: PLC0415

    return [
        show_bytes(value) if key.endswith("_bytes") and isinstance(value, int) else f"{key} {value}"
        for key, value in params.items()
    ]
