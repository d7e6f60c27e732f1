"""What each benchmark's launches leave behind in a simulated night: one module a benchmark, two ways out.

`files(night, specs, rows, begin)` prints: for each of those rows of a batch, its files by name, with the times of a
launch that begins then. `values(nights, rung)` gives
the numbers that reading these files gives: [T × M, K] in the order of the benchmark's expected rows, and [T × M] which
launches say more than numbers (wrong results), so that only their text tells all. Both take the same computed values.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night, Nights, Rung

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Printed(NamedTuple):
    """What one launch left: files by name, and how long it worked by what they say, in seconds."""

    files: Mapping[str, str]
    took_s: float


class Outputs(Protocol):
    """A module in this package."""

    def files(
        self, night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int], begin: datetime
    ) -> Iterator[Printed]:
        """Print the files of those launches of a batch, in order; all begin at once, each by its nodes' clocks."""

    def works_s(self, spec: LaunchSpec) -> float:
        """Give how long a launch works at most, in seconds, if nothing is badly wrong: by what is asked. Assumption."""

    def values(self, nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
        """Give what reading the files gives, and which launches say more than numbers."""


def outputs(benchmark: str) -> Outputs:
    """Give a benchmark's module."""
    return cast(Outputs, importlib.import_module(f"plumbline.simulation.outputs.{benchmark}"))
