"""Sums are the same on every Python."""

from __future__ import annotations

from plumbline.sums import added


def test_every_sum_is_rounded_whatever_the_builtin_does() -> None:
    assert added([0.1] * 10) == 0.9999999999999999
    assert added([1.0, -1e100], 1e100) == 0.0
    assert added([]) == 0
