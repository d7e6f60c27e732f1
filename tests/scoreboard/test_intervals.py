"""Intervals and quantiles against published values and definitions."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from plumbline.scoreboard.intervals import poisson, quantile, wilson


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17, 1998, table I, method 3.
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)  # fmt: skip
def test_wilson_is_as_published(found: int, of: int, low: float, high: float) -> None:
    assert wilson(found, of) == pytest.approx((low, high), abs=6e-5)


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("count", [0, 1, 3, 10, 250])
def test_poisson_limits_leave_two_and_a_half_per_cent_outside(count: int) -> None:
    low, high = poisson(count, 2.0)
    assert stats.poisson.cdf(count, high * 2.0) == pytest.approx(0.025)
    assert (stats.poisson.sf(count - 1, low * 2.0) == pytest.approx(0.025)) if count else low == 0.0


def test_poisson_of_no_exposure_says_nothing() -> None:
    assert poisson(0, 0.0) == (0.0, math.inf)


def test_quantiles_count_what_was_not_found_as_later() -> None:
    nights = [1, 1, 2, 9, None, None]
    assert [quantile(nights, share) for share in (0.25, 0.5, 2 / 3, 0.75, 1.0)] == [1, 2, 9, None, None]
    assert quantile([None], 0.5) is None
    assert quantile([], 0.5) is None
