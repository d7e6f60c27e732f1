from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.analysis.neighbours import LEAST_PEERS, outliers, shares, spread_limit
from plumbline.model import Better

close = st.lists(st.floats(99, 101), min_size=7, max_size=40)


def test_a_share_of_one_half_is_worse_in_both_directions():
    assert shares([100, 100, 50, 100, 100], Better.HIGHER).tolist() == [1, 1, 0.5, 1, 1]
    assert shares([100, 100, 200, 100, 100], Better.LOWER).tolist() == [1, 1, 0.5, 1, 1]


def test_what_is_no_positive_number_has_no_share():
    assert np.isnan(shares([0.0, -1.0, np.nan, np.inf, 5.0], Better.HIGHER)).tolist() == [True] * 4 + [False]
    assert np.isnan(shares([], Better.HIGHER)).sum() == 0
    assert np.isnan(shares([0.0, 0.0], Better.LOWER)).all()


@pytest.mark.parametrize(
    ("better", "value"),
    [(Better.HIGHER, 90.0), (Better.LOWER, 110.0), (Better.NEITHER, 110.0), (Better.NEITHER, 90.0)],
)
@given(values=close, data=st.data())
def test_the_one_slow_place_is_found_and_nobody_else(better: Better, value: float, values: list[float], data):
    index = data.draw(st.integers(0, len(values) - 1))
    values[index] = value
    assert outliers(values, better, tolerance=0.05, sigmas=4) in ((index,), ())
    quiet = [100.0] * len(values)
    quiet[index] = value
    assert outliers(quiet, better, tolerance=0.05, sigmas=4) == (index,)


@given(close, st.sampled_from([Better.HIGHER, Better.LOWER]))
def test_equals_accuse_nobody(values: list[float], better: Better):
    assert outliers(values, better, tolerance=0.05, sigmas=4) == ()


def test_a_fast_place_is_not_an_outlier_where_fast_is_good():
    assert outliers([100.0] * 6 + [200.0], Better.HIGHER, tolerance=0.05, sigmas=4) == ()


def test_too_few_peers_say_nothing():
    assert outliers([100.0] * (LEAST_PEERS - 2) + [1.0], Better.HIGHER, tolerance=0.05, sigmas=4) == ()


def test_the_worst_comes_first():
    values = [100.0] * 8 + [80.0, 50.0, 90.0]
    assert outliers(values, Better.HIGHER, tolerance=0.05, sigmas=4) == (9, 8, 10)


def test_scatter_widens_the_limit_and_never_narrows_it():
    assert spread_limit([1.0] * 9, 0.95, 4) == 0.95
    noisy = [0.8, 0.9, 1.0, 1.1, 1.2]
    assert spread_limit(noisy, 0.95, 4) == pytest.approx(1 - 8 * 1.4826 * 0.1)
    assert spread_limit([], 0.95, 4) == 0.95 and spread_limit([np.nan], 0.95, 4) == 0.95
