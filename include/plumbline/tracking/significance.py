"""Whether a difference between two runs is more than scatter: small tests that need no statistics package to load."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

LEAST_REPEATS = 3
"""Fewer values on either side at one place allow no statement."""
LEAST_PAIRS = 10
"""Fewer places in pairs are too few for the normal approximation of the signed-rank statistic."""


def paired(steps: Sequence[float]) -> float | None:
    """Give the two-sided p of Wilcoxon's signed-rank test on differences, None for fewer than LEAST_PAIRS.

    Normal approximation with continuity and tie correction; zero differences are left out of the ranks.
    Source: F. Wilcoxon, Biometrics Bulletin 1 (1945) 80; M. Hollander and D. Wolfe, Nonparametric Statistical
    Methods, 2nd edition (1999), section 3.1.
    """
    if len(steps) < LEAST_PAIRS:
        return None
    moved = sorted((step for step in steps if step), key=abs)
    if not moved:
        return 1.0
    count, ranks, ties = len(moved), [0.0] * len(moved), 0.0
    start = 0
    while start < count:
        end = start
        while end + 1 < count and abs(moved[end + 1]) == abs(moved[start]):
            end += 1
        size = end - start + 1
        ranks[start : end + 1] = [(start + end) / 2 + 1] * size
        ties += size**3 - size
        start = end + 1
    positive = sum(rank for rank, step in zip(ranks, moved, strict=True) if step > 0)
    mean = count * (count + 1) / 4
    variance = count * (count + 1) * (2 * count + 1) / 24 - ties / 48
    distance = max(0.0, abs(positive - mean) - 0.5)
    return math.erfc(distance / math.sqrt(2 * variance))


def unpaired(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Give the two-sided p of Welch's t-test (unequal variances), None for fewer than LEAST_REPEATS on a side.

    Source: B. L. Welch, Biometrika 34 (1947) 28.
    """
    if min(len(left), len(right)) < LEAST_REPEATS:
        return None
    errors = [statistics.variance(values) / len(values) for values in (left, right)]
    difference = statistics.fmean(left) - statistics.fmean(right)
    if not any(errors):
        return 1.0 if difference == 0 else 0.0
    from scipy.special import stdtr  # noqa: PLC0415 - a second, and only runs with repeats need it

    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (left, right), strict=True)
    )
    return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(sum(errors))))
