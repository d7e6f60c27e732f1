"""Numbers as tools print them and readers read them back: C's rounding, on whole arrays.

Printing rounds the exact binary value, half to even; scaling, rounding and dividing gives the same, but where the
scaled value lies next to a tie. There the number is really printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEAR_TIE = 1e-6
_MOST = 2.0**50
"""Scaled values above it have no room for a fraction that could be told from a tie."""


def printed(values: NDArray[Any], decimals: int) -> NDArray[Any]:
    """Give what `%.<decimals>f` leaves of each value."""
    import numpy as np

    scale = 10.0**decimals
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.asarray(values, float) * scale
        found = np.rint(scaled) / scale
        near = np.abs(scaled - np.floor(scaled) - 0.5) < _NEAR_TIE
    unsure = near | ~(np.abs(scaled) < _MOST)
    if unsure.any():
        found[unsure] = [float(f"{value:.{decimals}f}") for value in np.asarray(values, float)[unsure].tolist()]
    return np.asarray(found)


def scientific(values: NDArray[Any], decimals: int) -> NDArray[Any]:
    """Give what `%.<decimals>e` leaves of each value."""
    import numpy as np

    array = np.asarray(values, float)
    return np.array([float(f"{value:.{decimals}e}") for value in array.ravel().tolist()]).reshape(array.shape)
