"""Every node at every scale, disjoint groups, nothing lost in silence."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import partition, rungs


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
