"""The table that `dcgmi diag` prints without -j, as the same results.

DCGM 2 and 3 write `Pass - All` or `Fail - GPUs: 1, 3` behind a test, with Warning, Error and Info rows below it; DCGM 4
writes the test's own status and below it one row for each entity (`GPU0: Pass`), whose rows are `Warning: GPU0`.
Longer texts are cut every 45 characters. Source: NVIDIA/DCGM, dcgmi/Diag.cpp of 2.1 to 4.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plumbline.readers._dcgm_results import Diagnosis, Result
from plumbline.readers.framing import strip_prefix

ROOT = "table"
HEADER = re.compile(r"\| ?Diagnostic +\| Result +\|")
_SECTION = re.compile(r"[|+]-{3,9}  (\w[\w ]{0,40}?)  -+\+-+[|+]")
_RULE = re.compile(r"\+-{10,}\+-{10,}\+")
_ROW = re.compile(r"\| ?(.{26})\| ?(.*)\|")
_STATUS = re.compile(r"(Pass|Fail|Warn|Skip|Not Run)(?: - (?:All|GPUs?: (\d{1,4}(?:, ?\d{1,4})*)))?")
_ENTITY = re.compile(r"([A-Za-z][A-Za-z ]{0,20}?) ?(\d{1,4}): (Pass|Fail|Warn|Skip|Not Run)")
_NOTE = re.compile(r"(Warning|Error|Info)(?:: ([A-Za-z][A-Za-z ]{0,20}?) ?(\d{1,4}))?")
_PIECE = 45
_METADATA = {"DCGM Version": "version", "Driver Version Detected": "driver"}


def tables_in(text: str) -> Iterator[tuple[Diagnosis, bool]]:
    """Give the tables of an output, each with whether its last line is there."""
    table: _Table | None = None
    for raw in text.splitlines():
        line = strip_prefix(raw).strip()
        if HEADER.fullmatch(line):
            if table is not None:
                yield table.finished(whole=False), False
            table = _Table()
        elif table is not None and _RULE.fullmatch(line):
            yield table.finished(whole=True), True
            table = None
        elif table is not None:
            table.take(line)
    if table is not None:
        yield table.finished(whole=False), False


class _Table:
    """One table as its lines come."""

    def __init__(self) -> None:
        """Start below the header."""
        self._diagnosis = Diagnosis(ROOT)
        self._category = "Metadata"
        self._test = ""
        self._rows: list[Result] = []
        """The results of the test whose rows are being read: its own, then those of its entities."""
        self._notes: list[tuple[str, str, str, list[str]]] = []
        """What stands below a test: kind, entity group, entity, pieces of the text."""

    def take(self, line: str) -> None:
        """Take a line below the header."""
        if section := _SECTION.fullmatch(line):
            self._end_test()
            self._category = section[1]
        elif row := _ROW.fullmatch(line):
            self._row(row[1].strip(), row[2])

    def finished(self, *, whole: bool) -> Diagnosis:
        """Give what was read. Where the table stops too early, the last texts may lack their ends."""
        if not whole:
            self._notes = []
        self._end_test()
        return self._diagnosis

    def _row(self, name: str, cell: str) -> None:
        text = cell.strip()
        status, entity, note = _STATUS.fullmatch(text), _ENTITY.fullmatch(text), _NOTE.fullmatch(name)
        if note and self._test:
            self._notes.append((note[1], note[2] or "", note[3] or "", [cell[:_PIECE]]))
        elif name and status:
            self._end_test()
            self._test = name
            self._rows = [self._result(status)]
        elif name and name in _METADATA and self._category == "Metadata":
            setattr(self._diagnosis, _METADATA[name], text)
        elif not name and self._test and entity:
            self._rows.append(Result(self._test, self._category, entity[1], (entity[2],), entity[3]))
        elif not name and self._test and status:
            self._rows.append(self._result(status))
        elif not name and self._notes:
            self._notes[-1][3].append(cell[:_PIECE])

    def _result(self, status: re.Match[str]) -> Result:
        gpus = tuple(re.findall(r"\d+", status[2] or ""))
        return Result(self._test, self._category, "GPU" if gpus else None, gpus, status[1])

    def _end_test(self) -> None:
        """Put the test's rows where they belong: of DCGM 4, the first sums up those of the entities."""
        if not self._test:
            return
        rows, book = [self._noted(row) for row in self._rows], self._diagnosis
        if len(rows) > 1 and rows[0].group is None:
            book.summaries[self._test] = rows.pop(0)
        book.results += rows
        book.tests.setdefault(self._test, []).extend(rows)
        self._test, self._rows, self._notes = "", [], []

    def _noted(self, row: Result) -> Result:
        """Give the row with the texts of its entity; those that name none belong to the worst row."""
        told: dict[bool, list[str]] = {True: [], False: []}
        for kind, group, entity, pieces in self._notes:
            mine = (row.group == group and entity in row.entities) if entity else row is self._worst()
            if mine:
                told[kind == "Info"].append("".join(pieces).strip())
        return row._replace(warnings=tuple(told[False]), info=tuple(told[True]))

    def _worst(self) -> Result:
        order = ("Pass", "Skip", "Not Run", "Warn", "Fail")
        return max(self._rows, key=lambda row: order.index(row.status))
