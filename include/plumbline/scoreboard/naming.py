"""Whether alarms point at the component that was broken, and how closely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plumbline.clusters.inventory import Inventory
from plumbline.scoreboard.detectors import Alarmed
from plumbline.simulation.faults import Fault

EXACT, AMONG, ELSEWHERE = "exact", "among", "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What the alarms of one night name.

    The ladder's smallest alarmed groups are what a person is shown first: `named` says whether they are the broken
    component and nothing else (exact), hold it among others, or are elsewhere; `nodes` is how many nodes they have
    together. `suspects` is how many nodes remain when those of all alarmed rungs are laid over each other, and
    `suspected` whether the broken one is left. `part` says whether a message names the very GPU.
    """

    named: str
    nodes: int
    suspects: int
    suspected: bool
    part: bool


class Component:
    """The component that a fault breaks, as node indices or as a shared resource."""

    def __init__(self, fault: Fault, inventory: Inventory) -> None:
        """Look the component up. A resource has no nodes of its own."""
        names = {fault.node} if fault.node is not None else set(fault.nodes or ())
        self.nodes = frozenset(
            i
            for i, node in enumerate(inventory)
            if node.name in names or (fault.leaf is not None and node.leaf == fault.leaf)
        )
        self.gpu = fault.gpu
        self.is_storage = fault.resource == "storage" or fault.server is not None

    def touched_by(self, alarmed: Alarmed) -> bool:
        """Say whether an alarm is on something that the component takes part in."""
        if self.nodes:
            return bool(self.nodes & alarmed.nodes)
        if self.is_storage:
            return alarmed.benchmark == "fio"
        return alarmed.node_count > 1 and alarmed.benchmark != "fio"

    def named_by(self, found: Sequence[Alarmed]) -> Named:
        """Say how closely one night's alarms, one at least, point at the component."""
        groups = [one for one in found if not one.whole_rung] or list(found)
        least = min(one.node_count for one in groups)
        smallest = [one for one in groups if one.node_count == least]
        nodes = frozenset().union(*(one.nodes for one in smallest))
        left = nodes
        for count in sorted({one.node_count for one in groups}):
            left &= frozenset().union(*(one.nodes for one in groups if one.node_count == count))
        part = self.gpu is not None and any(f"GPU {self.gpu}:" in one.message for one in found)
        return Named(
            named=self._named(found, smallest, nodes), nodes=len(nodes), suspects=len(left),
            suspected=bool(self.nodes & left) if self.nodes else bool(left), part=part,
        )  # fmt: skip

    def _named(self, found: Sequence[Alarmed], smallest: Sequence[Alarmed], nodes: frozenset[int]) -> str:
        if not self.nodes:  # a resource is named by what the alarms have in common: storage alone, the fabric alone
            touched = [self.touched_by(one) for one in found]
            return EXACT if all(touched) else AMONG if any(touched) else ELSEWHERE
        if nodes <= self.nodes and not any(one.whole_rung for one in smallest):
            return EXACT
        return AMONG if nodes & self.nodes else ELSEWHERE
