"""Every node at every scale, disjoint groups, nothing lost in silence."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import make_plan, partition, rungs
from plumbline.model import Code
from plumbline.suites.suite import load_suite


def a_profile(nodes: int, **changes: object) -> ClusterProfile:
    data: dict[str, object] = {
        "name": "sim", "title": "test", "launcher": "simulated", "device": "gpu",
        "accelerator": {"model": "H100-SXM5-80GB", "per_node": 8}, "fabric": {"name": "ndr"},
        "nodes": {"simulated": nodes, "nodes_per_leaf": 4}, "storage": {"directory": "/data"},
    }  # fmt: skip
    return ClusterProfile.model_validate({**data, **changes})


@given(st.integers(1, 200), st.integers(1, 64), st.integers(0, 1000))
def test_groups_cover_every_node_and_wave_one_is_disjoint(total: int, size: int, seed: int) -> None:
    profile = a_profile(total)
    usable = static_inventory(profile, date(2026, 1, 1))
    if size > total:
        return
    groups = partition(profile, usable, size, seed)
    first = [name for wave, nodes in groups if wave == 1 for name in nodes]
    assert len(first) == len(set(first))
    assert {name for _, nodes in groups for name in nodes} == {node.name for node in usable}
    assert all(len(nodes) == len(set(nodes)) == size for _, nodes in groups)
    assert len([1 for wave, _ in groups if wave == 2]) == (1 if total % size else 0)


def test_neighbours_stay_together_and_the_order_changes_between_rungs() -> None:
    profile = a_profile(16)
    usable = static_inventory(profile, date(2026, 1, 1))
    leaf_of = {node.name: node.leaf for node in usable}
    groups = partition(profile, usable, 4, seed=7)
    assert all(len({leaf_of[name] for name in nodes}) == 1 for _, nodes in groups)
    orders = {tuple(name for _, nodes in partition(profile, usable, size, 7) for name in nodes) for size in (1, 2, 4)}
    assert len(orders) == 3
    assert partition(profile, usable, 2, 7) == partition(profile, usable, 2, 7)


@pytest.mark.parametrize(
    ("counts", "available", "expected"),
    [("ladder", 12, [1, 2, 4, 8, 12]), ("ladder", 1, [1]), ("ladder", 0, []), ((4, 1, 4), 8, [1, 4])],
)
def test_rungs(counts: object, available: int, expected: list[int]) -> None:
    assert rungs(counts, available) == expected  # type: ignore[arg-type]


def test_an_excluded_node_is_a_gap_and_the_ladder_ends_at_what_is_left() -> None:
    excluded = {"node": "n0003", "reason": "RMA", "owner": "ops", "until": "2099-01-01"}
    profile = a_profile(8, exclusions=[excluded])
    suite = load_suite("nightly")
    plan = make_plan(profile, suite, static_inventory(profile, date(2026, 1, 1)), run_id="r", seed=1)
    assert {batch.node_count for batch in plan.batches if batch.benchmark == "nccl_tests"} == {1, 2, 4, 7}
    assert [(gap.node, gap.code) for gap in plan.gaps] == [("n0003", Code.EXCLUDED)]
    assert not any("n0003" in spec.nodes for spec in plan.launches)


def test_a_scale_that_was_asked_for_and_cannot_be_reached_is_not_run() -> None:
    profile = a_profile(8)
    suite = load_suite("nightly", {"node_counts": "1,16"})
    plan = make_plan(profile, suite, static_inventory(profile, date(2026, 1, 1)), run_id="r", seed=1)
    assert {(gap.code, gap.node_count) for gap in plan.gaps} == {(Code.UNREACHABLE_SCALE, 16)}
