"""Which node stands in for a lost one."""

from __future__ import annotations

from plumbline.kubernetes.elsewhere import Retry, substitutes
from tests.kubernetes.profiles import spec

INVENTORY = [
    {"name": f"n{number}", "leaf": f"leaf-{number % 2}", "rack": "r1", "nvlink_domain": None} for number in range(1, 9)
]


def retry(nodes: str, blamed: str | None, group: int = 0, **replaced: str) -> Retry:
    return Retry(spec=spec(nodes.split(), group=group), replaced=replaced, blamed=blamed)


def test_the_nearest_free_node_stands_in() -> None:
    one = retry("n1 n2", "n1")
    assert substitutes(INVENTORY, [one], {"n1"}) == {one.spec.launch_id: {"n1": "n3"}}  # n3 is on the same leaf


def test_a_node_stands_in_once_and_never_where_it_is_needed_itself() -> None:
    one, two = retry("n1 n2", "n1", 0), retry("n3 n5", "n3", 1)
    found = substitutes(INVENTORY, [one, two], {"n1", "n3"})
    assert found == {one.spec.launch_id: {"n1": "n7"}, two.spec.launch_id: {"n3": "n4"}}


def test_nodes_that_were_to_blame_do_not_stand_in() -> None:
    one = retry("n1 n2", "n1")
    assert substitutes(INVENTORY, [one], {"n1", "n3", "n5", "n7"})[one.spec.launch_id] == {"n1": "n4"}


def test_a_substitute_that_fails_is_replaced_itself() -> None:
    one = retry("n1 n2", "n3", n1="n3")
    assert substitutes(INVENTORY, [one], {"n1", "n3"}) == {one.spec.launch_id: {"n1": "n5"}}


def test_without_a_free_node_the_launch_keeps_its_nodes() -> None:
    one = retry("n1 n2", "n1")
    assert substitutes(INVENTORY[:2], [one], {"n1"}) == {one.spec.launch_id: {}}


def test_a_launch_of_one_node_has_no_elsewhere() -> None:
    one = retry("n1", "n1")
    assert substitutes(INVENTORY, [one], {"n1"}) == {one.spec.launch_id: {}}


def test_without_a_node_to_blame_nothing_is_replaced() -> None:
    one = retry("n1 n2", None)
    assert substitutes(INVENTORY, [one], set()) == {one.spec.launch_id: {}}
