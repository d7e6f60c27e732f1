"""95 % intervals of shares and rates, and quantiles of times of which some were not seen to end."""

from __future__ import annotations

import math
from collections.abc import Sequence

CONFIDENCE = 0.95
_Z = 1.959963984540054
"""Φ⁻¹(0.975)."""


def wilson(found: int, of: int) -> tuple[float, float]:
    """Give the 95 % interval of a share, found ÷ of; (0, 1) of nothing.

    Source: Wilson, Journal of the American Statistical Association 22, 1927.
    """
    if of == 0:
        return 0.0, 1.0
    share, z2 = found / of, _Z * _Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return (0.0 if found == 0 else max(0.0, middle - half)), (1.0 if found == of else min(1.0, middle + half))


def poisson(count: int, exposure: float) -> tuple[float, float]:
    """Give the exact 95 % interval of a rate, count ÷ exposure; (0, infinity) without exposure.

    Source: Garwood, Biometrika 28, 1936: half of the χ² quantiles with 2 × count and 2 × count + 2 degrees of freedom.
    """
    from scipy.special import gammaincinv  # noqa: PLC0415 - a second

    if exposure <= 0:
        return 0.0, math.inf
    tail = (1 - CONFIDENCE) / 2
    least = float(gammaincinv(count, tail)) if count else 0.0
    return least / exposure, float(gammaincinv(count + 1, 1 - tail)) / exposure


def quantile(nights: Sequence[int | None], share: float) -> int | None:
    """Give the night by which that share of all cases was found; None where it was not while they were followed.

    None among the nights is a case that was not found: it counts as later than all that were.
    """
    seen = sorted(night for night in nights if night is not None)
    needed = max(1, math.ceil(share * len(nights) - 1e-9))
    return seen[needed - 1] if needed <= len(seen) else None
