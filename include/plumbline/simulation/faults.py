"""Faults as data: what is planted where, how badly, and from which night to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from plumbline.configuration import Document, load_yaml, parse

Kind = Literal[
    "slow_nic", "degraded_link", "flapping_link", "nvlink_lane_down", "thermal_throttle", "power_throttle",
    "retired_memory", "pcie_width", "wrong_affinity", "leaf_misconfigured", "congested_spine", "slow_storage_server",
    "slow_client", "missing_gpu", "node_lost", "driver_rollback", "nccl_rollback", "ageing_port", "noisy_neighbour",
    "silent_corruption", "hang", "truncated_output", "clock_drift",
]  # fmt: skip

_NODE, _RAIL, _GPU = ("node",), ("node", "rail"), ("node", "gpu")
TARGETS: Mapping[str, tuple[str, ...]] = {
    "slow_nic": _RAIL, "degraded_link": _RAIL, "flapping_link": _RAIL, "ageing_port": _RAIL,
    "nvlink_lane_down": _NODE, "wrong_affinity": _NODE, "slow_client": _NODE, "node_lost": _NODE, "hang": _NODE,
    "truncated_output": _NODE, "clock_drift": _NODE,
    "thermal_throttle": _GPU, "power_throttle": _GPU, "retired_memory": _GPU, "pcie_width": _GPU, "missing_gpu": _GPU,
    "silent_corruption": _GPU,
    "leaf_misconfigured": ("leaf",), "congested_spine": (), "slow_storage_server": ("server",),
    "driver_rollback": ("nodes",), "nccl_rollback": ("nodes",), "noisy_neighbour": ("resource",),
}  # fmt: skip
"""What each kind must name: the component whose truth it changes."""
UNGRADED: frozenset[Kind] = frozenset({"missing_gpu", "node_lost", "hang", "truncated_output"})
"""Kinds that have no degree: what is planted is there or not, whatever its severity."""


class Fault(Document):
    """One planted fault.

    `severity` is the fraction of the component's capability that is lost (0 to 1); what that means is written at the
    kind's effect in truth.py. For pcie_width the next narrower link that exists is left. For ageing_port it is the
    fraction lost for every 30 nights; for clock_drift 1 is 600 s; for flapping_link it is also the probability that a
    launch meets the link down.
    """

    kind: Kind
    node: str | None = None
    nodes: tuple[str, ...] | None = None
    gpu: Annotated[int, Field(ge=0, le=63)] | None = None
    rail: Annotated[int, Field(ge=0, le=63)] | None = None
    leaf: str | None = None
    server: Annotated[int, Field(ge=0)] | None = None
    resource: Literal["fabric", "storage"] | None = None
    benchmark: str | None = None
    """hang and truncated_output: only this benchmark."""
    severity: Annotated[float, Field(gt=0, le=1)] = 0.3
    start: date | None = None
    end: date | None = None
    """First and last night; None is open, so that a fault without both is there on every night."""
    hours: tuple[int, int] = (0, 24)
    """noisy_neighbour: hours of the day (UTC), from and to."""

    @model_validator(mode="after")
    def _names_its_target(self) -> Fault:
        wanted = TARGETS[self.kind]
        missing = [name for name in wanted if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.kind} needs {', '.join(missing)}")
        unused = [
            name
            for name in ("node", "nodes", "gpu", "rail", "leaf", "server", "resource")
            if getattr(self, name) is not None and name not in wanted
        ]
        if unused:
            raise ValueError(f"{self.kind} takes {', '.join(wanted) or 'no target'}, not {', '.join(unused)}")
        return self

    @model_validator(mode="after")
    def _is_ever_there(self) -> Fault:
        if self.start is not None and self.end is not None and self.end < self.start:
            raise ValueError(f"end {self.end} is before start {self.start}: it would never be there")
        first, last = self.hours
        if not 0 <= first < last <= 24:
            raise ValueError(f"hours {first} to {last}: they rise within 0 to 24, or it would never be there")
        return self

    def active(self, night: date, hour: int = 2) -> bool:
        """Say whether the fault is there on that night, at that hour of the day (UTC)."""
        in_time = (self.start is None or self.start <= night) and (self.end is None or night <= self.end)
        return in_time and self.hours[0] <= hour < self.hours[1]

    @property
    def component(self) -> str:
        """Name the broken component as a localiser should: 'n0017 rail 3', 'leaf002', 'storage server 1'."""
        if self.nodes is not None:
            return ",".join(self.nodes)
        if self.node is not None:
            part = f" GPU {self.gpu}" if self.gpu is not None else f" rail {self.rail}" if self.rail is not None else ""
            return f"{self.node}{part}"
        if self.leaf is not None:
            return self.leaf
        if self.server is not None:
            return f"storage server {self.server}"
        return self.resource or "spine"


class Scenario(Document):
    """A seed and the faults planted in a simulated cluster; without faults it is a healthy one."""

    seed: int = 0
    faults: tuple[Fault, ...] = ()


def load_scenario(path: str | None, seed: int) -> Scenario:
    """Read a scenario; None is a healthy cluster with the given seed. Raises ConfigError."""
    if path is None:
        return Scenario(seed=seed)
    return parse(Scenario, load_yaml(Path(path)), path)


def active_faults(faults: Sequence[Fault], night: date, hour: int = 2) -> tuple[Fault, ...]:
    """Give the faults that are there on a night, in order."""
    return tuple(fault for fault in faults if fault.active(night, hour))
