"""Hold a plan against suite, profile and inventory: what is neither planned nor explained is missing.

The plan says what should have been measured, so a plan that lost something would hide it. Here it is held against
the documents that it was made from.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from plumbline.amounts import plural
from plumbline.clusters.inventory import exclusions_in_force, static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Plan, rungs, uncovered
from plumbline.model import KIND_OF_CODE, Code, Device, Verdict, VerdictKind, verdict
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RUN_ID, run_time


def plan_problems(plan: Plan, profile: ClusterProfile, suite: Suite) -> Iterator[Verdict]:
    """Give a verdict for everything that the plan ought to hold and does not."""
    if plan.cluster != profile.name:
        yield verdict(Code.WRONG_CLUSTER, "plan", f"the plan is for {plan.cluster}, the profile is of {profile.name}")
    if plan.suite != suite.name:
        yield verdict(Code.UNPLANNED, "plan", f"the plan is of suite {plan.suite}, the policy of {suite.name}")
    yield from _odd_launches(plan, profile)
    yield from _odd_gaps(plan, profile, suite)
    yield from _lost_launches(plan)
    yield from _lost_nodes(plan, profile)
    yield from _lost_benchmarks(plan, suite)


def _odd_launches(plan: Plan, profile: ClusterProfile) -> Iterator[Verdict]:
    """A launch that was planned for fewer GPUs or nodes than it says asks less of the cluster than it claims."""
    known = {node.name for node in plan.inventory}
    meant = (profile.accelerator.per_node, profile.device, profile.origin)
    for spec in plan.launches:
        asked = (spec.accelerators_per_node, spec.device, spec.origin)
        if asked != meant or spec.cluster != profile.name:
            said = ", ".join(map(str, (*asked, spec.cluster)))
            message = f"it is planned for {said}; the profile says {', '.join(map(str, (*meant, profile.name)))}"
            yield verdict(Code.WRONG_HARDWARE, f"launch {spec.launch_id}", message, launch_id=spec.launch_id)
        if outside := [name for name in spec.outputs if name.startswith("/") or ".." in name.split("/")]:
            message = f"its results are to be read from {outside[0]}, which is not its own"
            yield verdict(Code.SCHEMA, f"launch {spec.launch_id}", message, launch_id=spec.launch_id)
        if len(set(spec.nodes) & known) != spec.node_count or len(spec.nodes) != spec.node_count:
            message = f"it is planned at {plural(spec.node_count, 'node')}, and names {', '.join(spec.nodes) or 'none'}"
            yield verdict(Code.SCHEMA, f"launch {spec.launch_id}", message, launch_id=spec.launch_id)
    if profile.device is Device.CPU and profile.accelerator.model != "cpu":
        message = f"the profile says device cpu and accelerator {profile.accelerator.model}: which was measured?"
        yield verdict(Code.WRONG_HARDWARE, "profile", message)


def _odd_gaps(plan: Plan, profile: ClusterProfile, suite: Suite) -> Iterator[Verdict]:
    """A gap says why something was not run, and what was left out on purpose is so in profile or suite."""
    today = run_time(plan.run_id).date() if RUN_ID.match(plan.run_id) else datetime.date.min
    excluded = exclusions_in_force(profile, today)
    for gap in plan.gaps:
        if KIND_OF_CODE[gap.code] is not VerdictKind.NOT_RUN:
            yield verdict(
                Code.SCHEMA, gap.place, f"a gap can't have the code {gap.code.value}: it hides what is missing"
            )
        elif gap.code is Code.EXCLUDED and gap.node is not None and gap.node not in excluded:
            message = "the plan leaves it out on purpose, and the profile excludes it nowhere, or no longer"
            yield verdict(Code.NO_MEASUREMENT, gap.place, message, node=gap.node)
        elif gap.code is Code.EXCLUDED and gap.node is None and gap.benchmark not in suite.omitted:
            message = "the plan leaves it out on purpose, and the suite asks for it"
            yield verdict(Code.NO_MEASUREMENT, gap.place, message, benchmark=gap.benchmark)


def _lost_launches(plan: Plan) -> Iterator[Verdict]:
    """Compare the launches with the batches, which list them a second time."""
    launches = [spec.launch_id for spec in plan.launches]
    batched = [launch_id for batch in plan.batches for launch_id in batch.launch_ids]
    for launch_id in sorted(set(batched) - set(launches)):
        yield verdict(
            Code.NO_RECORD, f"launch {launch_id}", "it is in a batch of the plan and its spec is not",
            launch_id=launch_id,
        )  # fmt: skip
    for launch_id in sorted(set(launches) - set(batched)):
        message = "it is planned and in no batch: nothing would have launched it"
        yield verdict(Code.SCHEMA, f"launch {launch_id}", message, launch_id=launch_id)
    for launch_id in sorted({one for one in launches if launches.count(one) > 1}):
        yield verdict(Code.SCHEMA, f"launch {launch_id}", "it is planned twice", launch_id=launch_id)


def _lost_nodes(plan: Plan, profile: ClusterProfile) -> Iterator[Verdict]:
    """Every node of the profile is in the inventory, and every node of the inventory is planned or has its reason."""
    inventory = {node.name for node in plan.inventory}
    if profile.nodes.selector is None:
        named = {node.name for node in static_inventory(profile, datetime.date.min)}
        for name in sorted(inventory - named):
            message = "it is in the inventory of the run and not in the profile"
            yield verdict(Code.WRONG_CLUSTER, f"node {name}", message, node=name)
        for name in sorted(named - inventory):
            message = "it is in the profile and not in the inventory of the run"
            yield verdict(Code.NO_MEASUREMENT, f"node {name}", message, node=name)
    for name, why in uncovered(plan, profile).items():
        message = f"it is in the inventory and in no launch: {why}"
        yield verdict(Code.NO_MEASUREMENT, f"node {name}", message, node=name)


def _lost_benchmarks(plan: Plan, suite: Suite) -> Iterator[Verdict]:
    """Every benchmark of the suite has each of its rungs and repeats, or a gap that says why not."""
    repeats: dict[tuple[str, int], set[int]] = {}
    for spec in plan.launches:
        repeats.setdefault((spec.benchmark, spec.node_count), set()).add(spec.repeat)
    gaps = {(gap.benchmark, gap.node_count) for gap in plan.gaps}
    measurable = len(plan.inventory) - len({gap.node for gap in plan.gaps if gap.node})
    for entry in suite.benchmarks:
        asked = entry.node_counts if entry.node_counts is not None else suite.node_counts
        wanted = entry.repeats or suite.repeats
        for node_count in rungs(asked, measurable):
            place = f"{entry.benchmark} at {node_count} node{'s' if node_count != 1 else ''}"
            found = len(repeats.get((entry.benchmark, node_count), ()))
            if found < wanted and (entry.benchmark, node_count) not in gaps:
                message = f"the suite asks for {wanted} repeat{'s' if wanted != 1 else ''}, the plan holds {found}"
                yield verdict(Code.NO_MEASUREMENT, place, message, benchmark=entry.benchmark, node_count=node_count)
    for name in suite.omitted:
        if (name, None) not in gaps:
            yield verdict(Code.NO_MEASUREMENT, name, "it is left out of the suite without a gap", benchmark=name)
