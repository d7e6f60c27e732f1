from hypothesis import given
from hypothesis import strategies as st

from plumbline.analysis.localisation import (
    BETWEEN_LEAVES,
    LEAF,
    NODE,
    NVLINK_DOMAIN,
    RACK,
    UPLINKS,
    Group,
    Localisation,
    localise,
)

LEAVES = {LEAF: {"leaf1": frozenset("abcd"), "leaf2": frozenset("efgh")}, RACK: {"rack1": frozenset("abcdefgh")}}
FOUR = {
    **LEAVES,
    LEAF: {
        "leaf1": frozenset("abcd"),
        "leaf2": frozenset("efgh"),
        "leaf3": frozenset("ijkl"),
        "leaf4": frozenset("mnop"),
    },
}


def night(bad: str, good: str = "") -> list[Group]:
    return [Group(nodes=frozenset(text), bad=True) for text in bad.split()] + [
        Group(nodes=frozenset(text), bad=False) for text in good.split()
    ]


def named(found: Localisation) -> list[tuple[str, str, int, int]]:
    return [(item.kind, item.name, len(item.bad), len(item.good)) for item in found.suspects]


def test_the_one_node_of_all_bad_groups_is_the_suspect():
    assert named(localise(night("ef fg abcdefgh", "ab cd gh abcd"), LEAVES)) == [(NODE, "f", 3, 0)]


def test_nodes_that_the_groups_cannot_tell_apart_are_all_named():
    found = localise(night("ef efgh abcdefgh", "ab cd gh abcd"), LEAVES)
    assert named(found) == [(NODE, "e", 3, 0), (NODE, "f", 3, 0)]


def test_good_groups_speak_against_and_the_fewest_win():
    found = localise(night("ef efgh", "ab cd eg gh"), LEAVES)
    assert named(found) == [(NODE, "f", 2, 0)]
    contradicted = localise(night("ef efgh", "ab cd eg fg eh"), LEAVES)
    assert named(contradicted) == [(NODE, "f", 2, 1)]


def test_a_leaf_is_named_when_no_node_is_in_all_bad_groups():
    assert named(localise(night("ef gh efgh abcdefgh", "ab cd abcd"), LEAVES)) == [(LEAF, "leaf2", 4, 0)]


def test_a_rack_is_named_when_its_leaves_are_in_turn():
    racks = {**FOUR, RACK: {"rack1": frozenset("abcdefgh"), "rack2": frozenset("ijklmnop")}}
    assert named(localise(night("abcd efgh abcdefgh", "ijkl mnop ijklmnop"), racks)) == [(RACK, "rack1", 3, 0)]


def test_an_nvlink_domain_is_a_part_too():
    domains = {NVLINK_DOMAIN: {"d1": frozenset("abc"), "d2": frozenset("def")}}
    assert named(localise(night("ab bc ac", "de ef df"), domains)) == [(NVLINK_DOMAIN, "d1", 3, 0)]


def test_links_between_leaves_are_named_when_only_groups_over_several_are_bad():
    found = localise(night("abcdefgh ijklmnop abcdefghijklmnop", "abcd efgh ijkl mnop"), FOUR)
    assert named(found) == [(BETWEEN_LEAVES, "", 3, 0)]


def test_uplinks_of_leaves_are_told_from_all_links_between_them():
    found = localise(night("abcdefgh abcdefghijklmnop", "abcd efgh ijkl mnop ijklmnop"), FOUR)
    assert named(found) == [(UPLINKS, "leaf1", 2, 0), (UPLINKS, "leaf2", 2, 0)]


def test_nothing_in_common_leaves_the_nodes_that_no_good_group_clears():
    found = localise(night("ab bcd ef efgh", "cd gh ad eh"), LEAVES)
    assert (found.suspects, found.shared) == ((), False)
    assert [(item.name, len(item.bad)) for item in found.uncleared] == [("b", 2), ("f", 2)]


def test_what_is_in_every_group_tells_nothing():
    found = localise(night("abcd", "abcd"))
    assert (found.suspects, found.shared) == ((), True)
    one_rack = {RACK: {"rack1": frozenset("abcdefgh"), "rack2": frozenset("xy")}}
    assert named(localise(night("ab cd", "ef gh"), one_rack)) == []


def test_a_lone_bad_group_names_its_members_and_not_the_whole_cluster():
    assert named(localise(night("ab", "cd"), LEAVES)) == [(NODE, "a", 1, 0), (NODE, "b", 1, 0)]
    assert named(localise(night("abcd"))) == []


def test_without_a_good_group_bad_groups_still_tell_nodes_apart_and_nothing_else():
    assert named(localise(night("ef efgh"), LEAVES)) == [(NODE, "e", 2, 0), (NODE, "f", 2, 0)]
    assert named(localise(night("ef gh"), LEAVES)) == []


def test_a_part_of_the_same_nodes_as_another_is_named_once():
    same = {
        LEAF: {"leaf1": frozenset("ab"), "leaf2": frozenset("cd")},
        RACK: {"r1": frozenset("ab"), "r2": frozenset("cd")},
    }
    assert named(localise(night("a b", "c d"), same)) == [(LEAF, "leaf1", 2, 0)]
    single = {LEAF: {"leaf1": frozenset("a"), "leaf2": frozenset("b")}}
    assert named(localise(night("a", "b"), single)) == [(NODE, "a", 1, 0)]


def test_no_bad_group_no_suspect():
    assert localise(night("", "ab cd")) == Localisation(suspects=(), shared=False)
    assert localise([]) == Localisation(suspects=(), shared=False)


@given(st.data())
def test_a_node_that_makes_every_group_of_it_bad_is_always_among_the_suspects(data: st.DataObject):
    """Partitions of 16 nodes in four leaves, one after the other, as the rungs of a ladder cut them."""
    planted = data.draw(st.sampled_from("abcdefghijklmnop"))
    groups = []
    for size in data.draw(st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=4)):
        order = data.draw(st.permutations("abcdefghijklmnop"))
        cut = [frozenset(order[start : start + size]) for start in range(0, 16, size)]
        groups += [Group(nodes=nodes, bad=planted in nodes) for nodes in cut]
    found = localise(groups, FOUR)
    nodes = {item.name: item for item in found.suspects if item.kind == NODE}
    assert planted in nodes and all(not item.good for item in found.suspects)
    assert len(nodes[planted].bad) == sum(group.bad for group in groups)


def test_a_node_that_was_measured_once_more_where_all_passed_is_no_better_than_the_others():
    """Three nodes at rung 2: the third is padded by the first, which so has one good group more."""
    rung2 = [Group(nodes=frozenset(names), bad=False, trial="rung 2") for names in ("ab", "ca")]
    assert localise([Group(nodes=frozenset("abc"), bad=True), *rung2]).suspects == ()
    pair = [Group(nodes=frozenset("ab"), bad=True), Group(nodes=frozenset("ca"), bad=False)]
    assert [item.name for item in localise(pair).suspects] == ["b"]
