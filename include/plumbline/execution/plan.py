"""From profile, suite and inventory to LaunchSpecs: which groups, which commands, and what will not be measured.

Rungs are 1, 2, 4 … and the whole. At each the nodes are cut into disjoint groups along the topology, in an order that
is shuffled between rungs with the run's own seed; what is left over is padded with nodes of the first wave (`wave` 2).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from plumbline.amounts import plural
from plumbline.benchmarks import benchmark, resolve_params
from plumbline.benchmarks.benchmark import Benchmark, Placement
from plumbline.clusters.inventory import Inventory, InventoryNode
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError
from plumbline.model import Code, LaunchSpec, Scalar, launch_spec, to_plain
from plumbline.suites.suite import Suite, SuiteBenchmark


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something of the suite or the inventory that this plan will not measure, and why."""

    code: Code
    place: str
    reason: str
    benchmark: str | None = None
    node: str | None = None
    node_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The launches of one benchmark at one rung: one Airflow task, one launcher pod. `batch_id` is 'fio-n1'."""

    batch_id: str
    benchmark: str
    node_count: int
    launch_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that will be launched, in order, and all that will not."""

    run_id: str
    cluster: str
    suite: str
    seed: int
    inventory: tuple[InventoryNode, ...]
    launches: tuple[LaunchSpec, ...]
    batches: tuple[Batch, ...]
    gaps: tuple[Gap, ...] = field(default=())

    def batch(self, batch_id: str) -> tuple[LaunchSpec, ...]:
        """Give the launches of one batch in order. Raises KeyError."""
        wanted = {b.batch_id: set(b.launch_ids) for b in self.batches}[batch_id]
        return tuple(spec for spec in self.launches if spec.launch_id in wanted)


def plan_from(data: dict[str, Any]) -> Plan:
    """Read a plan from plain data."""
    return Plan(
        run_id=data["run_id"],
        cluster=data["cluster"],
        suite=data["suite"],
        seed=data["seed"],
        inventory=tuple(
            InventoryNode(**{**n, "unusable": None if n["unusable"] is None else Code(n["unusable"])})
            for n in data["inventory"]
        ),
        launches=tuple(launch_spec(item) for item in data["launches"]),
        batches=tuple(Batch(**{**b, "launch_ids": tuple(b["launch_ids"])}) for b in data["batches"]),
        gaps=tuple(Gap(**{**g, "code": Code(g["code"])}) for g in data["gaps"]),
    )


def plan_data(plan: Plan) -> dict[str, Any]:
    """Give a plan as plain data for plan.json."""
    data: dict[str, Any] = to_plain(plan)
    return data


def make_plan(profile: ClusterProfile, suite: Suite, inventory: Inventory, *, run_id: str, seed: int) -> Plan:
    """Lay out a run. The same arguments give the same plan. Raises ConfigError for wrong parameters or counts."""
    usable = [node for node in inventory if node.unusable is None]
    if profile.limits.nodes is not None:
        usable = usable[: profile.limits.nodes]
    chosen = {node.name for node in usable}
    gaps = [
        Gap(
            code=node.unusable or Code.BUDGET,
            place=f"node {node.name}",
            reason=node.reason or f"beyond the profile's limits.nodes: {profile.limits.nodes}",
            node=node.name,
        )
        for node in inventory
        if node.name not in chosen
    ]
    gaps += [
        Gap(code=Code.EXCLUDED, place=name, reason="left out with --set benchmarks", benchmark=name)
        for name in suite.omitted
    ]
    launches: list[LaunchSpec] = []
    batches: list[Batch] = []
    for entry in suite.benchmarks:
        for batch, specs in _batches(profile, suite, entry, usable, len(inventory), run_id, seed, gaps):
            if any(batch.batch_id == other.batch_id for other in batches):
                raise ConfigError(
                    f"suite {suite.name}: {entry.benchmark} is planned twice at {plural(batch.node_count, 'node')}"
                )
            batches.append(batch)
            launches.extend(specs)
    return Plan(
        run_id=run_id,
        cluster=profile.name,
        suite=suite.name,
        seed=seed,
        inventory=inventory,
        launches=tuple(launches),
        batches=tuple(batches),
        gaps=tuple(gaps),
    )


def rungs(counts: Sequence[int] | str, available: int) -> list[int]:
    """Give the node counts asked for: 'ladder' is 1, 2, 4 … and `available` itself, ascending without repeats."""
    if counts != "ladder":
        return sorted({int(count) for count in counts})
    ladder, step = {available} if available else set(), 1
    while step <= available:
        ladder.add(step)
        step *= 2
    return sorted(ladder)


def entry_params(profile: ClusterProfile, entry: SuiteBenchmark, where: str) -> dict[str, Scalar]:
    """Give the parameters that a benchmark of a suite runs with: the suite's, the profile's, then the defaults."""
    module = benchmark(entry.benchmark)
    return resolve_params(module, {**profile.benchmarks.get(module.NAME, {}), **entry.params}, where)


def _batches(
    profile: ClusterProfile,
    suite: Suite,
    entry: SuiteBenchmark,
    usable: Sequence[InventoryNode],
    inventory_size: int,
    run_id: str,
    seed: int,
    gaps: list[Gap],
) -> Iterator[tuple[Batch, list[LaunchSpec]]]:
    module = benchmark(entry.benchmark)
    where = f"suite {suite.name}, profile {profile.name}"
    params = entry_params(profile, entry, where)
    asked = entry.node_counts if entry.node_counts is not None else suite.node_counts
    for node_count in rungs(asked, len(usable)):
        if node_count > len(usable):
            gaps.append(
                Gap(
                    code=Code.UNREACHABLE_SCALE,
                    place=f"{module.NAME} at {plural(node_count, 'node')}",
                    reason=_too_few(node_count, len(usable), inventory_size),
                    benchmark=module.NAME,
                    node_count=node_count,
                )
            )
            continue
        repeats = entry.repeats or suite.repeats
        groups = partition(profile, usable, node_count, seed)
        try:
            specs = [
                _spec(profile, module, params, nodes, run_id, node_count, wave, group, repeat)
                for repeat in range(1, repeats + 1)
                for group, (wave, nodes) in enumerate(groups)
            ]
        except ConfigError as error:
            raise ConfigError(f"{where}: {module.NAME}: {error}") from None
        batch_id = f"{module.NAME}-n{node_count}"
        yield (
            Batch(
                batch_id=batch_id,
                benchmark=module.NAME,
                node_count=node_count,
                launch_ids=tuple(spec.launch_id for spec in specs),
            ),
            specs,
        )


def _too_few(node_count: int, usable: int, inventory_size: int) -> str:
    needs = f"it needs {plural(node_count, 'node')}"
    if usable == inventory_size:
        return f"{needs}, the cluster has {inventory_size}"
    return f"{needs}, and {usable} of the cluster's {inventory_size} can be measured"


def uncovered(plan: Plan, profile: ClusterProfile) -> dict[str, str]:
    """Give the nodes that are in no launch and have no gap of their own, and why, in the order of the inventory."""
    covered = {node for spec in plan.launches for node in spec.nodes} | {gap.node for gap in plan.gaps}
    counts = sorted({spec.node_count for spec in plan.launches})
    beyond: set[str] = set()
    why = "no gap says why"
    if not counts and any(gap.code is Code.UNREACHABLE_SCALE for gap in plan.gaps):
        beyond = {node.name for node in plan.inventory}
        asked = ", ".join(map(str, sorted({gap.node_count for gap in plan.gaps if gap.node_count is not None})))
        why = f"no node count that this run asks for ({asked}) can be reached"
    elif counts and profile.nodes.emulated is not None:
        usable = [node.name for node in plan.inventory if node.unusable is None]
        beyond = set(usable[counts[-1] :])
        why = (
            f"this run measures at {', '.join(map(str, counts))} of the machine's {len(plan.inventory)} emulated "
            f"nodes, and takes the first {counts[-1]} at most: node_counts={len(usable)} or ladder would reach all"
        )
    return {
        node.name: why if node.name in beyond else "no gap says why"
        for node in plan.inventory
        if node.name not in covered
    }


def partition(
    profile: ClusterProfile, usable: Sequence[InventoryNode], node_count: int, seed: int
) -> list[tuple[int, tuple[str, ...]]]:
    """Cut the nodes into disjoint groups of `node_count`: (wave, node names) each, topology neighbours together.

    Every node is in a group: what is left over forms wave 2, padded with nodes of wave 1. Emulated nodes share one
    machine, so they form one group of the first `node_count` nodes: groups beside it would only measure each other.
    """
    if profile.nodes.emulated is not None:
        return [(1, tuple(node.name for node in usable[:node_count]))]
    order = _shuffled(usable, random.Random(f"{seed}/{node_count}"))  # noqa: S311 - an order, not a secret
    whole = len(order) // node_count
    groups = [(1, tuple(order[i * node_count : (i + 1) * node_count])) for i in range(whole)]
    rest = order[whole * node_count :]
    if rest:
        padding = [name for name in order if name not in set(rest)][: node_count - len(rest)]
        groups.append((2, tuple(rest + padding)))
    return groups


def _shuffled(nodes: Sequence[InventoryNode], rng: random.Random) -> list[str]:
    leaves: dict[str, list[str]] = {}
    for node in nodes:
        leaves.setdefault(f"{node.nvlink_domain or ''}/{node.rack or ''}/{node.leaf or ''}", []).append(node.name)
    names = sorted(leaves)
    rng.shuffle(names)
    order: list[str] = []
    for name in names:
        members = sorted(leaves[name])
        rng.shuffle(members)
        order += members
    return order


def _spec(
    profile: ClusterProfile,
    module: Benchmark,
    params: dict[str, Scalar],
    nodes: tuple[str, ...],
    run_id: str,
    node_count: int,
    wave: int,
    group: int,
    repeat: int,
) -> LaunchSpec:
    placement = Placement(
        launcher=profile.launcher,
        device=profile.device,
        origin=profile.origin,
        nodes=nodes,
        accelerators_per_node=profile.accelerator.per_node,
        accelerator=profile.accelerator.model,
        fabric=profile.fabric.name,
        python=str(profile.path(profile.python)) if profile.launcher == "local" else profile.python,
        programs=profile.path(profile.programs),
        storage_dir=str(profile.path(profile.storage.directory)),
    )
    command = module.command(placement, params)
    return LaunchSpec(
        launch_id=f"{module.NAME}-n{node_count}-g{group}-r{repeat}",
        run_id=run_id,
        cluster=profile.name,
        benchmark=module.NAME,
        benchmark_version=module.VERSION,
        reader=module.READER,
        node_count=node_count,
        wave=wave,
        group=group,
        repeat=repeat,
        nodes=nodes,
        accelerators_per_node=profile.accelerator.per_node,
        device=profile.device,
        origin=profile.origin,
        contends=module.CONTENDS,
        params=params,
        argv=command.argv,
        env=command.env,
        timeout_s=command.timeout_s,
        outputs=command.outputs,
        expect=command.expect,
        image=profile.images.get(module.NAME),
    )
