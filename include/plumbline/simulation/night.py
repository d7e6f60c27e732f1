"""Simulated nights: the cluster, its truth, its noise, and its clock. Nights of one cluster can stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.model import LaunchSpec
from plumbline.simulation.faults import Scenario
from plumbline.simulation.hardware import HardwareModel, hardware_model
from plumbline.simulation.noise import Noise, Sharing
from plumbline.simulation.physics import STEP_COMMON, Groups, generator
from plumbline.simulation.truth import NCCL, OLD_DRIVER, OLD_NCCL, Truth, side_by_side, truth_of

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

_BUSES = ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db", "1a", "3c", "4d", "5e", "9c", "bc", "cc", "dc")


@dataclass(frozen=True, kw_only=True)
class Night:
    """What all launches of a night share. The same profile, scenario and moment give the same night."""

    profile: ClusterProfile
    model: HardwareModel
    scenario: Scenario
    moment: datetime
    truth: Truth

    @classmethod
    def of(cls, profile: ClusterProfile, scenario: Scenario, moment: datetime) -> Night:
        """Set up a night. Raises ConfigError for unknown hardware or a fault that names nothing."""
        model = hardware_model(profile.accelerator.model)
        inventory = static_inventory(profile, moment.date())
        truth = truth_of(inventory, model, scenario.faults, moment.date(), moment.hour)
        return cls(profile=profile, model=model, scenario=scenario, moment=moment, truth=truth)

    @cached_property
    def key(self) -> str:
        """Name what this night's noise is made from; nights with an equal key have the same noise."""
        return f"{self.scenario.seed}/{self.profile.name}/{self.moment:%Y%m%dT%H}"

    def noise(self, *parts: str | int) -> Generator:
        """Give the noise of one place in this night."""
        return generator(self.key, *parts)

    def began(self, spec: LaunchSpec, begin: datetime) -> datetime:
        """Give when a launch began by its nodes' clocks: those that are ahead count."""
        ahead = max(float(self.truth.clock_offset_s[self.node(name)]) for name in spec.nodes)
        return begin + timedelta(seconds=ahead)

    @cached_property
    def step_common(self) -> float:
        """Give the night's common mode of step time: everything a little faster or slower."""
        return float(1 + self.noise("common").normal(0, STEP_COMMON))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.truth.names)}

    def index(self, specs: Sequence[LaunchSpec]) -> NDArray[Any]:
        """Give the node indices of the launches of a batch, [M, n]: all have the same number of nodes."""
        import numpy as np

        return np.array([[self._index[name] for name in spec.nodes] for spec in specs])

    def node(self, name: str) -> int:
        """Give a node's index."""
        return self._index[name]

    def driver(self, node: int) -> str:
        """Give the driver version that a node runs."""
        return OLD_DRIVER if self.truth.old_driver[node] else self.model.driver

    def nccl(self, nodes: Sequence[int]) -> str:
        """Give the NCCL version that a group ends up with: the oldest."""
        return OLD_NCCL if bool(self.truth.old_nccl[list(nodes)].any()) else NCCL

    def devices(self, name: str) -> list[tuple[str, int, str, str]]:
        """Give host, number, bus id and product of the GPUs that a node has."""
        present = self.truth.present[self._index[name]]
        return [(name, g, f"0000:{_BUSES[g]}:00", self.model.product) for g in range(self.model.gpus) if present[g]]

    def hardware(self, name: str) -> dict[str, Any]:
        """Give a node's identity, which survives a rename."""
        return {"hardware_id": f"sim-{self.profile.name}-{name}", "hostname": name, "simulated": True}


@dataclass(frozen=True, kw_only=True)
class Rung:
    """The launches of one benchmark at one node count, in T nights: M launches a night with the same parameters.

    `spec` is the first of them. `groups` has T × M rows, night by night; its indices are those of nights side by side.
    """

    spec: LaunchSpec
    groups: Groups


@dataclass(frozen=True, kw_only=True)
class Nights:
    """Nights of one cluster side by side: what is computed for all of them at once is what each would give alone."""

    nights: tuple[Night, ...]
    truth: Truth

    @classmethod
    def of(cls, nights: Sequence[Night]) -> Nights:
        """Put nights of one profile side by side, one at least."""
        return cls(nights=tuple(nights), truth=side_by_side([night.truth for night in nights]))

    @property
    def model(self) -> HardwareModel:
        """The hardware, the same in all nights."""
        return self.nights[0].model

    def noise(self, *parts: str | int) -> Noise:
        """Give the noise of one place in every night."""
        return Noise(self._sharing, lambda t: self.nights[t].noise(*parts))

    @cached_property
    def _sharing(self) -> Sharing:
        return Sharing.of_keys([night.key for night in self.nights])

    def step_common(self, groups: Groups) -> NDArray[Any]:
        """Give the common mode of step time of each group's night: [T × M]."""
        found: NDArray[Any] = self._step_common[groups.night(self.truth)]
        return found

    @cached_property
    def _step_common(self) -> NDArray[Any]:
        import numpy as np

        known: dict[str, float] = {}
        for night in self.nights:
            if night.key not in known:
                known[night.key] = night.step_common
        return np.array([known[night.key] for night in self.nights])

    def rung(self, spec: LaunchSpec, indices: Sequence[NDArray[Any]]) -> Rung:
        """Give a rung of every night from its node indices within each night, [M, n] each."""
        import numpy as np

        size = len(self.nights[0].truth.names)
        index = np.concatenate([part + size * t for t, part in enumerate(indices)])
        return Rung(spec=spec, groups=Groups(index=index))

    def rung_of(self, specs: Sequence[LaunchSpec]) -> Rung:
        """Give the rung of a batch of launches that is the same in every night."""
        return self.rung(specs[0], [self.nights[0].index(specs)] * len(self.nights))
