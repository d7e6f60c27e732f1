"""What each benchmark's launches leave behind in a simulated night: one module a benchmark, two ways out.

`files(night, specs, rows)` prints: for each of those rows of a batch, its files by name. `values(nights, rung)` gives
the numbers that reading these files gives: [T × M, K] in the order of the benchmark's expected rows, and [T × M] which
launches say more than numbers (wrong results), so that only their text tells all. Both take the same computed values.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night, Nights, Rung

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Outputs(Protocol):
    """A module in this package."""

    def files(self, night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int]) -> Iterator[Mapping[str, str]]:
        """Print the files of those launches of a batch, in order."""

    def values(self, nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
        """Give what reading the files gives, and which launches say more than numbers."""


def outputs(benchmark: str) -> Outputs:
    """Give a benchmark's module."""
    return cast(Outputs, importlib.import_module(f"plumbline.simulation.outputs.{benchmark}"))
