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


def test_an_approved_run_that_gave_no_history_is_a_problem_that_says_what_to_do():
    lost = [{"run_id": "20260101T020000Z-000000", "reason": "not judged, or judging did not finish"}]
    (problem,) = read_limits({**WHOLE, "unusable": lost}).problems
    assert "20260101T020000Z-000000" in problem and "judging did not finish" in problem and "--revoke" in problem
    assert "unusable" in read_limits({**WHOLE, "unusable": 3}).problems[0]


def test_history_that_was_measured_otherwise_is_put_together_by_reason():
    item = {"benchmark": "fio", "reason": "clients: 2 → 4"}
    whole = {"run_id": "r0", "reason": "measured on other hardware"}
    peak = {"benchmark": "nccl_tests", "reason": "max_bytes", "indicators": ["bus_bandwidth_peak"], "run_id": "r1"}
    found = read_limits({**WHOLE, "left_out": [peak, whole, {**item, "run_id": "r1"}, {**item, "run_id": "r2"}]})
    fio, nccl = found.otherwise
    assert (fio.benchmark, fio.indicators, fio.reason, fio.runs) == ("fio", (), "clients: 2 → 4", ("r1", "r2"))
    assert nccl.holds_for("nccl_tests", "bus_bandwidth_peak") and not nccl.holds_for("nccl_tests", "bus_bandwidth")
    assert found.problems == () and not fio.holds_for("nccl_tests", "bus_bandwidth_peak")


@pytest.mark.parametrize("damaged", [3, None, [3], [{"benchmark": "fio"}]])
def test_what_is_left_out_and_cannot_be_read_is_a_problem(damaged: Any):
    (problem,) = read_limits({**WHOLE, "left_out": damaged}).problems
    assert "left_out" in problem


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


@pytest.mark.parametrize("nights", [{"n1": -1}, {"n1": 1.5}, {"n1": True}, {"n1": "3"}, {"n1": None}])
def test_an_age_is_a_count_of_nights(nights: Any):
    found = read_limits({**WHOLE, "nights": nights})
    assert found.nights == {} and "nights of this run can't be read: n1" in found.problems[0]


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), float("-inf"), True])
@pytest.mark.parametrize("name", ["value", "lower", "upper", "warn_lower", "warn_upper"])
def test_a_bound_that_is_no_number_binds_nothing_and_is_told(name: str, bound: float):
    limit = {
        "benchmark": "fio", "benchmark_version": "1", "indicator": "read_iops", "node_count": 1, "params": "{}",
        "unit": "IOPS", "value": 1.0, "lower": 0.9, "upper": None, "warn_lower": 0.95, "warn_upper": None, "runs": 1,
        "values": 1, "source": "made up",
    }  # fmt: skip
    assert read_limits({**WHOLE, "baseline": [limit]}).problems == ()
    found = read_limits({**WHOLE, "baseline": [{**limit, name: bound}]})
    assert found.baseline == () and f"{name} of fio/read_iops" in found.problems[0]
