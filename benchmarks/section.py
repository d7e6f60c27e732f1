"""What a benchmark of Plumbline gives: rows of a table, each with its limit where one is agreed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "benchmarks"
"""Everything that is written goes here, but for docs/benchmarks.md with --write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How thoroughly to measure. `pairs` None takes each benchmark's own number."""

    pairs: int | None = None
    quick: bool = False
    huge: bool = False

    def count(self, thorough: int, quick: int) -> int:
        return self.pairs or (quick if self.quick else thorough)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. `held` says whether it keeps `limit`; None where there is no limit, or the data can't tell."""

    name: str
    value: float | str | None
    unit: str = ""
    spread: str = ""
    limit: str = ""
    held: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The rows of one benchmark, how they were measured, and the raw figures behind them."""

    name: str
    title: str
    method: str
    rows: Sequence[Row]
    raw: Any = None
