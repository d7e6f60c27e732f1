"""The table of Intel's shared-memory LINPACK (xlinpack): one line a trial, its check in the last column."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plumbline.readers._hpl_harness import Test
from plumbline.readers._hpl_lines import Line, Residual, Row, agrees, number, whole_number

_END = re.compile(r"\s*(?:Residual checks (PASSED|FAILED)|End of tests\b)")
_NAMES = {"Size", "Time(s)", "GFlops", "Residual(norm)", "Check"}


class SharedMemoryTable:
    """Takes lines one by one and gives the trials in them."""

    def __init__(self) -> None:
        """Start before the table."""
        self._columns: list[str] | None = None
        self.tables = self.ends = 0
        self.failed = False

    def feed(self, line: Line) -> Iterator[Test]:
        """Take one line."""
        cells = line.text.split()
        if cells[:1] == ["Size"]:
            self._columns = cells if set(cells) >= _NAMES else None
            self.tables += self._columns is not None
        elif match := _END.match(line.text):
            self.ends = max(self.ends, self.tables)
            self.failed |= match[1] == "FAILED"
        elif self._columns is not None and cells[-1:] and cells[-1] in ("pass", "fail"):
            yield self._trial(cells, self._columns)

    @staticmethod
    def _trial(cells: list[str], columns: list[str]) -> Test:
        if len(cells) != len(columns):
            return Test(damaged=True)
        by_name = dict(zip(columns, cells, strict=True))
        n = whole_number(by_name["Size"])
        time_s, gflops = number(by_name["Time(s)"]), number(by_name["GFlops"])
        value = number(by_name["Residual(norm)"])
        check = Residual(by_name["Residual(norm)"], value, by_name["Check"] == "pass" and value is not None)
        if not n or time_s is None or not gflops or not agrees(n, time_s, gflops):
            return Test(residuals=[check], damaged=True)
        found = Row(variant=None, n=n, nb=None, p=None, q=None, time_s=time_s, gflops=gflops)
        return Test(row=found, residuals=[check])
