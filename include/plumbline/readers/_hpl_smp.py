"""The table of Intel's shared-memory LINPACK (xlinpack): one line a trial, its check in the last column."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plumbline.readers._hpl_harness import Test
from plumbline.readers._hpl_lines import Line, Residual, Row, agrees, number, whole_number

_END = re.compile(r"\s*(?:Residual checks (PASSED|FAILED)|End of tests\b)")
_TITLE = re.compile(r"\s*Intel\(R\) .{0,40}LINPACK .{0,20}data\b")
_NAMES = {"Size", "Time(s)", "GFlops", "Residual(norm)", "Check"}


class SharedMemoryTable:
    """Takes lines one by one and gives the trials in them."""

    def __init__(self) -> None:
        """Start before the table."""
        self._columns: list[str] | None = None
        self.tables = self.ends = 0
        self.failed = self.begun = False
        self._lost = 0
        self._titled = self._open = False

    def feed(self, line: Line) -> Iterator[Test]:
        """Take one line."""
        cells = line.text.split()
        if cells[:1] == ["Size"]:
            self._columns = cells if set(cells) >= _NAMES else None
            if self._columns is not None:
                self._begin(table=True)
        elif match := _END.match(line.text):
            self.ends += self._open
            self._titled = self._open = False
            self.failed |= match[1] == "FAILED"
        elif _TITLE.match(line.text):
            self._begin(table=False)
        elif self._columns is not None and cells[-1:] and cells[-1] in ("pass", "fail"):
            yield self._trial(cells, self._columns)

    def _begin(self, *, table: bool) -> None:
        """Note a title, or the table below it: one that's there already was another run's."""
        if self._open or (self._titled and not table):
            self._lost += 1
        self.begun, self._titled, self._open = True, not table, table
        self.tables += table

    def reasons(self) -> list[str]:
        """Say what is missing."""
        found = [f"runs that began before another and have no 'Residual checks' line: {self._lost}"]
        if self._open or self._titled:
            found.append("no 'Residual checks' line below the table")
        return found if self._lost else found[1:]

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
