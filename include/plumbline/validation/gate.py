"""The verdict algebra: what verdicts do to the gate, and what is news. Pure functions: no files, no clock.

FAIL, INVALID, NOT_RUN and STALE close the gate alike, so neither removing a result nor adding one can open it:
removing makes a NOT_RUN (or breaks the count), adding makes an INVALID. A suite may only add kinds that close.
Everything that this module does not know to be harmless closes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plumbline.amounts import node_list, plural
from plumbline.model import Code, Verdict, VerdictKind, verdict, worst
from plumbline.suites.suite import ALWAYS_BLOCKING, Gate

GAP_CODES = frozenset({Code.BUSY, Code.PREEMPTED, Code.EXCLUDED})
"""NOT_RUN for these reasons is a coverage gap that a nightly may tolerate until the place is stale."""

LEAST_GROUP = 4
"""Fewer verdicts of one cause are shown one by one."""

ALIKE_CODES = frozenset({Code.NO_BASELINE, Code.NO_LIMITS})
"""Rows of one indicator that have this code say the same, wherever they were measured."""

_SEVERITY = {kind: index for index, kind in enumerate(reversed(VerdictKind))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Many rows that say the same, as one: a first night of a large cluster has a million without history.

    `first` speaks for all `count` rows, which share its code, benchmark and indicator; its node is None where they are
    on several. Raises ValueError for rows that must stand for themselves, and for too few.
    """

    first: Verdict
    count: int

    def __post_init__(self) -> None:
        """Let nothing be told together that has a place and a value of its own to tell."""
        if self.first.code not in ALIKE_CODES or self.first.indicator is None or self.count < LEAST_GROUP:
            raise ValueError(f"{self.count} rows of {self.first.code} and {self.first.indicator} aren't told as one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The outcome of judging, in the form that decides: every expected row is in `passed`, `rows` or `alike`, once.

    `measured` counts expected rows that have a value. `others` holds verdicts on launches, places, records and the
    run itself.
    """

    expected: int
    measured: int
    passed: int
    rows: tuple[Verdict, ...]
    others: tuple[Verdict, ...]
    alike: tuple[Alike, ...] = ()

    @property
    def notable(self) -> tuple[Verdict, ...]:
        """Everything that is not a PASS, worst first, causes (launches, places) before the rows they cost.

        Rows that are alike are there with their first.
        """
        firsts = (item.first for item in self.alike)
        found = [item for item in (*self.others, *self.rows, *firsts) if item.kind is not VerdictKind.PASS]
        return tuple(sorted(found, key=lambda item: _SEVERITY[item.kind]))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """Whether the cluster may be used, and why not. `reasons` is everything that is not a PASS, worst first.

    Rows that say the same (a launch that yielded nothing, an indicator without history) are one reason; `counts` counts
    them all. `blocking` closes the gate; `gaps` are the NOT_RUN that the suite tolerates tonight. `verdict` is a label:
    the worst kind, where a tolerated gap counts as WARN.
    """

    open: bool
    verdict: VerdictKind
    reasons: tuple[Verdict, ...]
    blocking: tuple[Verdict, ...]
    gaps: tuple[Verdict, ...]
    counts: Mapping[str, int]
    coverage: Mapping[str, Any]

    def data(self) -> dict[str, Any]:
        """Give the gate's part of verdict.json."""
        closing = {id(item) for item in self.blocking}
        return {
            "verdict": self.verdict.value,
            "gate": "open" if self.open else "closed",
            "coverage": dict(self.coverage),
            "counts": dict(self.counts),
            "reasons": [{**reason_data(item), "blocks": id(item) in closing} for item in self.reasons],
        }


def reason_data(item: Verdict) -> dict[str, Any]:
    """Give one verdict as an entry of `reasons` in verdict.json."""
    return {
        "verdict": item.kind.value,
        "code": item.code.value,
        "benchmark": item.benchmark,
        "indicator": item.indicator,
        "place": item.place,
        "expected": item.expected,
        "actual": item.actual,
        "unit": item.unit,
        "message": item.message,
        "launch_id": item.launch_id,
        "node_count": item.node_count,
        "group": item.group,
        "node": item.node,
        "params": item.params,
        "reference": item.reference,
    }


def verdict_of_reason(data: Mapping[str, Any]) -> Verdict:
    """Read an entry of `reasons` back. Raises KeyError or ValueError for a damaged one."""
    fields = {key: value for key, value in data.items() if key not in ("verdict", "blocks", "code")}
    return Verdict(kind=VerdictKind(data["verdict"]), code=Code(data["code"]), **fields)


def decide(
    judged: Judged,
    gate: Gate,
    *,
    nights: Mapping[str, int],
    launch_nodes: Mapping[str, Sequence[str]] | None = None,
) -> GateDecision:
    """Say whether the gate is open.

    Args:
        judged: The verdicts, complete by count.
        gate: The suite's policy.
        nights: Node, benchmark, rung, or node at a rung → nights since it was last measured, this run included
            (validation/ages.py); 0 for all in a cluster's first night. What is absent here is no tolerated gap.
        launch_nodes: launch_id → nodes, for gaps that name a launch.
    """
    reasons, gaps = [], []
    for item in (*_count_problems(judged), *judged.others, *judged.rows):
        if item.kind is VerdictKind.PASS:
            continue
        aged, tolerated = _aged(item, gate, nights, launch_nodes or {})
        reasons.append(aged)
        if tolerated:
            gaps.append(aged)
    reasons.sort(key=lambda item: _SEVERITY[item.kind])
    tolerable = {id(item) for item in gaps}
    closing = {*gate.blocks, *ALWAYS_BLOCKING}
    blocking = [item for item in reasons if item.kind in closing and id(item) not in tolerable]
    others = [item for item in reasons if item.kind not in closing or id(item) in tolerable]
    blocking_alike = [item for item in judged.alike if item.first.kind in closing]
    other_alike = [item for item in judged.alike if item.first.kind not in closing]
    shown_blocking = (*grouped(blocking), *map(_told, blocking_alike))
    shown_others = (*grouped(others), *map(_told, other_alike))
    kinds = [VerdictKind.WARN if id(item) in tolerable else item.kind for item in reasons]
    return GateDecision(
        open=not blocking and not blocking_alike,
        verdict=worst([*kinds, *(item.first.kind for item in judged.alike)]),
        reasons=tuple(sorted((*shown_blocking, *shown_others), key=lambda item: _SEVERITY[item.kind])),
        blocking=shown_blocking,
        gaps=tuple(gaps),
        counts=_counts(judged, reasons),
        coverage=_coverage(judged, reasons),
    )


def _counts(judged: Judged, reasons: Iterable[Verdict]) -> dict[str, int]:
    """Count the verdicts of every kind, each row by itself."""
    found, passed = Counter(item.kind for item in reasons), judged.passed
    for item in judged.alike:
        found[item.first.kind] += item.count
    return {kind.value: passed if kind is VerdictKind.PASS else found[kind] for kind in VerdictKind}


def _coverage(judged: Judged, reasons: Iterable[Verdict]) -> dict[str, Any]:
    """Give rows expected and measured, and the places that have a NOT_RUN or STALE, each once."""
    absent = (item.place for item in reasons if item.kind in (VerdictKind.NOT_RUN, VerdictKind.STALE))
    return {"expected": judged.expected, "measured": judged.measured, "missing": list(dict.fromkeys(absent))}


def grouped(items: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Give the verdicts with those of one cause as one, in the place of the first; its message says how many.

    One cause: rows of one launch that are missing for one reason, and rows of one indicator without limits or anything
    to compare with. Everything else stands for itself.
    """
    causes: dict[Any, list[Verdict]] = {}
    for index, item in enumerate(items):
        causes.setdefault(_cause(item) or index, []).append(item)
    shown: list[Verdict] = []
    for members in causes.values():
        shown += members if len(members) < LEAST_GROUP else [_as_one(members)]
    return tuple(shown)


def _cause(item: Verdict) -> tuple[Any, ...] | None:
    if item.indicator is None:
        return None
    if item.code in ALIKE_CODES:
        return (item.code, item.benchmark, item.indicator)
    if item.kind is VerdictKind.NOT_RUN and item.launch_id is not None:
        return (item.code, item.launch_id)
    return None


def _as_one(members: Sequence[Verdict]) -> Verdict:
    first = members[0]
    names = list(dict.fromkeys(item.indicator for item in members if item.indicator))
    node = first.node if all(item.node == first.node for item in members) else None
    return _shared(replace(first, node=node), names, len(members))


def _told(item: Alike) -> Verdict:
    return _shared(item.first, [str(item.first.indicator)], item.count)


def _shared(first: Verdict, names: Sequence[str], count: int) -> Verdict:
    """Give the one reason that stands for `count` rows of these indicators, the first of which is given."""
    message = f"{plural(count, 'row')} ({node_list(names, 4)}), first {first.place}: {first.message}"
    place = first.launch_id if first.kind is VerdictKind.NOT_RUN and first.launch_id else f"{first.benchmark}"
    indicator = names[0] if len(names) == 1 else None
    return replace(first, place=place, message=message, indicator=indicator, params=None, actual=None, expected=None)


def _count_problems(judged: Judged) -> list[Verdict]:
    """Close the gate when nothing was expected, or when the verdicts are not one for each expected row."""
    problems = []
    if judged.expected <= 0:
        problems.append(verdict(Code.NO_MEASUREMENT, "run", "no row was expected: an empty run cannot pass"))
    given = judged.passed + len(judged.rows) + sum(item.count for item in judged.alike)
    if given != judged.expected or judged.passed < 0:
        message = f"{judged.expected} rows were expected and {given} judged: verdicts are missing or extra"
        problems.append(verdict(Code.JUDGE_ERROR, "run", message))
    if not judged.passed <= judged.measured <= judged.expected:
        message = f"{judged.passed} rows passed, {judged.measured} were measured and {judged.expected} expected"
        problems.append(verdict(Code.JUDGE_ERROR, "run", message))
    return problems


def rung_key(benchmark: str, node_count: int, node: str | None = None) -> str:
    """Name a rung, or a node at it, among the nights: 'nccl_tests-n4', 'nccl_tests-n4/n0005'."""
    return f"{benchmark}-n{node_count}" + (f"/{node}" if node else "")


def age_at(nights: Mapping[str, int], benchmark: str, node_count: int, node: str) -> int | None:
    """Give the nights since a node was measured at a rung; None where that is not known."""
    return nights.get(rung_key(benchmark, node_count, node), nights.get(rung_key(benchmark, node_count)))


def _aged(
    item: Verdict, gate: Gate, nights: Mapping[str, int], launch_nodes: Mapping[str, Sequence[str]]
) -> tuple[Verdict, bool]:
    """Give the verdict as it counts tonight, and whether it is a gap that the suite tolerates."""
    if item.code not in GAP_CODES or not gate.coverage_gaps_allowed:
        return item, False
    ages = _ages(item, nights, launch_nodes)
    if not ages or None in ages.values():
        why = "not allowed as a gap: nothing says when it was last measured"
        return replace(item, message=f"{item.message}; {why}"), False
    oldest, age = max(((place, age) for place, age in ages.items() if age is not None), key=lambda pair: pair[1])
    if age <= gate.max_age_nights:
        return item, True
    message = (
        f"{oldest} was not measured for {age} nights; at most {gate.max_age_nights} are allowed "
        f"(tonight: {item.code.value}, {item.message})"
    )
    return replace(item, kind=VerdictKind.STALE, code=Code.TOO_OLD, message=message), False


def _ages(item: Verdict, nights: Mapping[str, int], launch_nodes: Mapping[str, Sequence[str]]) -> dict[str, int | None]:
    """Give the age of every place that a gap is about, None where it is not known.

    Where it is about a benchmark's rung, each node counts by itself and at that rung.
    """
    nodes = _nodes(item, launch_nodes)
    ages: dict[str, int | None] = {node: nights.get(node) for node in nodes}
    if item.benchmark is None:
        return ages
    if item.node_count is None:
        return ages or {item.benchmark: nights.get(item.benchmark)}
    rung = f"{item.benchmark} at {item.node_count} node{'s' if item.node_count != 1 else ''}"
    if not nodes:
        return {} if item.launch_id else {rung: nights.get(rung_key(item.benchmark, item.node_count))}
    there = {f"{node} in {rung}": age_at(nights, item.benchmark, item.node_count, node) for node in nodes}
    return {**ages, **there}


def _nodes(item: Verdict, launch_nodes: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if item.node is not None:
        return (item.node,)
    if item.launch_id is None:
        return ()
    source = item.launch_id.removeprefix("derived-")
    rung = [node for name, nodes in launch_nodes.items() if name.startswith(f"{source}-g") for node in nodes]
    return launch_nodes.get(source, tuple(rung))


# -- alarm: is it news? ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What changed since the previous run. `news` says whether somebody should be told at once."""

    new: tuple[Verdict, ...] = ()
    gone: tuple[Verdict, ...] = ()
    ongoing: tuple[Verdict, ...] = field(default=())

    @property
    def news(self) -> bool:
        """A new fault or a fault that is over; what is merely still there is not news."""
        return bool(self.new or self.gone)


def alarm(current: Iterable[Verdict], previous: Iterable[Verdict] | None) -> News:
    """Compare this run's reasons with the previous run's (None: there is none).

    Only what closes gates can alarm, coverage gaps excepted. Groups are shuffled every night and so are not part of
    what makes two findings the same; their place in the cluster (node, node count) and parameters are.
    """
    now, before = _alarming(current), _alarming(previous or ())
    return News(
        new=tuple(item for key, item in now.items() if key not in before),
        gone=tuple(item for key, item in before.items() if key not in now),
        ongoing=tuple(item for key, item in now.items() if key in before),
    )


def _alarming(items: Iterable[Verdict]) -> dict[tuple[Any, ...], Verdict]:
    found: dict[tuple[Any, ...], Verdict] = {}
    for item in items:
        if item.kind in ALWAYS_BLOCKING and item.code not in GAP_CODES:
            where = (item.benchmark, item.indicator, item.node_count, item.node, item.params)
            key = (item.code, *where, item.place if where == (None,) * 5 else None)
            found.setdefault(key, item)
    return found
