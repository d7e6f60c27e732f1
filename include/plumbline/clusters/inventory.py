"""Inventory: which nodes there are, which may be measured, and why the others not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from plumbline.clusters.profile import ClusterProfile
from plumbline.model import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryNode:
    """One node. `unusable` is None where it may be measured; otherwise code and reason of its NOT_RUN."""

    name: str
    leaf: str | None = None
    rack: str | None = None
    nvlink_domain: str | None = None
    unusable: Code | None = None
    reason: str = ""
    software: Mapping[str, str] = field(default_factory=dict)
    """What the node says that it runs: kernel, driver, kubelet, runtime. Only what is known."""


Inventory = tuple[InventoryNode, ...]


def static_inventory(profile: ClusterProfile, today: date) -> Inventory:
    """Give the inventory that the profile alone knows, with its exclusions applied. Order is that of the profile."""
    nodes = _named_nodes(profile)
    excluded = exclusions_in_force(profile, today)
    return tuple(
        InventoryNode(
            name=node.name,
            leaf=node.leaf,
            rack=node.rack,
            nvlink_domain=node.nvlink_domain,
            unusable=Code.EXCLUDED if node.name in excluded else None,
            reason=excluded.get(node.name, ""),
        )
        for node in nodes
    )


def exclusions_in_force(profile: ClusterProfile, today: date) -> dict[str, str]:
    """Give why each excluded node is left out, by node name; exclusions that have ended are void."""
    return {e.node: f"{e.reason} (owner {e.owner}, until {e.until})" for e in profile.exclusions if e.until >= today}


def _named_nodes(profile: ClusterProfile) -> list[InventoryNode]:
    nodes = profile.nodes
    if nodes.emulated is not None:
        return [InventoryNode(name=f"{profile.name}-{i}") for i in range(nodes.emulated)]
    if nodes.simulated is not None:
        return [
            InventoryNode(
                name=f"n{i + 1:04d}",
                leaf=f"leaf{i // nodes.nodes_per_leaf + 1:03d}",
                rack=f"rack{i // (nodes.nodes_per_leaf * nodes.leaves_per_rack) + 1:03d}",
            )
            for i in range(nodes.simulated)
        ]
    return [
        InventoryNode(name=n.name, leaf=n.leaf, rack=n.rack, nvlink_domain=n.nvlink_domain) for n in nodes.listed or ()
    ]
