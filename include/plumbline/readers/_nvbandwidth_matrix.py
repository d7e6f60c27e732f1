"""One result matrix of nvbandwidth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plumbline.model import Params
from plumbline.readers.reading import Reading, readings_where_there

Places = Callable[[str, tuple[str, ...], tuple[str, ...]], Sequence[Params]]


@dataclass(slots=True)
class Matrix:
    """Rows and columns are devices (labels as printed); a cell that says N/A is None."""

    test: str
    unit: str
    """GB/s or ns."""
    columns: tuple[str, ...]
    labels: list[str] = field(default_factory=list)
    """Of the rows."""
    values: list[float | None] = field(default_factory=list)
    """Row behind row."""
    name: str = ""
    """The name beside the sum: the test's, or with _read1, _write2, _total behind it."""
    printed_sum: float | None = None

    def sum_agrees(self, digits: float = 0.005) -> bool:
        """Say whether the printed sum is that of the cells, each of which is rounded by at most `digits`."""
        if self.printed_sum is None:
            return False
        cells = [value for value in self.values if value is not None]
        return abs(sum(cells) - self.printed_sum) <= digits * (len(cells) + 1) + 1e-6 * abs(self.printed_sum)

    def readings(self, places: Places) -> list[Reading]:
        """Give the cells, and the sum of a bandwidth. `places` is `places_of`, or keeps what it gave."""
        indicator, count = "bandwidth" if self.unit == "GB/s" else "latency", len(self.values)
        where = places(self.name, tuple(self.labels), self.columns)
        found = readings_where_there([indicator] * count, self.values, [self.unit] * count, where)
        if self.printed_sum is not None and indicator == "bandwidth":
            found.append(Reading("bandwidth_sum", self.printed_sum, "GB/s", {"test": self.name}))
        return found


def places_of(test: str, labels: tuple[str, ...], columns: tuple[str, ...]) -> Sequence[Params]:
    """Give the params of each cell, row behind row."""
    return [{"test": test, "row": label, "column": column} for label in labels for column in columns]
