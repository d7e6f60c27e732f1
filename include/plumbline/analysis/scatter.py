"""How far healthy values stray: the statistics that the comparison with peers and with history share."""

from __future__ import annotations

from typing import NamedTuple

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation → standard deviation of a normal distribution. Source: 1 / Φ⁻¹(3/4)."""


class Scatter(NamedTuple):
    """What is known of one indicator before anything was measured: how far a healthy value strays."""

    fail: float = 0.0
    """Share of the usual value that a healthy one may be short of it, for FAIL."""
    warn: float = 0.0
    step: float = 0.0
    """The step in which the tool prints it, in its unit."""


LEAST_VALUES = 5
"""The spread of fewer values says nothing: with four, one value moves median and spread by as much as it is off."""

_SIGMAS = ((5, 8.0), (32, 8.0), (64, 6.0), (128, 5.3), (1024, 4.9))
"""(values, MADs): how far a healthy one of 32 and more strays once in a million. The spread of fewer is hardly
known, and no multiple of it would do: there the floor, the known scatter of the indicator, carries the limit."""


def sigmas_needed(values: int) -> float:
    """Give the multiple of the scaled MAD that a healthy value passes about once in a million, for so many values."""
    import numpy as np

    counts, sigmas = zip(*_SIGMAS, strict=True)
    return float(np.exp(np.interp(np.log(max(values, 1)), np.log(counts), np.log(sigmas))))
