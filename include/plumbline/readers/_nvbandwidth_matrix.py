"""One result matrix of nvbandwidth."""

from __future__ import annotations

from dataclasses import dataclass, field

from plumbline.model import Params
from plumbline.readers.reading import Reading, readings_where_there


@dataclass(slots=True)
class Matrix:
    """Rows and columns are devices (labels as printed); a cell that says N/A is None."""

    test: str
    unit: str
    """GB/s or ns."""
    columns: list[str]
    rows: list[tuple[str, list[float | None]]] = field(default_factory=list)
    name: str = ""
    """The name beside the sum: the test's, or with _read1, _write2, _total behind it."""
    printed_sum: float | None = None

    def sum_agrees(self, digits: float = 0.005) -> bool:
        """Say whether the printed sum is that of the cells, each of which is rounded by at most `digits`."""
        cells = [value for _, row in self.rows for value in row if value is not None]
        if self.printed_sum is None:
            return False
        return abs(sum(cells) - self.printed_sum) <= digits * (len(cells) + 1) + 1e-6 * abs(self.printed_sum)

    def readings(self) -> list[Reading]:
        """Give the cells, and the sum of a bandwidth."""
        indicator = "bandwidth" if self.unit == "GB/s" else "latency"
        count = len(self.rows) * len(self.columns)
        values = [value for _, row in self.rows for value in row]
        places: list[Params] = [
            {"test": self.name, "row": label, "column": column} for label, _ in self.rows for column in self.columns
        ]
        found = readings_where_there([indicator] * count, values, [self.unit] * count, places)
        if self.printed_sum is not None and indicator == "bandwidth":
            found.append(Reading("bandwidth_sum", self.printed_sum, "GB/s", {"test": self.name}))
        return found
