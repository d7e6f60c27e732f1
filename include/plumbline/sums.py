"""Sums that are the same to the bit on every Python."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce


def added(values: Iterable[float], start: float = 0) -> float:
    """Add numbers to `start` one by one, each sum rounded.

    The builtin `sum` makes up for the rounding from Python 3.12 on, but not before: the same evidence would be judged
    by numbers that differ in the last digit.
    """
    return reduce(operator.add, values, start)
