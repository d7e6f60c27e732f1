"""A plan as arrays: which nodes each launch takes, night by night, without writing a command for every launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks import benchmark
from plumbline.clusters.inventory import Inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Gap, Plan, make_plan, partition
from plumbline.indicators import indicator
from plumbline.model import LaunchSpec, canonical_params
from plumbline.simulation.sheets import Kind, Place
from plumbline.suites.suite import Suite

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Step:
    """One batch of a plan: its first launch stands for what all were asked, `places` for where each is."""

    batch_id: str
    spec: LaunchSpec
    kinds: tuple[Kind, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One night's plan. `indices` holds the node indices of each step's launches, [M, n]."""

    profile: ClusterProfile
    suite: Suite
    inventory: Inventory
    run_id: str
    steps: tuple[Step, ...]
    indices: tuple[NDArray[Any], ...]
    gaps: tuple[Gap, ...] = ()
    known_plan: Plan | None = None

    @classmethod
    def of(cls, plan: Plan, profile: ClusterProfile, suite: Suite) -> Layout:
        """Lay out a plan."""
        import numpy as np

        number = {node.name: i for i, node in enumerate(plan.inventory)}
        by_id = {spec.launch_id: spec for spec in plan.launches}
        steps, indices = [], []
        for batch in plan.batches:
            specs = [by_id[launch_id] for launch_id in batch.launch_ids]
            indices.append(np.array([[number[name] for name in spec.nodes] for spec in specs]))
            steps.append(
                Step(
                    batch_id=batch.batch_id,
                    spec=specs[0],
                    kinds=_kinds(specs[0]),
                    places=tuple(
                        Place(launch_id=spec.launch_id, wave=spec.wave, group=spec.group, repeat=spec.repeat)
                        for spec in specs
                    ),
                )
            )
        return cls(
            profile=profile, suite=suite, inventory=plan.inventory, run_id=plan.run_id, steps=tuple(steps),
            indices=tuple(indices), gaps=plan.gaps, known_plan=plan,
        )  # fmt: skip

    def on(self, run_id: str) -> Layout:
        """Give the layout of another run of the same suite on the same inventory: the nodes are shuffled anew."""
        import numpy as np

        usable = [node for node in self.inventory if node.unusable is None][: self.profile.limits.nodes]
        number = {node.name: i for i, node in enumerate(self.inventory)}
        cut = {
            size: np.array(
                [
                    [number[name] for name in names]
                    for _, names in partition(self.profile, usable, size, seed_of(run_id))
                ]
            )
            for size in {step.spec.node_count for step in self.steps}
        }
        indices = []
        for step in self.steps:
            groups = cut[step.spec.node_count]
            indices.append(np.tile(groups, (len(step.places) // len(groups), 1)))
        return replace(self, run_id=run_id, indices=tuple(indices), known_plan=None)

    @cached_property
    def plan(self) -> Plan:
        """The whole plan, with every command."""
        if self.known_plan is not None:
            return self.known_plan
        return make_plan(self.profile, self.suite, self.inventory, run_id=self.run_id, seed=seed_of(self.run_id))

    def spec(self, step: int, row: int) -> LaunchSpec:
        """Give what one launch was asked, with the command of the step's first launch."""
        place = self.steps[step].places[row]
        names = tuple(self.inventory[i].name for i in self.indices[step][row].tolist())
        return replace(
            self.steps[step].spec, launch_id=place.launch_id, run_id=self.run_id, nodes=names, wave=place.wave,
            group=place.group or 0, repeat=place.repeat,
        )  # fmt: skip


def seed_of(run_id: str) -> int:
    """Give the seed that a run's groups are shuffled with: the random part of its id."""
    return int(run_id[-6:], 16)


def _kinds(spec: LaunchSpec) -> tuple[Kind, ...]:
    return tuple(
        Kind(
            indicator=item.indicator,
            unit=indicator(spec.benchmark, item.indicator).unit,
            params=canonical_params(item.params),
        )
        for item in benchmark(spec.benchmark).expected(spec)
    )


def same_shape(layouts: Sequence[Layout]) -> bool:
    """Say whether layouts can stand side by side: the same steps, whatever nodes they take."""
    return all(layout.steps is layouts[0].steps or layout.steps == layouts[0].steps for layout in layouts)
