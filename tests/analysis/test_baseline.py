from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.analysis.baseline import baseline_data, baseline_from, limits_from_history
from plumbline.analysis.scatter import Scatter
from plumbline.model import Better
from plumbline.suites.suite import Baseline

BETTER = {("fio", "iops"): Better.HIGHER, ("fio", "latency"): Better.LOWER, ("fio", "loss"): Better.NEITHER}
POLICY = Baseline()


def run_id(number: int) -> str:
    return f"202601{number:02d}T020000Z-000000"


def history(values: dict[int, list[float]], **fields: Any) -> pd.DataFrame:
    shape = {"benchmark": "fio", "benchmark_version": "1", "indicator": "iops", "node_count": 1, "params": "{}"}
    shape |= {"unit": "IOPS"}
    rows = [{**shape, **fields, "run_id": run_id(night), "value": v} for night, found in values.items() for v in found]
    return pd.DataFrame(rows, columns=[*shape, "run_id", "value"])


def test_the_limit_is_the_median_less_the_tolerance():
    (limit,) = limits_from_history(history({1: [100.0], 2: [101.0], 3: [99.0]}), POLICY, BETTER)
    assert (limit.value, limit.runs, limit.values) == (100.0, 3, 3)
    assert limit.upper is None and limit.lower == pytest.approx(95.0)
    assert limit.source == f"median of 3 values of 3 approved runs ({run_id(1)} … {run_id(3)})"


def test_a_quiet_history_uses_the_tolerance_and_a_noisy_one_its_spread():
    (quiet,) = limits_from_history(history({n: [100.0] for n in range(1, 6)}), POLICY, BETTER)
    assert (quiet.lower, quiet.warn_lower) == (pytest.approx(95.0), pytest.approx(97.0))
    noisy = history({n: [v] for n, v in enumerate([96.0, 98.0, 100.0, 102.0, 104.0], start=1)})
    (limit,) = limits_from_history(noisy, POLICY, BETTER)
    assert limit.lower == limit.warn_lower == pytest.approx(100 - 8 * 1.4826 * 2)


def test_many_values_need_fewer_deviations_than_few():
    values = [90.0, 95.0, 100.0, 105.0, 110.0]
    (few,) = limits_from_history(history({n: [v] for n, v in enumerate(values, start=1)}), POLICY, BETTER)
    (many,) = limits_from_history(history(dict.fromkeys(range(1, 6), values * 64)), POLICY, BETTER)
    assert few.lower is not None and many.lower is not None and many.lower > few.lower
    assert many.lower == pytest.approx(100 - 4.9 * 1.4826 * 5)


def test_however_a_history_scatters_a_fifth_of_the_usual_speed_is_a_finding():
    wild = history({n: [v] for n, v in enumerate([10.0, 60.0, 100.0, 140.0, 190.0], start=1)})
    (limit,) = limits_from_history(wild, POLICY, BETTER)
    assert limit.lower == pytest.approx(20.0)
    (limit,) = limits_from_history(
        history({n: [v] for n, v in enumerate([1.0, 6.0, 10.0, 14.0, 19.0], start=1)}, indicator="latency", unit="us"),
        POLICY, BETTER,
    )  # fmt: skip
    assert limit.upper == pytest.approx(50.0)


def test_the_spread_of_a_few_values_widens_nothing():
    (limit,) = limits_from_history(history({1: [80.0], 2: [100.0], 3: [120.0]}), POLICY, BETTER)
    assert limit.lower == pytest.approx(95.0)


def test_the_tolerance_is_at_least_the_known_scatter():
    def scatter(benchmark: str, version: str, indicator: str, node_count: int) -> Scatter:
        assert (benchmark, version, indicator, node_count) == ("fio", "1", "iops", 1)
        return Scatter(fail=0.2, warn=0.01)

    (limit,) = limits_from_history(history({1: [100.0]}), POLICY, BETTER, scatter)
    assert (limit.lower, limit.warn_lower) == (pytest.approx(80.0), pytest.approx(97.0))


def test_a_limit_is_not_finer_than_the_tool_prints():
    printed = history({1: [0.03, 0.04, 0.04, 0.04, 0.04, 0.03]})
    (limit,) = limits_from_history(printed, POLICY, BETTER, lambda *key: Scatter(fail=0.2, warn=0.15, step=0.01))
    assert limit.lower is not None and limit.lower < 0.03 < limit.value


def test_where_lower_is_better_the_limit_is_above():
    (limit,) = limits_from_history(history({1: [10.0]}, indicator="latency", unit="us"), POLICY, BETTER)
    assert limit.lower is None
    assert (limit.upper, limit.warn_upper) == pytest.approx((10 / 0.95, 10 / 0.97))


def test_what_has_no_direction_has_no_limit():
    assert limits_from_history(history({1: [1.0]}, indicator="loss"), POLICY, BETTER) == ()
    assert limits_from_history(history({1: [1.0]}, indicator="unknown"), POLICY, BETTER) == ()


def test_a_share_of_the_peers_has_no_history_of_its_own():
    frame = pd.concat(
        [history({1: [1.0]}, indicator="share_of_peer_median"), history({1: [5.0]}, indicator="read_iops")]
    )
    assert [limit.indicator for limit in limits_from_history(frame, POLICY)] == ["read_iops"]


def test_too_few_runs_and_no_history_give_no_limit():
    assert limits_from_history(history({1: [1.0, 2.0, 3.0]}), Baseline(min_runs=2), BETTER) == ()
    assert limits_from_history(history({}), POLICY, BETTER) == ()


def test_only_the_newest_runs_count_whatever_the_order():
    values = {n: [10.0 if n < 5 else 100.0] for n in range(1, 9)}
    frame = history(values)
    for shown in (frame, frame.iloc[::-1], frame.sample(frac=1, random_state=1)):
        (limit,) = limits_from_history(shown, Baseline(window=4), BETTER)
        assert (limit.value, limit.runs) == (100.0, 4)


def test_versions_parameters_and_node_counts_are_kept_apart():
    frames = [
        history({1: [100.0]}),
        history({1: [50.0]}, benchmark_version="2"),
        history({1: [25.0]}, params='{"bs":"4k"}'),
        history({1: [10.0]}, node_count=2),
    ]
    limits = limits_from_history(pd.concat(frames), POLICY, BETTER)
    assert sorted(limit.value for limit in limits) == [10.0, 25.0, 50.0, 100.0]
    assert len({limit.key for limit in limits}) == 4


def test_another_unit_and_what_is_not_finite_is_left_out():
    frame = pd.concat([history({1: [0.1]}, unit="1/s"), history({2: [100.0, np.nan, np.inf]})])
    (limit,) = limits_from_history(frame, POLICY, BETTER)
    assert (limit.unit, limit.value, limit.values) == ("IOPS", 100.0, 1)


def test_negative_medians_keep_their_limits_on_the_right_side():
    (limit,) = limits_from_history(history({1: [-100.0]}), POLICY, BETTER)
    assert limit.lower == pytest.approx(-105.0)


def test_limits_survive_being_sealed():
    limits = limits_from_history(history({1: [100.0, 101.0]}), POLICY, BETTER)
    assert baseline_from(baseline_data(limits)) == limits


numbers = st.lists(st.floats(1, 1e6), min_size=1, max_size=12)


@given(numbers)
def test_approved_history_passes_its_own_median(values: list[float]):
    (limit,) = limits_from_history(history({n + 1: [v] for n, v in enumerate(values)}), POLICY, BETTER)
    assert limit.lower is not None and limit.warn_lower is not None
    assert limit.lower <= limit.warn_lower <= limit.value


@given(st.lists(st.floats(90, 110), min_size=5, max_size=13), st.floats(0, 1e9))
def test_one_wild_run_cannot_move_the_limit_far(values: list[float], wild: float):
    policy = Baseline(window=14)
    (before,) = limits_from_history(history({n + 1: [v] for n, v in enumerate(values)}), policy, BETTER)
    nights = {n + 1: [v] for n, v in enumerate([*values, wild])}
    (after,) = limits_from_history(history(nights), policy, BETTER)
    assert before.value - 20 <= after.value <= before.value + 20


@given(numbers, st.floats(0.001, 1000))
def test_the_unit_changes_nothing(values: list[float], scale: float):
    nights = {n + 1: [v] for n, v in enumerate(values)}
    (one,) = limits_from_history(history(nights), POLICY, BETTER)
    (two,) = limits_from_history(history({n: [v[0] * scale] for n, v in nights.items()}), POLICY, BETTER)
    assert one.lower is not None and two.lower == pytest.approx(one.lower * scale, rel=1e-6, abs=1e-6 * scale)
