"""Rounding without printing is rounding by printing."""

from __future__ import annotations

import numpy as np
import pytest

from plumbline.simulation.printers.nccl_tests import _float, printed_float
from plumbline.simulation.rounding import printed, scientific


def numbers() -> np.ndarray:
    """Give numbers of all sizes, many of them next to a tie."""
    rng = np.random.default_rng(1)
    ties = rng.integers(0, 10**6, 3000) / 1000 + 0.0005
    return np.concatenate(
        [
            10 ** rng.uniform(-6, 14, 3000), ties, np.nextafter(ties, 0), np.nextafter(ties, 1e9),
            [0.0, 0.5, 1.5, 2.5, 0.125, 2.675, 1.005, 99.995, 99.996, 100.05, 9999.5, 10000.5, 1e16, 1e300],
        ]
    )  # fmt: skip


@pytest.mark.parametrize("decimals", [0, 1, 2, 3, 6, 9])
def test_as_printed_with_decimals(decimals: int) -> None:
    values = numbers()
    assert printed(values, decimals).tolist() == [float(f"{value:.{decimals}f}") for value in values.tolist()]


def test_as_printed_in_scientific_notation() -> None:
    values = numbers()
    assert scientific(values, 4).tolist() == [float(f"{value:.4e}") for value in values.tolist()]


@pytest.mark.parametrize("width", [6, 7])
def test_as_nccl_tests_prints(width: int) -> None:
    values = numbers()
    assert printed_float(values, width).tolist() == [float(_float(value, width)) for value in values.tolist()]
