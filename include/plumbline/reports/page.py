"""Everything that the report shows, gathered from a judged run: the template only lays it out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plumbline.errors import OutputError, PlumblineError
from plumbline.execution.asked import asked_in_words
from plumbline.indicators.definitions import INVENTORY, SHARE_OF_PEERS
from plumbline.model import VerdictKind
from plumbline.reports.counts import compared_in_words
from plumbline.reports.evidence import Evidence, collect_evidence
from plumbline.reports.figures import benchmark_figures, trend_figure
from plumbline.reports.findings import Finding, find, told_suspicions
from plumbline.reports.lines import Line, WorstPlace, by_words, collect_lines, worst_places
from plumbline.reports.machine import SHOWN_EVENTS, Event, Reading, events, readings
from plumbline.reports.news import Since, since_previous
from plumbline.reports.plots import Figure, inline
from plumbline.reports.suspects import Suspicion
from plumbline.reports.wording import duration, node_list, plural
from plumbline.tracking.approvals import Decision, approval
from plumbline.tracking.cost import Cost, cost
from plumbline.tracking.history import load_history, series
from plumbline.tracking.judged_run import STAMPS, JudgedRun
from plumbline.tracking.mlflow_payload import experiment_name
from plumbline.tracking.mlflow_tracking import run_url
from plumbline.tracking.surroundings import surroundings

TREND_RUNS = 30
MOST_COUNTS = 12
"""Columns of the headline table: every rung of a ladder up to 2,048 nodes."""
UNCOVERED = (VerdictKind.NOT_RUN, VerdictKind.STALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One benchmark."""

    name: str
    title: str
    covers: str
    version: str
    params: tuple[tuple[str, str], ...]
    kind: VerdictKind
    lines: tuple[Line, ...]
    figures: tuple[str, ...]
    worst: tuple[WorstPlace, ...]
    launches: str

    @property
    def sources(self) -> tuple[str, ...]:
        """Where its limits come from, numbered by their place here."""
        return tuple(dict.fromkeys(source for line in self.shown for source in line.sources))

    @property
    def shown(self) -> tuple[Line, ...]:
        """The lines of its table: each place against its peers only where that is not a PASS."""
        return tuple(
            line for line in self.lines if line.indicator != SHARE_OF_PEERS or line.kind is not VerdictKind.PASS
        )

    @property
    def quiet(self) -> int:
        """How many lines its table leaves out."""
        return len(self.lines) - len(self.shown)

    @property
    def several(self) -> bool:
        """Whether any line has several places."""
        return any(len(line.last.values) > 1 for line in self.shown)

    @property
    def curves(self) -> tuple[Line, ...]:
        """The lines that have several sizes."""
        return tuple(line for line in self.shown if len(line.cells) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """One row of the table of headline figures: a line or None for each node count."""

    benchmark: str
    title: str
    unit: str
    cells: tuple[Line | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All of it."""

    run: JudgedRun
    stamps: tuple[tuple[str, str], ...]
    sentence: str
    suspicions: tuple[Suspicion, ...]
    closing: tuple[Finding, ...]
    others: tuple[Finding, ...]
    since: Since
    uncovered: tuple[str, ...]
    cost: Cost
    facts: tuple[tuple[str, str, str | None], ...]
    decision: Decision | None
    node_counts: tuple[int, ...]
    more_counts: tuple[int, ...]
    """Node counts that the table of headline figures has no room for."""
    glance: tuple[Glance, ...]
    sections: tuple[Section, ...]
    trend: str | None
    surroundings: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    readings: tuple[Reading, ...]
    events: tuple[Event, ...]
    more_events: int
    evidence: Evidence
    judged_by: str

    def arrow(self, line: Line) -> str:
        """Give a mark for a change that is more than its tolerance, and nothing for the others."""
        change = line.change
        if change is None or change.change is None or change.significant is False:
            return ""
        return {"worse": "▼", "better": "▲"}.get(change.direction, "")

    @property
    def decided(self) -> str:
        """What the last word on the run was."""
        if self.decision is None:
            return ""
        own = {"approve_baseline": "Approved as baseline", "revoke_baseline": "Approval taken back"}
        answered = "Accepted (and part of the baseline)" if self.decision.approved else "Rejected"
        return own.get(self.decision.kind, answered)

    @property
    def took(self) -> str:
        """From the first start to the last end."""
        return duration(self.cost.wall_s)


def collect_page(run: JudgedRun) -> Page:
    """Gather the page. Raises OutputError for a run that is not judged."""
    since = since_previous(run)
    changes = since.comparison.changes if since.comparison else ()
    lines = _with_series(run, collect_lines(run, changes))
    found = find(run)
    spent = cost(run)
    pictures = _Pictures()
    rises = events(run.launches)
    known = {line.node_count for line in lines if line.headline}
    counts = _shown_counts(known)
    return Page(
        run=run,
        stamps=tuple((name, STAMPS[name]) for name in run.stamps),
        sentence=_sentence(run, found),
        suspicions=told_suspicions(found),
        closing=tuple(item for item in found if item.blocks),
        others=tuple(item for item in found if not item.blocks),
        since=since,
        uncovered=tuple(_uncovered(run, found)),
        cost=spent,
        facts=tuple(_facts(run, spent)),
        decision=_decision(run),
        node_counts=counts,
        more_counts=tuple(sorted(known.difference(counts))),
        glance=tuple(_glance(lines, counts)),
        sections=tuple(_sections(run, lines, pictures)),
        trend=pictures.add(trend_figure(lines)),
        surroundings=tuple((name, tuple(values.most_common(6))) for name, values in surroundings(run.launches).items()),
        readings=tuple(readings(run.launches)),
        events=tuple(rises[:SHOWN_EVENTS]),
        more_events=max(0, len(rises) - SHOWN_EVENTS),
        evidence=collect_evidence(run),
        judged_by=_judged_by(run),
    )


class _Pictures:
    """Numbers the figures, so that ids stay unique on the page."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, figure: Figure | None) -> str | None:
        if figure is None:
            return None
        self.count += 1
        return inline(figure, self.count)


def _with_series(run: JudgedRun, lines: Sequence[Line]) -> list[Line]:
    """Give the headline lines their values over the last runs of the suite, as far as they are comparable."""
    versions = {spec.benchmark: spec.benchmark_version for spec in run.plan.launches}
    headlines = {line.indicator for line in lines if line.headline}
    loaded = load_history(
        run.run.path.parents[2], run.cluster, origin=run.origin, suite=run.suite_name, newest=TREND_RUNS - 1,
        before=run.run_id, indicators=headlines,
    )  # fmt: skip
    earlier = {
        (key.benchmark, key.indicator, key.params, key.node_count): [
            (point.run_id, point.value) for point in item.points
        ]
        for key, item in series(loaded, by_place=False).items()
        if versions.get(key.benchmark, key.benchmark_version) == key.benchmark_version
    }
    return [
        replace(line, series=(*earlier.get(line.key, ()), (run.run_id, value)))
        if line.headline and (value := line.last.median) is not None
        else line
        for line in lines
    ]


def _sentence(run: JudgedRun, found: Sequence[Finding]) -> str:
    """Say in one sentence how it stands."""
    coverage = run.summary["coverage"]
    closing = [item for item in found if item.blocks]
    counts = [
        plural(sum(item.kind is kind for item in closing), word)
        for kind, word in (
            (VerdictKind.FAIL, "failure"),
            (VerdictKind.INVALID, "invalid measurement"),
            (VerdictKind.NOT_RUN, "gap"),
            (VerdictKind.STALE, "stale place"),
            (VerdictKind.WARN, "blocking warning"),
        )
        if any(item.kind is kind for item in closing)
    ]
    warnings = sum(not item.blocks for item in found)
    start = ", ".join(counts) if counts else "nothing closes the gate"
    notes = f"; {plural(warnings, 'further note')}" if warnings else ""
    measured = (
        f"{coverage['measured']:,} of {plural(coverage['expected'], 'node')} and {coverage['rows_measured']:,} of "
        f"{coverage['rows_expected']:,} expected values measured"
    )
    return f"{start[0].upper()}{start[1:]}{notes}. {measured}."


def _uncovered(run: JudgedRun, found: Sequence[Finding]) -> Iterator[str]:
    """Say what of inventory and suite has no result, and why."""
    if words := asked_in_words(run.summary.get("asked", ())):
        yield f"not the suite as it is: {words}"
    inventory = {node.name for node in run.plan.inventory}
    planned = {node for spec in run.plan.launches for node in spec.nodes}
    measured = {
        node
        for item in run.launches
        if item["outcome"] == "exited" and item["exit_code"] == 0
        for node in item["nodes"]
    }
    named = {node for item in found if item.kind in UNCOVERED for node in item.component.members}
    if missing := sorted(inventory - planned - named):
        yield f"{plural(len(missing), 'node')} of {len(inventory)} not planned: {node_list(missing)}"
    if missing := sorted(planned - measured - named):
        yield f"{plural(len(missing), 'node')} planned and without a launch that ended well: {node_list(missing)}"
    for item in found:
        if item.kind in UNCOVERED:
            effect = "closes the gate" if item.blocks else "does not close the gate: the suite allows it for now"
            yield f"{item.title}: {item.problem} ({effect})"
    coverage = run.summary["coverage"]
    if coverage["rows_measured"] < coverage["rows_expected"]:
        lost = coverage["rows_expected"] - coverage["rows_measured"]
        yield f"{plural(lost, 'expected value')} without a measurement"


def _facts(run: JudgedRun, spent: Cost) -> Iterator[tuple[str, str, str | None]]:
    profile, environment = run.profile, _environment(run)
    accelerators = f"{profile.accelerator.per_node} × {profile.accelerator.model}"
    yield "Cluster", profile.title, None
    yield (
        "Inventory",
        f"{plural(len(run.plan.inventory), 'node')}, {accelerators} each, fabric {profile.fabric.name}",
        None,
    )
    again = spent.attempts - spent.launches
    yield "Launches", f"{spent.launches:,}" + (f", {plural(again, 'repeated attempt')}" if again > 0 else ""), None
    if words := compared_in_words(run.summary):
        yield "Compared", words, None
    if trigger := environment.get("trigger"):
        yield "Started by", str(trigger), None
    if planted := environment.get("planted"):
        yield "Planted", planted["words"], None
    if run.suite.note:
        yield "Note", run.suite.note, None
    yield "Run", run.run_id, None
    experiment = experiment_name(run.cluster, run.suite_name)
    yield "MLflow", f"experiment {experiment}, run {run.run_id}", run_url(run.run)
    yield "Evidence", f"manifest sha256 {run.run.manifest_sha256()[:16]}…", "../evidence/manifest.json"
    yield "Plumbline", str(environment.get("plumbline", "unknown")), None


def _environment(run: JudgedRun) -> Mapping[str, Any]:
    try:
        found = run.run.read_evidence("environment")
    except OutputError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _decision(run: JudgedRun) -> Decision | None:
    try:
        return approval(run.run)
    except OutputError:
        return None


def _shown_counts(counts: Collection[int]) -> tuple[int, ...]:
    """Choose the node counts of the headline table: all, or the ends and some between them."""
    known = sorted(counts)
    if len(known) <= MOST_COUNTS:
        return tuple(known)
    step = (len(known) - 1) / (MOST_COUNTS - 1)
    return tuple(dict.fromkeys(known[round(place * step)] for place in range(MOST_COUNTS)))


def _glance(lines: Sequence[Line], counts: Sequence[int]) -> Iterator[Glance]:
    for same in by_words(line for line in lines if line.headline).values():
        first = same[0]
        by_count = {line.node_count: line for line in same}
        parts = filter(None, (first.title, first.words, first.at))
        if not by_count.keys() & set(counts):
            continue
        yield Glance(
            benchmark=first.benchmark,
            title=", ".join(parts),
            unit=first.unit,
            cells=tuple(by_count.get(count) for count in counts),
        )


def _sections(run: JudgedRun, lines: Sequence[Line], pictures: _Pictures) -> Iterator[Section]:
    order = list(dict.fromkeys([batch.benchmark for batch in run.plan.batches] + [line.benchmark for line in lines]))
    specs = {spec.benchmark: spec for spec in run.plan.launches}
    for name in order:
        mine = [line for line in lines if line.benchmark == name]
        title, covers = _titles(name)
        launches = [item for item in run.launches if item["benchmark"] == name]
        spec = specs.get(name)
        kinds = [VerdictKind(row["kind"]) for row in run.verdicts if row["benchmark"] == name]
        yield Section(
            name=name,
            title=title,
            covers=covers,
            version=spec.benchmark_version if spec else "",
            params=tuple((key, str(value)) for key, value in spec.params.items() if value not in (None, ""))
            if spec
            else (),
            kind=max(kinds, key=list(VerdictKind).index, default=VerdictKind.NOT_RUN),
            lines=tuple(mine),
            figures=tuple(
                svg for figure in benchmark_figures(title, _measured(mine)) if (svg := pictures.add(figure)) is not None
            ),
            worst=tuple(worst_places(_measured(mine), run)) if len(run.plan.inventory) > 2 else (),
            launches=_launches(launches),
        )


def _measured(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.indicator != SHARE_OF_PEERS]


def _titles(name: str) -> tuple[str, str]:
    """Give a benchmark's title and what it covers; the name alone for one that this version does not know."""
    from plumbline.benchmarks import benchmark  # noqa: PLC0415 - imports every benchmark

    if name == INVENTORY:
        return "Inventory", "the cluster as a whole: how much of it was measured"
    try:
        module = benchmark(name)
    except PlumblineError:
        return name, ""
    return module.TITLE, module.COVERS


def _launches(launches: Sequence[Mapping[str, Any]]) -> str:
    if not launches:
        return ""
    seconds = [item["duration_s"] for item in launches if item["duration_s"] is not None]
    ends = list(dict.fromkeys(duration(end) for end in (min(seconds), max(seconds)))) if seconds else []
    span = f", {' to '.join(ends)}{' each' if len(launches) > 1 else ''}" if ends else ""
    return f"{plural(len(launches), 'launch', 'launches')}{span}"


def _judged_by(run: JudgedRun) -> str:
    try:
        data = run.run.read_derived("gx.json")
        count = data["statistics"]["evaluated_expectations"]
        return f"great-expectations, {plural(int(count), 'expectation')} over {len(run.verdicts):,} items"
    except (OutputError, KeyError, TypeError, ValueError):
        return f"great-expectations, {len(run.verdicts):,} items"
