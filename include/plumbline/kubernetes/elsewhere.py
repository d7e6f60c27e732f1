"""Which node stands in for one that infrastructure took out of a launch. Pure; standard library only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.model import LaunchSpec

PLACES = ("nvlink_domain", "leaf", "rack")
"""The closer a substitute is to the lost node, the more the launch is still the one that was planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A launch that is tried again: as planned, the nodes that stood in already, and the node to blame, if known."""

    spec: LaunchSpec
    replaced: Mapping[str, str]
    blamed: str | None


def substitutes(
    inventory: Sequence[Mapping[str, Any]], retries: Sequence[Retry], bad: Collection[str]
) -> dict[str, dict[str, str]]:
    """Give {planned node: substitute} for each launch that is tried again, by launch id.

    `inventory` holds the plan's usable nodes as plain data; nodes in `bad` were to blame before in this batch. A launch
    of one node is tried on that node only: another one's figures would say nothing of it, and it has its own launch.
    Where no node is free the launch keeps its nodes.
    """
    by_name = {str(node["name"]): node for node in inventory}
    taken = {node for retry in retries for node in retry.spec.placed(retry.replaced).nodes} | set(bad)
    found = {}
    for retry in retries:
        replaced = dict(retry.replaced)
        free = [node for name, node in by_name.items() if name not in taken and name not in retry.spec.nodes]
        if retry.blamed is not None and len(retry.spec.nodes) > 1 and free:
            lost = by_name.get(retry.blamed, {})
            best = min(free, key=lambda node, lost=lost: tuple(_differences(node, lost)))  # type: ignore[misc]
            planned = next((p for p, now in replaced.items() if now == retry.blamed), retry.blamed)
            replaced[planned] = str(best["name"])
            taken.add(str(best["name"]))
        found[retry.spec.launch_id] = replaced
    return found


def _differences(node: Mapping[str, Any], lost: Mapping[str, Any]) -> Iterator[bool]:
    return (node.get(place) != lost.get(place) for place in PLACES)
