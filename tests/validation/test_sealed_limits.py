from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.references.reference import load_references, references_data
from plumbline.validation.sealed_limits import read_limits

WHOLE: dict[str, Any] = {
    "references": references_data(load_references("local-cpu")),
    "baseline": [],
    "approved_runs": [],
    "waivers": [],
    "nights": {"n1": 3},
}


def test_whole_limits_have_no_problem():
    found = read_limits(WHOLE)
    assert found.problems == () and found.references is not None and found.nights == {"n1": 3}


@pytest.mark.parametrize("key", WHOLE)
def test_a_missing_part_is_a_problem_that_names_it(key: str):
    found = read_limits({name: value for name, value in WHOLE.items() if name != key})
    assert len(found.problems) == 1 and key in found.problems[0]


def test_approved_runs_without_limits_are_a_problem():
    assert "no limit of theirs" in read_limits({**WHOLE, "approved_runs": ["r1"]}).problems[0]


@pytest.mark.parametrize("data", [None, [], "", 3, {}])
def test_nothing_at_all_is_five_problems(data: Any):
    found = read_limits(data)
    assert found.references is None and len(found.problems) == 5


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(WHOLE)), anything)
def test_damaged_limits_raise_nothing(key: str, value: Any):
    read_limits({**WHOLE, key: value})
