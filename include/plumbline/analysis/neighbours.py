"""Robust comparison of equals: which of many peers stands apart. Pure functions on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plumbline.analysis.scatter import LEAST_VALUES, MAD_TO_SIGMA, sigmas_needed
from plumbline.model import Better

if TYPE_CHECKING:
    import numpy


LEAST_PEERS = LEAST_VALUES
"""Fewer peers are compared with nobody."""


def shares(values: Sequence[float] | numpy.ndarray, better: Better) -> numpy.ndarray:
    """Give each value's share of the median of all, turned so that less than 1 is worse.

    value ÷ median where higher is better, median ÷ value where lower is; NaN where that can't be computed (a value or
    a median that is not finite and positive).
    """
    import numpy as np

    array = np.asarray(values, dtype=float)
    usable = np.isfinite(array) & (array > 0)
    if not usable.any():
        return np.full(array.shape, np.nan)
    median = float(np.median(array[usable]))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = median / array if better is Better.LOWER else array / median
    return np.where(usable, share, np.nan)


def spread_limit(values: Sequence[float] | numpy.ndarray, floor: float, sigmas: float) -> float:
    """Give the lowest share that is still ordinary: `floor`, or lower where the peers themselves scatter more.

    The limit is min(floor, median - k · 1.4826 · MAD), so that a noisy indicator accuses nobody; k is `sigmas`, or more
    where the peers are few (sigmas_needed). NaN is left out.
    """
    import numpy as np

    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if not len(array):
        return floor
    median = float(np.median(array))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(array - median)))
    return min(floor, median - max(sigmas, sigmas_needed(len(array))) * spread)


def outliers(
    values: Sequence[float] | numpy.ndarray, better: Better, *, tolerance: float, sigmas: float
) -> tuple[int, ...]:
    """Give the indices of values that are worse than their peers, worst first; () with fewer than LEAST_PEERS.

    Worse means a share of the median below 1 - max(tolerance, sigmas · 1.4826 · MAD of the shares). Where neither
    direction is better, either side counts.
    """
    import numpy as np

    if better is Better.NEITHER:
        low, high = shares(values, Better.HIGHER), shares(values, Better.LOWER)
        share = np.fmin(low, high)
    else:
        share = shares(values, better)
    if np.isfinite(share).sum() < LEAST_PEERS:
        return ()
    limit = spread_limit(share, 1 - tolerance, sigmas)
    found = np.flatnonzero(share < limit)
    return tuple(int(index) for index in found[np.argsort(share[found], kind="stable")])
