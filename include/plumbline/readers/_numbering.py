"""Coordinates of readings whose output may hold one run or many."""

from __future__ import annotations

from collections.abc import Iterator

from plumbline.model import Scalar
from plumbline.readers.reading import Reading


class Numbering:
    """Gives readings their `run` (from 0) once there is more than one; the first run's wait for the second."""

    def __init__(self) -> None:
        """Start before the first run."""
        self.runs = 0
        self._first: list[Reading] = []

    def number(self, params: dict[str, Scalar]) -> dict[str, Scalar]:
        """Give the coordinates of the next run's readings."""
        if self.runs:
            params["run"] = self.runs
        return params

    def add(self, readings: list[Reading]) -> list[Reading]:
        """Take one run's readings, numbered; give those that are ready."""
        self.runs += 1
        if self.runs == 1:
            self._first = readings
            return []
        if self.runs == 2:
            first, self._first = self._first, []
            return [*(Reading(r.indicator, r.value, r.unit, {**r.params, "run": 0}) for r in first), *readings]
        return readings

    def rest(self) -> Iterator[Reading]:
        """Give what still waits, unnumbered: there was only one run."""
        if self.runs == 1:
            yield from self._first
