"""What changed since the previous run of the same suite: verdicts, surroundings, figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plumbline.errors import PlumblineError
from plumbline.model import Code, Verdict
from plumbline.reports.findings import explaining_node, faulty_nodes
from plumbline.reports.wording import percent, plain, plural, shortened
from plumbline.tracking.comparison import (
    Change,
    Comparison,
    changes_by_node,
    compare_judged,
    describe,
    tolerances,
    values_by_key,
)
from plumbline.tracking.judged_run import MEASUREMENTS, VERDICT, VERDICTS, JudgedRun, why_untrusted
from plumbline.tracking.mlflow_payload import look_up
from plumbline.tracking.run_directory import RunDirectory, find_runs
from plumbline.validation.gate import alarm, reason_data, verdict_of_reason

MOST_ITEMS = 6
MOST_PLACES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    """One thing that changed. `tone` is worse, better or neutral."""

    tone: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What changed since `previous`; None and empty where there is no earlier run."""

    previous: JudgedRun | None
    items: tuple[NewsItem, ...] = ()
    comparison: Comparison | None = None
    nodes: tuple[Change, ...] = ()
    """Single nodes that moved beyond their tolerance, the largest worsening first."""
    problem: str = ""
    """Why a previous run could not be compared."""


def previous_run(run: JudgedRun) -> RunDirectory | None:
    """Give the newest earlier run of the same suite and origin whose derived files are its judge's own."""
    earlier = [r for r in find_runs(run.run.path.parents[2], run.cluster, run.suite_name) if r.run_id < run.run_id]
    for candidate in reversed(earlier):
        if why_untrusted(candidate, MEASUREMENTS, VERDICTS, VERDICT) is None:
            judged = JudgedRun(candidate)
            if judged.origin is run.origin and judged.device is run.device:
                return candidate
    return None


def since_previous(run: JudgedRun) -> Since:
    """Compare a run with the previous one."""
    found = previous_run(run)
    if found is None:
        return Since(previous=None)
    previous = JudgedRun(found)
    items = [*_verdict_items(previous, run)]
    comparison: Comparison | None = None
    nodes: tuple[Change, ...] = ()
    problem = ""
    try:
        left, right = values_by_key(found), values_by_key(run.run)
        comparison = compare_judged(previous, run, left, right)
        headlines = {key: places for key, places in left.items() if _is_headline(key[0], key[2])}
        nodes = tuple(filter(_moved, changes_by_node(headlines, right, tolerances(previous, run))))
    except PlumblineError as error:
        problem = str(error)
    if comparison is not None:
        items += _figure_items(run, comparison, nodes)
        items += [NewsItem(tone="neutral", text=text) for text in (*comparison.warnings, *comparison.surroundings)]
        if comparison.not_comparable:
            text = "; ".join(f"{item.item}: {item.reason}" for item in comparison.not_comparable[:3])
            more = len(comparison.not_comparable) - 3
            items.append(
                NewsItem(tone="neutral", text=f"not comparable: {text}{f' and {more} more' if more > 0 else ''}")
            )
    return Since(previous=previous, items=tuple(items), comparison=comparison, nodes=nodes, problem=problem)


def _verdict_items(before: JudgedRun, now: JudgedRun) -> Iterator[NewsItem]:
    old, new = str(before.summary["gate"]), str(now.summary["gate"])
    if old != new:
        yield NewsItem(tone="better" if new == "open" else "worse", text=f"the gate is {new}, it was {old}")
    try:
        news = alarm(_reasons(now), _reasons(before))
    except (KeyError, TypeError, ValueError):  # an older verdict.json with fewer fields
        return
    yield from _fault_items("worse", "new", _unexplained(news.new, now))
    yield from _fault_items("better", "over", _unexplained(news.gone, before))
    if news.ongoing:
        places = len({_where(item) for item in news.ongoing})
        yield NewsItem(tone="neutral", text=f"faults at {plural(places, 'place')} are as in the previous run")


def _unexplained(faults: Sequence[Verdict], run: JudgedRun) -> list[Verdict]:
    """Leave out what another fault of the same run explains: missing values, groups with a slow member."""
    launches = {item["launch_id"]: item for item in run.launches}
    faulty = faulty_nodes(run.summary["reasons"])
    return [
        fault
        for fault in faults
        if fault.code is not Code.NO_MEASUREMENT and explaining_node(reason_data(fault), launches, faulty) is None
    ]


def _fault_items(tone: str, word: str, faults: Sequence[Verdict]) -> Iterator[NewsItem]:
    """Put faults together by place: one slow node is one line, however many values it spoils."""
    places: dict[tuple[str, str], list[Verdict]] = {}
    for fault in sorted(faults, key=lambda item: (item.node is None, item.node_count or 0)):
        places.setdefault((fault.kind.value, _where(fault)), []).append(fault)
    for (kind, where), members in list(places.items())[:MOST_PLACES]:
        more = f" (and {len(members) - 1} more)" if len(members) > 1 else ""
        name = f"{members[0].indicator} " if members[0].indicator else ""
        yield NewsItem(tone=tone, text=f"{word}: {kind} {where}: {shortened(name + members[0].message, 110)}{more}")
    if len(places) > MOST_PLACES:
        yield NewsItem(tone=tone, text=f"{word}: faults at {plural(len(places) - MOST_PLACES, 'more place')}")


def _where(item: Verdict) -> str:
    if item.node:
        return item.node
    if item.benchmark and item.node_count:
        return f"{item.benchmark} at {plural(item.node_count, 'node')}"
    return item.benchmark or item.place


def _reasons(run: JudgedRun) -> list[Verdict]:
    return [verdict_of_reason(item) for item in run.summary["reasons"]]


def _figure_items(run: JudgedRun, comparison: Comparison, nodes: Sequence[Change]) -> Iterator[NewsItem]:
    moved = [c for c in comparison.changes if _is_headline(c.benchmark, c.indicator) and _moved(c)]
    figures: dict[tuple[str, ...], list[Change]] = {}
    for change in sorted(moved, key=lambda c: (c.direction != "worse", -abs(c.change or 0))):
        figures.setdefault((change.benchmark, change.indicator, change.params, change.direction), []).append(change)
    for same in list(figures.values())[:MOST_ITEMS]:
        others = sorted(c.node_count for c in same[1:])
        more = f"; also at {', '.join(map(str, others))}" if others else ""
        yield NewsItem(tone=_tone(same[0]), text=f"{_told(same[0])}{more}")
    if len(figures) > MOST_ITEMS:
        yield NewsItem(tone="neutral", text=f"{plural(len(figures) - MOST_ITEMS, 'more figure')} moved, see below")
    worse = [c for c in nodes if c.direction == "worse"]
    if len(worse) > 1 or (worse and len(run.plan.inventory) > 8):
        names = list(dict.fromkeys(str(c.node) for c in worse))
        text = f"{plural(len(names), 'node')} worse in single-node figures, worst {_told(worse[0])}"
        yield NewsItem(tone="worse", text=text)


def _told(change: Change) -> str:
    odds = f", p {change.p_value:.1g}" if change.p_value is not None else ""
    return f"{describe(change)}: {plain(change.a)} → {plain(change.b)} ({percent(change.change)}{odds})"


def _is_headline(benchmark: str, indicator: str) -> bool:
    known = look_up(benchmark, indicator)
    return known is not None and known.headline


def _moved(change: Change) -> bool:
    """Say whether a change is worth a line: more than its tolerance, and no mere scatter."""
    return change.direction != "same" and change.significant is not False


def _tone(change: Change) -> str:
    return change.direction if change.direction in ("worse", "better") else "neutral"
