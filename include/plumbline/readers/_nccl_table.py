"""The result table of nccl-tests and rccl-tests: layout from its header line, rows by that layout.

Source: the print statements of NVIDIA/nccl-tests (2017 to v2.19.6) and ROCm/rccl-tests. Head columns (size, count,
type, redop, root) come and go between versions, some operations leave the redop cell blank, and a group of columns
for each placement follows, out-of-place first where both are there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_NAMES = {
    "cputime": "cpu_time",
    "algbw": "algorithm_bandwidth",
    "busbw": "bus_bandwidth",
    "#wrong": "wrong",
    "error": "rounding_error",
    "res": "rounding_error",
    "i_min": "iteration_min",
    "i_max": "iteration_max",
    "i_p99": "iteration_p99",
    "i_cv%": "iteration_cv",
}
UNITS = {
    "time": "us",
    "cpu_time": "us",
    "algorithm_bandwidth": "GB/s",
    "bus_bandwidth": "GB/s",
    "wrong": "count",
    "rounding_error": "1",
    "iteration_min": "us",
    "iteration_max": "us",
    "iteration_p99": "us",
    "iteration_cv": "%",
}
"""Columns that become readings; a column of another name is read over."""

_HEADER = re.compile(
    r"\s*#?\s*(?:size|bytes)\s+(?:count|N)\s(?:.*\s)?(?:cpu)?time\s+(?:algbw\s+busbw|busbw\s+algbw)(?:\s|$)"
)
_LONGEST_LINE = 1000
_PLACE = re.compile(r"out-of-place|in-place")
_SIZE = "[0-9]{1,18}+"
# No tool here prints an exponent of three digits, nor NaN, infinity or a negative measurement that one would accept.
_NUMBER = r"[0-9]{1,18}+(?:\.[0-9]{1,18}+)?+(?:e[+-][0-9][0-9])?+"
_CELLS = {"wrong": rf"(N/A|{_NUMBER})", "rounding_error": rf"(N/A|{_NUMBER}\*?)"}
_TIMESTAMP = r"(?: +[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})?"
_ROW_START = re.compile(r"\s*[0-9]+\s+[0-9]+\s+[A-Za-z]\w*(?:\s|$)", re.ASCII)
_FIRST_CELL = 5

Columns = tuple[str, ...]


class Row(NamedTuple):
    """One row of a table. `redop` and `root` are None where the tool prints nothing, 'none' or -1.

    `operator` is what stands between type and time, as printed: 'sum -1', 'sum', '0', ''. `groups` are the placements
    (True is in-place) with their column names, `values` all their cells in order, None for N/A, an unknown column
    or a cell that is no number; `flagged` says that an error cell carries rccl-tests' asterisk: a wrong result.
    """

    size: int
    elements: int | None
    dtype: str
    redop: str | None
    root: int | None
    operator: str
    groups: tuple[tuple[bool, Columns], ...]
    values: tuple[float | None, ...]
    flagged: bool = False


class Block(NamedTuple):
    """Rows of one table that follow each other and are alike but for size, elements and values. `values` by column."""

    sizes: list[int]
    elements: list[int]
    first: Row
    values: Sequence[Sequence[float | None]]

    def row(self, at: int) -> Row:
        """Give one of the rows."""
        values = tuple(column[at] for column in self.values)
        return self.first._replace(size=self.sizes[at], elements=self.elements[at], values=values)


_row = tuple.__new__  # what the class's own __new__ comes down to, which costs twice as much


def is_header(text: str) -> bool:
    """Say whether a line (without prefix) is the line of column names."""
    return "algbw" in text and len(text) <= _LONGEST_LINE and _HEADER.match(text) is not None


def placements(text: str) -> tuple[bool, ...] | None:
    """Give the placements that the line above the column names announces (True is in-place), or None."""
    found = tuple(word == "in-place" for word in _PLACE.findall(text))
    return found or None


def starts_like_row(text: str) -> bool:
    """Say whether a line begins as a row does: size, count, type."""
    return _ROW_START.match(text[:_LONGEST_LINE]) is not None


def column_names(header: str) -> list[tuple[str, int]]:
    """Give the words of a header line and where each ends. The leading # is no word of its own."""
    if header.lstrip().startswith("#"):
        header = header.replace("#", " ", 1)
    return [(match.group(), match.end()) for match in re.finditer(r"\S+", header)]


class Layout:
    """What the columns are, told from the line of column names."""

    def __init__(self, header: str, places: tuple[bool, ...] | None) -> None:
        """Read the column names. `places` is what the line above says, None when it is not there."""
        words = column_names(header)
        first = next(at for at, (name, _) in enumerate(words) if name in ("time", "cputime"))
        self.time_scale = 1000.0 if words[0][0] == "bytes" else 1.0
        """The layout of 2017 ("bytes N") prints milliseconds."""
        self.head = {{"op": "redop"}.get(name, name) for name, _ in words[:first]}
        """The head columns that are there: size, count, type, redop, root."""
        groups: list[list[str]] = []
        self.edges = [words[first - 1][1]]
        """Where, in characters, the head and each group of columns end."""
        for name, end in words[first:]:
            if name in ("time", "cputime"):
                groups.append([])
                self.edges.append(end)
            if name != "timestamp":
                groups[-1].append(_NAMES.get(name, name))
                self.edges[-1] = end
        if not places or len(places) != len(groups):
            places = (False, True) if len(groups) == 2 else (False,) * len(groups)
        self.groups = tuple((place, tuple(names)) for place, names in zip(places, groups, strict=True))
        known = {name for _, names in self.groups for name in names}
        self._plain = known <= UNITS.keys() - {"rounding_error"} and self.time_scale == 1.0
        self._row = re.compile(self._pattern(self.groups), re.ASCII)
        self._last_only = re.compile(self._pattern(self.groups[-1:]), re.ASCII) if len(groups) > 1 else None

    def _pattern(self, groups: tuple[tuple[bool, Columns], ...]) -> str:
        redop = r"(?:([A-Za-z]\w*+) ++)?+" if "redop" in self.head else "()"
        root = r"(?:(-?[0-9]{1,9}+) ++)?" if "root" in self.head else "()"
        cells = [_CELLS.get(name, f"({_NUMBER})" if name in UNITS else r"(\S++)") for _, ns in groups for name in ns]
        return rf" *+({_SIZE}) ++({_SIZE}) ++([A-Za-z]\w*+) ++{redop}{root}{' ++'.join(cells)}{_TIMESTAMP} *+"

    def row(self, text: str) -> Row | None:
        """Read one line (without prefix and line end). None when it is not a whole row of this layout."""
        if len(text) > _LONGEST_LINE:
            return None
        text = text.expandtabs() if "\t" in text else text
        match = self._row.fullmatch(text)
        groups = self.groups
        if match is None:
            if self._last_only is None or (match := self._last_only.fullmatch(text)) is None:
                return None
            if match.start(_FIRST_CELL + 1) < self.edges[-2]:
                return None  # the cells stand under the first placement: the rest of the row was never printed
            groups = groups[-1:]
        size, count, dtype, redop, root, *cells = match.groups()
        values: tuple[float | None, ...]
        if not self._plain:
            values = self._converted(groups, cells)
        elif "N/A" in cells:
            values = tuple([None if cell == "N/A" else float(cell) for cell in cells])
        else:
            values = tuple(map(float, cells))
        flagged = not self._plain and any(cell[-1] == "*" for cell in cells)
        return _row(Row, (int(size), int(count), dtype, *_operator(redop, root), groups, values, flagged))

    def block(self, lines: list[str]) -> Block | None:
        """Read the first of the lines that are whole rows and alike, None where that are less than two."""
        if not self._plain or max(map(len, lines)) > _LONGEST_LINE:
            return None
        matches = list(map(self._row.fullmatch, lines))
        if None in matches:
            del matches[matches.index(None) :]
        columns = list(zip(*[match.groups() for match in matches if match], strict=True))
        alike = min((_alike(column) for column in columns[2:_FIRST_CELL]), default=0)
        first = self.row(lines[0]) if alike > 1 else None
        if first is None:
            return None
        values: list[Sequence[float | None]] = [
            [None if cell == "N/A" else float(cell) for cell in column] if "N/A" in column else list(map(float, column))
            for column in (column[:alike] for column in columns[_FIRST_CELL:])
        ]
        return Block(list(map(int, columns[0][:alike])), list(map(int, columns[1][:alike])), first, values)

    def _converted(self, groups: tuple[tuple[bool, Columns], ...], cells: list[str]) -> tuple[float | None, ...]:
        names = [name for _, names in groups for name in names]
        values: list[float | None] = []
        for name, cell in zip(names, cells, strict=True):
            if name not in UNITS or cell == "N/A":
                values.append(None)
            else:
                value = float(cell.rstrip("*"))
                values.append(value * self.time_scale if name in ("time", "cpu_time") else value)
        return tuple(values)

    def at_edge(self, text: str) -> bool:
        """Say whether a fragment of a row ends where a group of columns ends: where the tool pauses in a row."""
        return len(text) in self.edges


def _alike(column: Sequence[str | None]) -> int:
    """Give how many cells at a column's start are equal."""
    if column.count(column[0]) == len(column):
        return len(column)
    return next(at for at, cell in enumerate(column) if cell != column[0])


@lru_cache(maxsize=256)
def _operator(redop: str | None, root: str | None) -> tuple[str | None, int | None, str]:
    """Give what stands between type and time as a Row has it: redop, root, operator."""
    return (
        redop if redop and redop != "none" else None,
        int(root) if root and root != "-1" else None,
        f"{redop} {root}" if redop and root else redop or root or "",
    )


def announced_rows(least: int, most: int, step: int, by_factor: bool) -> int | None:
    """Give how many sizes a sweep has, or None where it has no end. Source: the loop in common.cu, TimeTest."""
    if most < least or step <= 0 or (by_factor and (step < 2 or least < 1)):
        return None
    if not by_factor:
        return (most - least) // step + 1
    rows, size = 0, least
    while size <= most:
        rows, size = rows + 1, size * step
    return rows
