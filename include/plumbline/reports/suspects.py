"""What the bad groups of a run have in common: a statement with its evidence, which judges nothing.

A group is bad with a FAIL on it or on a node in it, and good when it passed what the bad ones failed. What was neither
(invalid, missing, waived, near a limit, without one) speaks for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from plumbline.amounts import node_list, plural
from plumbline.analysis.localisation import (
    BETWEEN_LEAVES,
    LEAF,
    NODE,
    NVLINK_DOMAIN,
    RACK,
    UPLINKS,
    Candidate,
    Group,
    Localisation,
    localise,
)
from plumbline.clusters.inventory import Inventory, InventoryNode
from plumbline.model import Code, Outcome, VerdictKind
from plumbline.reports.counts import at_nodes
from plumbline.tracking.judged_run import JudgedRun, Row

NAMED = 6
"""Suspects that the sentence names."""
SHOWN_SUSPECTS = 64
"""Suspects that findings.json has with their evidence: every finding of the bad groups repeats them."""
SHOWN_GROUPS = 12
"""Groups listed as evidence; the counts say how many there are."""
SHOWN_NODES = 16
"""Larger groups are listed without their nodes, which launches.json has."""
_DERIVED = "derived-"
_PLACES = {NVLINK_DOMAIN: "NVLink domain", LEAF: "leaf", RACK: "rack"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What some benchmarks' bad groups have in common. Without `suspects` it says that nothing is.

    `text` is the sentence for people, with `label` before it. `suspects` are the first of `suspect_count`, `bad` lists
    the first bad groups, `undecided` counts those that were neither bad nor good.
    """

    label: str
    text: str
    suspects: tuple[Mapping[str, Any], ...]
    suspect_count: int
    benchmarks: tuple[str, ...]
    bad_groups: int
    good_groups: int
    undecided: int
    bad: tuple[Mapping[str, Any], ...]
    uncleared: tuple[Mapping[str, Any], ...] = ()
    """Without a suspect: the first of the nodes that are in bad groups only."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """One group of nodes at one benchmark, its repeats together."""

    benchmark: str
    nodes: tuple[str, ...]
    launches: tuple[Row, ...]
    bad: bool
    good: bool

    @property
    def launch_ids(self) -> list[str]:
        return [launch["launch_id"] for launch in self.launches]

    @property
    def place(self) -> dict[str, Any]:
        first = self.launches[0]
        found = {name: first[name] for name in ("benchmark", "node_count", "group")}
        nodes = {"nodes": list(self.nodes)} if len(self.nodes) <= SHOWN_NODES else {}
        return {**found, **nodes, "launch_ids": self.launch_ids}


def suspicions(run: JudgedRun) -> dict[str, Suspicion]:
    """Say what the bad groups have in common, by launch: all of them, or else those of each benchmark by itself.

    Nothing is said of a single bad node, which its finding names, nor of emulated nodes: those are one machine.
    """
    if run.profile.nodes.emulated is not None:
        return {}
    groups = _groups(run)
    names = sorted({group.benchmark for group in groups if group.bad})
    sets = [groups]
    together = _stated(groups, run)
    if together is not None and not together.suspects and len(names) > 1:
        sets = [[group for group in groups if group.benchmark == name] for name in names]
    stated = [(same, together if same is groups else _stated(same, run)) for same in sets]
    return {
        launch_id: found
        for same, found in stated
        if found is not None
        for group in same
        if group.bad
        for launch_id in group.launch_ids
    }


def launch_of(row: Row) -> str:
    """Give the launch that a row or a reason is about; what was derived from one is about it too."""
    return str(row.get("launch_id") or "").removeprefix(_DERIVED)


# -- bad and good ----------------------------------------------------------------------------------------------------


def _groups(run: JudgedRun) -> list[_Measured]:
    """Give the measured groups of every benchmark that has a bad one, in the order of the launches."""
    launches = {item["launch_id"]: item for item in run.launches}
    failed: dict[str, set[str | None]] = {}
    bad: set[str] = set()
    for reason in run.summary["reasons"]:
        launch = launches.get(launch_of(reason))
        if reason["verdict"] == VerdictKind.FAIL and launch is not None:
            bad.add(launch["launch_id"])
            failed.setdefault(launch["benchmark"], set()).add(reason.get("indicator"))
    passed, spoiled = _passed(run.verdicts, failed) if failed else (set(), set())
    units: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for item in run.launches:
        if item["benchmark"] in failed:
            units.setdefault((item["benchmark"], tuple(item["nodes"])), []).append(item)
    found = []
    for (benchmark, nodes), same in units.items():
        ids = {item["launch_id"] for item in same}
        asked = any(failed[benchmark])  # else only whole launches failed, and a good one is one that ended well
        well = ids & passed if asked else {item["launch_id"] for item in same if _ended_well(item)}
        good = well == ids and not ids & (spoiled | bad)
        found.append(_Measured(benchmark, nodes, tuple(same), bool(ids & bad), good))
    return found


def _passed(verdicts: Iterable[Row], failed: Mapping[str, set[str | None]]) -> tuple[set[str], set[str]]:
    """Give the launches that passed an indicator that others of their benchmark failed, and those with other faults."""
    passed: set[str] = set()
    spoiled: set[str] = set()
    for row in verdicts:
        wanted = failed.get(row["benchmark"])
        if wanted is None or row["code"] == Code.NO_BASELINE:
            continue
        if row.get("item", "row") != "row":
            if row["kind"] not in (VerdictKind.PASS, VerdictKind.WARN):
                spoiled.add(launch_of(row))
        elif row["indicator"] in wanted:
            (passed if row["kind"] == VerdictKind.PASS else spoiled).add(launch_of(row))
    return passed, spoiled


def _ended_well(launch: Row) -> bool:
    return bool(launch["outcome"] == Outcome.EXITED and launch["exit_code"] == 0)


# -- the statement ---------------------------------------------------------------------------------------------------


def _stated(groups: Sequence[_Measured], run: JudgedRun) -> Suspicion | None:
    """State what the bad ones among these groups have in common; None where there is nothing to compare.

    A single node that passed alone clears nobody where none failed alone: what is wrong between nodes isn't seen there.
    """
    bad = [group for group in groups if group.bad]
    if not bad or (len(bad) == 1 and len(bad[0].nodes) == 1):
        return None
    sensitive = {group.benchmark for group in bad if len(group.nodes) == 1}
    good = [group for group in groups if group.good and (len(group.nodes) > 1 or group.benchmark in sensitive)]
    alone = {group.nodes[0] for group in groups if group.good and len(group.nodes) == 1} - {
        group.nodes[0] for group in groups if not group.good and len(group.nodes) == 1
    }
    compared = [*bad, *good]
    found = localise(_trials(compared), _parts(run.plan.inventory))
    if not found.suspects and all(len(group.nodes) == 1 for group in bad):
        return None  # single nodes, each of which its finding names
    where = {node.name: node for node in run.plan.inventory}
    return Suspicion(
        label={0: "No suspect", 1: "Suspect"}.get(len(found.suspects), "Suspects"),
        text=_sentence(found, bad, good, alone, where),
        suspects=tuple(_suspect(item, compared, where) for item in found.suspects[:SHOWN_SUSPECTS]),
        suspect_count=len(found.suspects),
        benchmarks=tuple(sorted({group.benchmark for group in bad})),
        bad_groups=len(bad),
        good_groups=len(good),
        undecided=sum(not group.bad and not group.good for group in groups),
        bad=tuple(group.place for group in bad[:SHOWN_GROUPS]),
        uncleared=tuple({"name": item.name, "bad_groups": len(item.bad)} for item in found.uncleared[:SHOWN_SUSPECTS]),
    )


def _trials(compared: Sequence[_Measured]) -> list[Group]:
    """Give the groups; where a rung had no bad one, its good ones speak once: all of its nodes passed there."""
    failed = {(group.benchmark, len(group.nodes)) for group in compared if group.bad}
    rungs = [(group.benchmark, len(group.nodes)) for group in compared]
    return [
        Group(nodes=frozenset(group.nodes), bad=group.bad, trial=None if rung in failed else f"{rung[0]}-n{rung[1]}")
        for group, rung in zip(compared, rungs, strict=True)
    ]


def _parts(inventory: Inventory) -> dict[str, dict[str, frozenset[str]]]:
    """Give the nodes of every leaf, rack and NVLink domain that the inventory knows."""
    parts: dict[str, dict[str, set[str]]] = {}
    for node in inventory:
        for kind in _PLACES:
            if name := getattr(node, kind):
                parts.setdefault(kind, {}).setdefault(name, set()).add(node.name)
    return {kind: {name: frozenset(nodes) for name, nodes in found.items()} for kind, found in parts.items()}


def _suspect(item: Candidate, compared: Sequence[_Measured], where: Mapping[str, InventoryNode]) -> dict[str, Any]:
    """Give one suspect as evidence: how many groups it is in, and which good ones speak against it."""
    node = where.get(item.name) if item.kind == NODE else None
    known = {kind: name for kind in _PLACES if (name := getattr(node, kind, None))}
    against = [compared[place].place for place in item.good[:SHOWN_GROUPS]]
    return {
        "type": item.kind, "name": item.name or "links between leaves", **known, "bad_groups": len(item.bad),
        "good_groups": len(item.good), "good": against,
    }  # fmt: skip


def _sentence(
    found: Localisation,
    bad: Sequence[_Measured],
    good: Sequence[_Measured],
    alone: set[str],
    where: Mapping[str, InventoryNode],
) -> str:
    if not found.suspects:
        return _nothing(found, bad, len(good))
    nodes = [item.name for item in found.suspects if item.kind == NODE]
    several = len(found.suspects) > 1
    many = {1: "the one bad group", 2: "both bad groups"}.get(len(bad), f"all {len(bad)} bad groups")
    text = f"{_names(found.suspects)}{_where(found.suspects, where)}: {'each is ' if several else ''}in {many} "
    text += f"({_rungs(bad)}){_against(len(found.suspects[0].good), len(good))}"
    if several:
        text += "; nothing measured tells them apart"
    if nodes and len(nodes) <= NAMED and alone.issuperset(nodes):
        text += f"; measured alone, {'each' if len(nodes) > 1 else 'it'} passed"
    if good and min(len(g.nodes) for g in bad) > max(len(g.nodes) for g in good):
        larger = "the bad group is" if len(bad) == 1 else "the bad groups are"
        text += f"; {larger} also larger than every good one, which may be all there is to it"
    return text


def _where(suspects: Sequence[Candidate], inventory: Mapping[str, InventoryNode]) -> str:
    """Say where the suspected nodes are, if all are at one place: ' (leaf002, rack001)'."""
    found = {
        tuple(filter(None, (getattr(inventory.get(item.name), kind, None) for kind in _PLACES)))
        for item in suspects
        if item.kind == NODE
    }
    place = ", ".join(found.pop()) if len(found) == 1 else ""
    return f" ({place})" if place and all(item.kind == NODE for item in suspects) else ""


def _against(against: int, good: int) -> str:
    """Say how many good groups each of the suspects is in."""
    if not good:
        return "; no group was good"
    if not against:
        return " and not in the one good one" if good == 1 else f" and in none of the {good} good ones"
    return f" and in {against} of the {good} good ones, which {'speaks' if against == 1 else 'speak'} against it"


def _names(suspects: Sequence[Candidate]) -> str:
    words = [_name(item) for item in suspects]
    if len(words) > NAMED:
        return f"one of {len(words)} ({node_list(words, NAMED)})"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _name(item: Candidate) -> str:
    """Name a suspect with what it is, where its own name doesn't say so: 'leaf002', 'rack 7'."""
    if item.kind == BETWEEN_LEAVES:
        return "the links between leaves"
    if item.kind == UPLINKS:
        return f"the uplinks of {_named(LEAF, item.name)}"
    return _named(item.kind, item.name)


def _named(kind: str, name: str) -> str:
    word = _PLACES.get(kind, "")
    return name if name.lower().startswith(word.lower()) else f"{word} {name}"


def _nothing(found: Localisation, bad: Sequence[_Measured], good: int) -> str:
    """Say that nothing is common, and which nodes no good group clears."""
    groups = f"{plural(len(bad), 'bad group')} ({_rungs(bad)})"
    if found.shared:
        return f"nothing tells a part from the others: what is in the {groups} is in as many of the {good} good ones"
    text = f"no node, leaf or rack is in all {groups} and missing from good ones: more than one fault, or none of these"
    if found.uncleared:
        shown = ", ".join(f"{item.name} ({len(item.bad)})" for item in found.uncleared[:NAMED])
        more = f" and {len(found.uncleared) - NAMED} more" if len(found.uncleared) > NAMED else ""
        text += f"; in bad groups only, and in how many: {shown}{more}"
    return text


def _rungs(groups: Iterable[_Measured]) -> str:
    """Name benchmarks and node counts: 'nccl_tests at 2, 4 and 8 nodes; fio at 1 node'."""
    rungs = sorted({(group.benchmark, len(group.nodes)) for group in groups})
    by_benchmark = groupby(rungs, key=lambda rung: rung[0])
    return "; ".join(at_nodes(benchmark, [count for _, count in same]) for benchmark, same in by_benchmark)
