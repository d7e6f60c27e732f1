"""What the bad groups of a night have in common: sets of nodes in, candidates with their counts out. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

NODE, LEAF, RACK, NVLINK_DOMAIN = "node", "leaf", "rack", "nvlink_domain"
UPLINKS = "uplinks"
"""What joins one leaf to the others: in every group that has nodes of that leaf and of another one."""
BETWEEN_LEAVES = "between_leaves"
"""What joins the leaves, whichever they are: in every group that has nodes of several."""

Parts = Mapping[str, Mapping[str, frozenset[str]]]
"""LEAF, RACK and NVLINK_DOMAIN → the name of each that is known → its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes that were measured together: their result was bad, or good.

    Good groups of the same `trial` speak for a part once, however many of them it is in: where everything passed, a
    node that was measured twice there, to make up another's group, is no better than one that was measured once.
    """

    nodes: frozenset[str]
    bad: bool
    trial: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A part of the cluster and the groups that it is in, as places in the list of all.

    `good` speaks against it, as `against` voices: groups of the same trial are one.
    """

    kind: str
    name: str
    bad: tuple[int, ...]
    good: tuple[int, ...]
    against: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Localisation:
    """What is in every bad group and in the fewest good ones: several where the groups can't tell them apart.

    Without such a part, `shared` says whether any node was in all bad groups, and `uncleared` are the nodes that
    are in bad groups only, those of the most bad groups first.
    """

    suspects: tuple[Candidate, ...]
    shared: bool
    uncleared: tuple[Candidate, ...] = ()


def localise(groups: Sequence[Group], parts: Parts | None = None) -> Localisation:
    """Find the parts that are in every bad group and in the fewest good ones.

    A part of several nodes is in a group that has any of them. What is in every group, good ones too, tells nothing,
    nor does a kind of part of which every member would be named. A part of one node, or of the same nodes as another,
    isn't named beside it. There is no suspect without a bad group.
    """
    bad = [place for place, group in enumerate(groups) if group.bad]
    voices = _voices(groups, (place for place, group in enumerate(groups) if not group.bad))
    if not bad:
        return Localisation(suspects=(), shared=False)
    kinds = [list(found) for found in _candidates(groups, parts or {})]
    common = [[item for item in found if len(item.bad) == len(bad)] for found in kinds]
    telling = [_least(found) for found, all_of_kind in zip(common, kinds, strict=True)
               if not _names_everything(_least(found), all_of_kind)]  # fmt: skip
    suspects = _least([item for item in chain.from_iterable(telling) if _leaves_out(item, voices)])
    if suspects:
        return Localisation(suspects=tuple(suspects), shared=True)
    uncleared = sorted((item for item in kinds[0] if item.bad and not item.good), key=lambda item: -len(item.bad))
    return Localisation(suspects=(), shared=bool(common[0]), uncleared=tuple(uncleared))


def _candidates(groups: Sequence[Group], parts: Parts) -> Iterator[Iterator[Candidate]]:
    """Give the candidates of each kind, nodes first."""
    names = sorted(frozenset().union(*(group.nodes for group in groups)))
    places: dict[str, set[int]] = {name: set() for name in names}
    for place, group in enumerate(groups):
        for node in group.nodes:
            places[node].add(place)
    yield (_candidate(NODE, name, places[name], groups) for name in names)
    seen: set[frozenset[str]] = set()
    for kind in (NVLINK_DOMAIN, LEAF, RACK):
        own = {name: nodes for name, nodes in parts.get(kind, {}).items() if len(nodes) > 1 and nodes not in seen}
        seen.update(own.values())
        touched = {name: set().union(*(places.get(node, ()) for node in nodes)) for name, nodes in own.items()}
        yield (_candidate(kind, name, touched[name], groups) for name in sorted(touched) if touched[name])
    leaf_of = {node: name for name, nodes in parts.get(LEAF, {}).items() for node in nodes}
    leaves = [{leaf_of[node] for node in group.nodes if node in leaf_of} for group in groups]
    spanning = {place for place, found in enumerate(leaves) if len(found) > 1}
    joined = sorted(set().union(*(leaves[place] for place in spanning)))
    yield (_candidate(UPLINKS, leaf, {p for p in spanning if leaf in leaves[p]}, groups) for leaf in joined)
    yield iter([_candidate(BETWEEN_LEAVES, "", spanning, groups)] if spanning else [])


def _candidate(kind: str, name: str, places: set[int], groups: Sequence[Group]) -> Candidate:
    held = sorted(places)
    good = tuple(place for place in held if not groups[place].bad)
    bad = tuple(place for place in held if groups[place].bad)
    return Candidate(kind=kind, name=name, bad=bad, good=good, against=_voices(groups, good))


def _voices(groups: Sequence[Group], places: Iterable[int]) -> int:
    """Count groups, those of the same trial once."""
    return len({groups[place].trial or place for place in places})


def _least(found: Sequence[Candidate]) -> list[Candidate]:
    """Give those that the fewest voices speak against."""
    fewest = min((item.against for item in found), default=0)
    return [item for item in found if item.against == fewest]


def _names_everything(found: Sequence[Candidate], all_of_kind: Sequence[Candidate]) -> bool:
    return len(found) == len(all_of_kind) > 1


def _leaves_out(item: Candidate, voices: int) -> bool:
    """Say whether good groups do without it. Where nothing was good, only the bad groups tell nodes apart."""
    return item.against < voices or (not voices and item.kind == NODE)
