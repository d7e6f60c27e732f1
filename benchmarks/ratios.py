"""Ratios of interleaved pairs: the geometric mean and how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.section import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its two-sided 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int

    def shown(self) -> str:
        return f"95 % CI {self.low:.4f} to {self.high:.4f}, n = {self.count}"


def mean_interval(values: Sequence[float]) -> Interval:
    """Give the arithmetic mean and Student's t interval. Raises ValueError below two values."""
    from scipy.special import stdtrit

    if len(values) < 2:
        raise ValueError(f"an interval needs two values at least, not {len(values)}")
    mean = statistics.fmean(values)
    half = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean=mean, low=mean - half, high=mean + half, count=len(values))


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Give the geometric mean of the pairs' ratios and its interval: t on the logarithms."""
    logs = [math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]
    found = mean_interval(logs)
    return Interval(mean=math.exp(found.mean), low=math.exp(found.low), high=math.exp(found.high), count=found.count)


def within_row(name: str, found: Interval, low: float, high: float) -> Row:
    """Give the row of a ratio whose interval must not exclude `low` to `high`."""
    held = found.low <= high and found.high >= low
    inside = found.low >= low and found.high <= high
    told = "inside the range" if inside else "wider than the range: not decided" if held else "outside"
    return Row(
        name=name, value=found.mean, unit="ratio", spread=f"{found.shown()}; {told}", held=held,
        limit=f"the interval does not exclude {low:g} to {high:g}",
    )  # fmt: skip


def interleave(pairs: int, first: Callable[[], float], second: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Measure both `pairs` times, in turn, the one that begins changing from pair to pair: drift hits both alike."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for which in order:
            found[which].append((first, second)[which]())
    return found
