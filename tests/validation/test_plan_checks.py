from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from tests.validation.good_run import Night, good_night, made_up_benchmarks, profile, suite  # noqa: F401

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import load_profile
from plumbline.execution.plan import Gap, make_plan, uncovered
from plumbline.model import Code, Device, Origin
from plumbline.suites.suite import load_suite
from plumbline.validation.plan_checks import plan_problems


@pytest.fixture
def night(made_up_benchmarks: None) -> Night:  # noqa: F811
    return good_night(nodes=4)


def problems(night: Night, **plan: object) -> list[tuple[Code, str]]:
    found = plan_problems(replace(night.plan, **plan), night.profile, night.suite)
    return [(item.code, item.place) for item in found]


def test_a_whole_plan_has_no_problem(night: Night):
    assert problems(night) == []


def test_a_lost_launch_is_in_its_batch(night: Night):
    gone = night.plan.launches[0].launch_id
    assert problems(night, launches=night.plan.launches[1:]) == [(Code.NO_RECORD, f"launch {gone}")]


def test_a_launch_in_no_batch_or_planned_twice(night: Night):
    assert {code for code, _ in problems(night, batches=night.plan.batches[1:])} == {Code.SCHEMA}
    twice = (*night.plan.launches, night.plan.launches[0])
    assert problems(night, launches=twice) == [(Code.SCHEMA, f"launch {twice[0].launch_id}")]


def test_a_node_needs_a_plan_or_a_reason(night: Night):
    kept = tuple(spec for spec in night.plan.launches if "n0001" not in spec.nodes)
    ids = {spec.launch_id for spec in kept}
    batches = tuple(replace(b, launch_ids=tuple(i for i in b.launch_ids if i in ids)) for b in night.plan.batches)
    assert problems(night, launches=kept, batches=batches) == [(Code.NO_MEASUREMENT, "node n0001")]
    gap = Gap(code=Code.NODE_NOT_READY, place="node n0001", reason="in repair", node="n0001")
    assert problems(night, launches=kept, batches=batches, gaps=(gap,)) == []


def test_emulated_nodes_beyond_the_rungs_are_told_the_rungs():
    found = load_profile("local")
    chosen = load_suite("nightly", {"node_counts": "1,2", "benchmarks": "nccl_tests"})
    plan = make_plan(found, chosen, static_inventory(found, date(2026, 3, 1)), run_id="plan", seed=0)
    told = {item.place: item.message for item in plan_problems(plan, found, chosen)}
    assert list(told) == ["node local-2", "node local-3"]
    assert "measures at 1, 2 of the machine's 4 emulated nodes" in told["node local-2"]
    assert "node_counts=4 or ladder" in told["node local-2"] and "fio" not in told["node local-2"]


def test_nodes_of_rungs_that_cannot_be_reached_are_told_so():
    found = load_profile("simulated-8")
    chosen = load_suite("nightly", {"node_counts": "16", "benchmarks": "nccl_tests"})
    plan = make_plan(found, chosen, static_inventory(found, date(2026, 3, 1)), run_id="plan", seed=0)
    assert [gap.reason for gap in plan.gaps if gap.node_count == 16] == ["it needs 16 nodes, the cluster has 8"]
    assert set(uncovered(plan, found).values()) == {"no node count that this run asks for (16) can be reached"}
    assert len(uncovered(plan, found)) == 8
    whole = make_plan(found, load_suite("nightly"), plan.inventory, run_id="plan", seed=0)
    assert uncovered(whole, found) == {}


def test_a_node_of_the_profile_is_in_the_inventory(night: Night):
    assert (Code.NO_MEASUREMENT, "node n0001") in problems(night, inventory=night.plan.inventory[1:])


def test_a_benchmark_needs_all_its_rungs_and_repeats(night: Night):
    more = replace(night, suite=suite((1, 2, 4), repeats=2))
    places = [place for code, place in problems(more) if code is Code.NO_MEASUREMENT]
    assert places == ["collective at 1 node", "collective at 2 nodes", "collective at 4 nodes", "matrix at 1 node"]
    gap = Gap(code=Code.UNREACHABLE_SCALE, place="x", reason="x", benchmark="collective")
    gaps = tuple(replace(gap, node_count=node_count) for node_count in (1, 2, 4))
    assert [place for _, place in problems(more, gaps=gaps)] == ["matrix at 1 node"]


def test_what_a_subset_leaves_out_has_a_gap(night: Night):
    fewer = replace(night, suite=night.suite.model_copy(update={"omitted": ("fio",)}))
    assert problems(fewer) == [(Code.NO_MEASUREMENT, "fio")]
    gap = Gap(code=Code.EXCLUDED, place="fio", reason="left out", benchmark="fio")
    assert problems(fewer, gaps=(gap,)) == []


def test_a_gap_says_why_something_was_not_run(night: Night):
    """A gap with the code of a PASS or a WARN would hide what is missing."""
    for code in (Code.OK, Code.EXPECTED_FINDING, Code.NEAR_LIMIT, Code.WAIVED):
        gap = Gap(code=code, place="node n0001", reason="fine", node="n0001")
        assert problems(night, gaps=(gap,)) == [(Code.SCHEMA, "node n0001")]


def test_a_node_is_left_out_on_purpose_by_its_profile_only(night: Night):
    gap = Gap(code=Code.EXCLUDED, place="node n0001", reason="in repair", node="n0001")
    assert problems(night, gaps=(gap,)) == [(Code.NO_MEASUREMENT, "node n0001")]
    for until, expected in (("2026-03-01", []), ("2026-02-28", [(Code.NO_MEASUREMENT, "node n0001")])):
        exclusion = {"node": "n0001", "reason": "in repair", "owner": "ops", "until": until}
        excluding = replace(night, profile=profile(4, exclusions=[exclusion]))
        assert problems(excluding, gaps=(gap,)) == expected


def test_a_benchmark_is_left_out_on_purpose_by_its_suite_only(night: Night):
    gap = Gap(code=Code.EXCLUDED, place="collective at 2 nodes", reason="x", benchmark="collective", node_count=2)
    assert problems(night, gaps=(gap,)) == [(Code.NO_MEASUREMENT, "collective at 2 nodes")]


def test_launches_ask_for_what_the_profile_promises(night: Night):
    first, *others = night.plan.launches
    for change in ({"accelerators_per_node": 7}, {"device": Device.CPU}, {"origin": Origin.MEASURED}, {"cluster": "x"}):
        launches = (replace(first, **change), *others)
        assert problems(night, launches=launches) == [(Code.WRONG_HARDWARE, f"launch {first.launch_id}")]


def test_a_launch_names_as_many_different_nodes_of_the_inventory_as_it_says(night: Night):
    pair = next(spec for spec in night.plan.launches if spec.node_count == 2)
    rest = tuple(spec for spec in night.plan.launches if spec is not pair)
    for nodes in (pair.nodes[:1] * 2, pair.nodes[:1], (*pair.nodes, "n0099"), (pair.nodes[0], "n0099")):
        found = problems(night, launches=(*rest, replace(pair, nodes=nodes)))
        assert (Code.SCHEMA, f"launch {pair.launch_id}") in found, nodes


@pytest.mark.parametrize("outputs", [("../other.a1/*.txt",), ("stdout", "/etc/passwd"), ("a/../../b",)])
def test_a_launch_reads_its_own_results(night: Night, outputs: tuple[str, ...]):
    first, *others = night.plan.launches
    launches = (replace(first, outputs=outputs), *others)
    assert problems(night, launches=launches) == [(Code.SCHEMA, f"launch {first.launch_id}")]


def test_the_inventory_is_the_profiles(night: Night):
    smaller = replace(night, profile=profile(3))
    assert problems(smaller) == [(Code.WRONG_CLUSTER, "node n0004")]


def test_a_gpu_cluster_is_not_measured_on_its_cpus(night: Night):
    on_cpu = replace(night, profile=profile(4, device="cpu"))
    launches = tuple(replace(spec, device=Device.CPU) for spec in night.plan.launches)
    assert problems(on_cpu, launches=launches) == [(Code.WRONG_HARDWARE, "profile")]
