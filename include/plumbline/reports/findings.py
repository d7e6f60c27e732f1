"""From reasons to findings: one for each component that somebody has to look at, with evidence and a ticket's text.

What a launch's failure cost (its missing values) is part of that failure, not a finding of its own. The same fault on
many nodes is one finding: its cause is hardly in any one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plumbline.amounts import node_list
from plumbline.model import Code, VerdictKind, to_plain
from plumbline.reports.actions import advice
from plumbline.reports.counts import indicators_without_baseline
from plumbline.reports.suspects import Suspicion, launch_of, suspicions
from plumbline.reports.wording import plural
from plumbline.suites.suite import ALWAYS_BLOCKING
from plumbline.tracking.judged_run import JudgedRun, Row
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.gate import GAP_CODES

SHOWN_EVIDENCE = 12
"""Items of evidence that a finding carries; the count says how many there are."""
MANY = 6
"""The same fault on so many components is one finding about all of them."""
_IDENTITY = ("hostname", "hardware_id", "product_name", "product_serial", "board_serial")
_ORDER = {kind: place for place, kind in enumerate(reversed(VerdictKind))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """What a finding is about: a node, nodes, a group, storage, a benchmark, or the run."""

    type: str
    name: str
    members: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)
    """Serials and the like, where the evidence has them: a host name may be another machine tomorrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to look at. `missing_values` are expected values that its launches did not yield.

    `suspect` says what the bad groups that it is about have in common with the run's others.
    """

    id: str
    kind: VerdictKind
    code: str
    codes: tuple[str, ...]
    blocks: bool
    component: Component
    benchmarks: tuple[str, ...]
    title: str
    problem: str
    evidence: tuple[Mapping[str, Any], ...]
    evidence_count: int
    missing_values: int
    suggested_action: str
    ticket: Mapping[str, str]
    suspect: Suspicion | None = None


def findings(run: RunDirectory) -> list[dict[str, Any]]:
    """Give the content of findings.json: what is not a PASS, what closes the gate first."""
    return [to_plain(item) for item in find(JudgedRun(run))]


def find(run: JudgedRun) -> list[Finding]:
    """Put the reasons of a judged run together into findings, worst first."""
    reasons = [dict(item) for item in run.summary["reasons"]]
    for item in reasons:
        item["blocks"] = blocks(item, run)
    causes = _causes(run.verdicts)
    lost = Counter(
        row["launch_id"] for row in run.verdicts if row["item"] == "row" and row["actual"] is None and row["launch_id"]
    )
    launches = {item["launch_id"]: item for item in run.launches}
    faulty = faulty_nodes(reasons)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for reason in reasons:
        if not _is_consequence(reason, causes):
            groups.setdefault(_key(reason, explaining_node(reason, launches, faulty)), []).append(reason)
    common = suspicions(run)
    found = [_finding(run, members, lost, launches, common) for members in _merged(list(groups.values()))]
    found.sort(key=lambda item: (not item.blocks, _ORDER[item.kind], -item.evidence_count, item.id))
    return _with_own_ids(found)


def told_suspicions(found: Iterable[Finding]) -> tuple[Suspicion, ...]:
    """Give what findings say that bad groups have in common, each statement once."""
    return tuple({item.suspect.text: item.suspect for item in found if item.suspect is not None}.values())


def _with_own_ids(found: Iterable[Finding]) -> list[Finding]:
    """Number the ids that occur again: they are anchors on the report's page."""
    seen: Counter[str] = Counter()
    named = []
    for item in found:
        seen[item.id] += 1
        named.append(item if seen[item.id] == 1 else replace(item, id=f"{item.id}-{seen[item.id]}"))
    return named


def blocks(reason: Row, run: JudgedRun) -> bool:
    """Say whether a reason closes this run's gate: as verdict.json says, else by the suite's policy."""
    if "blocks" in reason:
        return bool(reason["blocks"])
    kind = VerdictKind(reason["verdict"])
    tolerated = run.suite.gate.coverage_gaps_allowed and reason["code"] in GAP_CODES
    return kind in {*run.suite.gate.blocks, *ALWAYS_BLOCKING} and not tolerated


def _causes(verdicts: Iterable[Row]) -> set[str]:
    """Give the launches that have a verdict of their own, which explains what they did not yield."""
    harmless = (VerdictKind.PASS, VerdictKind.WARN)
    return {
        str(row["launch_id"])
        for row in verdicts
        if row["item"] != "row" and row["launch_id"] and not row["indicator"] and row["kind"] not in harmless
    }


def _is_consequence(reason: Row, causes: Iterable[str]) -> bool:
    """A missing value of a launch that has a verdict of its own is no news: one row, or its rows put together."""
    launch_id = launch_of(reason)
    rows = bool(reason.get("indicator")) or reason["place"] == reason.get("launch_id")
    return reason["verdict"] == VerdictKind.NOT_RUN and rows and launch_id in causes


def faulty_nodes(reasons: Iterable[Row]) -> set[str]:
    """Give the nodes that failed on their own."""
    return {str(r["node"]) for r in reasons if r["verdict"] == VerdictKind.FAIL and r.get("node")}


def explaining_node(reason: Row, launches: Mapping[str, Row], faulty: set[str]) -> str | None:
    """Give the node that explains the slowness of a group: a member that is too slow on its own; None without one."""
    launch = launches.get(launch_of(reason))
    if reason["verdict"] != VerdictKind.FAIL or reason.get("node") or not _is_row(reason) or launch is None:
        return None
    return min(faulty.intersection(launch["nodes"]), default=None)


def _key(reason: Row, explained_by: str | None) -> tuple[Any, ...]:
    """Say which reasons belong together.

    A node's faults are one finding, with those of the groups that it slows. Warnings go by benchmark, the rest by what
    and where.
    """
    kind, code, node = reason["verdict"], reason["code"], reason.get("node")
    if code == Code.NO_BASELINE:
        return kind, code
    if kind == VerdictKind.WARN and reason.get("benchmark"):
        return kind, code, reason["benchmark"]
    if kind == VerdictKind.FAIL and (node or explained_by):
        return kind, "node", node or explained_by
    if kind == VerdictKind.FAIL and _is_row(reason):
        return kind, "group", reason.get("benchmark"), reason.get("node_count"), reason.get("group")
    where = node or (reason.get("node_count"), reason.get("group"))
    about = (reason.get("benchmark"), reason.get("indicator"))
    return kind, code, about, where if any(about) or node else reason["place"]


def _merged(groups: Sequence[list[Row]]) -> Iterator[list[Row]]:
    """Put the same fault on many components together."""
    alike: dict[tuple[Any, ...], list[list[Row]]] = {}
    for members in groups:
        faults = tuple(
            sorted({(r["verdict"], r["code"], r.get("benchmark"), r.get("indicator")) for r in members}, key=str)
        )
        alike.setdefault(faults, []).append(members)
    for same in alike.values():
        if len(same) >= MANY:
            yield [reason for members in same for reason in members]
        else:
            yield from same


def _finding(
    run: JudgedRun,
    members: Sequence[Row],
    lost: Mapping[str, int],
    launches: Mapping[str, Row],
    common: Mapping[str, Suspicion],
) -> Finding:
    members = sorted(members, key=lambda r: (_ORDER[VerdictKind(r["verdict"])], not r.get("node"), _is_row(r)))
    first = members[0]
    kind, code = VerdictKind(first["verdict"]), str(first["code"])
    component = _component(run, members, launches)
    missing = sum(lost.get(name, 0) for name in {str(r.get("launch_id")) for r in members if not _is_row(r)})
    codes = tuple(dict.fromkeys(str(r["code"]) for r in members))
    evidence = tuple(_evidence(r, launches) for r in _spread(members))
    problem = _nothing_to_compare(run, members) if code == Code.NO_BASELINE else _problem(members, component, missing)
    title = f"{component.name}: {advice(code).label}"
    action = " ".join(dict.fromkeys(advice(c).action for c in codes[:3])).replace("{run_id}", run.run_id)
    about = (common.get(launch_of(r)) for r in members if r["verdict"] == VerdictKind.FAIL)
    suspect = next((item for item in about if item is not None), None)
    return Finding(
        id=f"{kind.value.lower()}-{component.type}-{component.name}-{code}".replace(" ", "-"),
        kind=kind,
        code=code,
        codes=codes,
        blocks=any(r["blocks"] for r in members),
        component=component,
        benchmarks=tuple(sorted({r["benchmark"] for r in members if r.get("benchmark")})),
        title=title,
        problem=problem,
        evidence=evidence,
        evidence_count=len(members),
        missing_values=missing,
        suggested_action=action,
        ticket=_ticket(run, kind, title, problem, component, evidence, len(members), action, suspect),
        suspect=suspect,
    )


def _spread(members: Sequence[Row]) -> list[Row]:
    """Choose the evidence to show: one of each indicator and place first, then the others."""
    first: dict[tuple[Any, ...], Row] = {}
    for reason in members:
        first.setdefault((reason.get("benchmark"), reason.get("indicator"), reason.get("node_count")), reason)
    chosen = [*first.values(), *(r for r in members if all(r is not other for other in first.values()))]
    return chosen[:SHOWN_EVIDENCE]


def _is_row(reason: Row) -> bool:
    return bool(reason.get("indicator"))


def _component(run: JudgedRun, members: Sequence[Row], launches: Mapping[str, Row]) -> Component:
    if all(r["code"] == Code.NO_BASELINE for r in members):
        return Component(type="run", name=plural(indicators_without_baseline(members), "indicator"))
    if any(r["code"] == Code.STORAGE_UNAVAILABLE for r in members):
        return Component(type="storage", name=run.profile.storage.name)
    if nodes := sorted({r["node"] for r in members if r.get("node")}):
        name = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
        identity = _identity(nodes[0], launches) if len(nodes) == 1 else {}
        return Component(type="node" if len(nodes) == 1 else "nodes", name=name, members=tuple(nodes),
                         identity=identity)  # fmt: skip
    return _wider_component(members, launches)


def _wider_component(members: Sequence[Row], launches: Mapping[str, Row]) -> Component:
    """Name a group of nodes, a benchmark at some scale, or a place that is neither."""
    ids = sorted({r["launch_id"] for r in members if r.get("launch_id") in launches})
    involved = tuple(sorted({node for launch_id in ids for node in launches[launch_id]["nodes"]}))
    benchmarks = sorted({r["benchmark"] for r in members if r.get("benchmark")})
    if len(ids) == 1:
        kind = "node" if len(involved) == 1 else "group"
        return Component(type=kind, name=_group_name(launches[ids[0]]), members=involved)
    if benchmarks:
        counts = sorted({int(r["node_count"]) for r in members if r.get("node_count")})
        scale = f" at {', '.join(map(str, counts))} node{'s' if counts != [1] else ''}" if counts else ""
        return Component(type="benchmark", name=f"{', '.join(benchmarks)}{scale}", members=involved)
    places = tuple(dict.fromkeys(r["place"] for r in members))
    return Component(type="place", name=places[0] if len(places) == 1 else f"{len(places)} places", members=places)


def _group_name(launch: Row) -> str:
    nodes = launch["nodes"]
    if len(nodes) == 1:
        return str(nodes[0])
    return f"{launch['benchmark']} at {plural(launch['node_count'], 'node')}, group {launch['group']}"


def _identity(node: str, launches: Mapping[str, Row]) -> dict[str, Any]:
    for launch in launches.values():
        if list(launch["nodes"]) == [node] and launch.get("hardware"):
            return {key: launch["hardware"][key] for key in _IDENTITY if launch["hardware"].get(key)}
    return {}


def _nothing_to_compare(run: JudgedRun, members: Sequence[Row]) -> str:
    names = sorted({str(r["benchmark"]) for r in members if r.get("benchmark")})
    bare = sum(row["code"] == Code.NO_BASELINE for row in run.verdicts)
    about = f"{', '.join(names)}: " if names else ""
    return f"{about}{plural(bare, 'value has', 'values have')} nothing to compare with yet"


def _problem(members: Sequence[Row], component: Component, missing: int) -> str:
    first = members[0]
    where = "" if first["place"] == component.name else f"{first['place']}: "
    text = f"{where}{_named(first)}{first['message']}"
    alone = sum(bool(r.get("node")) for r in members)
    groups = len({(r.get("benchmark"), r.get("node_count"), r.get("group")) for r in members if not r.get("node")})
    if component.type == "node" and alone and groups:
        more = f"{alone - 1} more on its own, and " if alone > 1 else ""
        text += f" ({more}{groups} group{'s' if groups > 1 else ''} that it was in)"
    elif len(members) > 1:
        text += f" (and {len(members) - 1} more)"
    if missing:
        text += f"; {missing} value{'s' if missing > 1 else ''} missing for it"
    return text


def _named(reason: Row) -> str:
    return f"{reason['indicator']} " if reason.get("indicator") and reason["indicator"] not in reason["message"] else ""


def _evidence(reason: Row, launches: Mapping[str, Row]) -> dict[str, Any]:
    names = ("verdict", "code", "place", "benchmark", "indicator", "node_count", "params", "expected", "actual", "unit")
    found = {name: reason.get(name) for name in (*names, "message", "reference", "launch_id")}
    launch = launches.get(launch_of(reason))
    if launch is not None and launch.get("raw_dir"):
        found["raw"] = f"evidence/{launch['raw_dir']}"
        found["record"] = f"evidence/records/{launch['raw_dir'].rpartition('/')[2]}.json"
        found["nodes"] = list(launch["nodes"])
    return {key: value for key, value in found.items() if value is not None}


def _ticket(
    run: JudgedRun,
    kind: VerdictKind,
    title: str,
    problem: str,
    component: Component,
    evidence: Sequence[Mapping[str, Any]],
    count: int,
    action: str,
    suspect: Suspicion | None,
) -> dict[str, str]:
    lines = [
        f"{kind.value}: {problem}",
        "",
        f"Cluster {run.cluster}, suite {run.suite_name}, run {run.run_id} ({run.origin.value}, {run.device.value}).",
        f"Component: {component.type} {component.name}" + _members(component),
    ]
    lines += [f"  {key}: {value}" for key, value in component.identity.items()]
    if suspect is not None:
        lines.append(f"{suspect.label}: {suspect.text}")
    lines += ["", "Evidence:"] + [f"- {_evidence_line(item)}" for item in evidence]
    if count > len(evidence):
        lines.append(f"- … and {count - len(evidence)} more, see derived/findings.json and derived/verdict.json")
    lines += ["", f"Suggested: {action}", "", f"Evidence sealed as {run.run.manifest_sha256()}."]
    return {"title": f"[{run.cluster}] {title}", "text": "\n".join(lines)}


def _members(component: Component) -> str:
    if len(component.members) < 2:
        return ""
    return f" ({node_list(component.members)})"


def _evidence_line(item: Mapping[str, Any]) -> str:
    actual = f" measured {item['actual']:.6g} {item.get('unit', '')}" if "actual" in item else ""
    expected = f", expected {item['expected']}" if "expected" in item else ""
    raw = f" [{item['raw']}]" if "raw" in item else ""
    name = f" {item['indicator']}" if "indicator" in item else ""
    params = f" {item['params']}" if item.get("params") not in (None, "{}") else ""
    return f"{item['place']}:{name}{params}{actual}{expected} – {item['message']}{raw}"
