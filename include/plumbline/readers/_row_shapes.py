"""Rows of numbers, told from other lines by where their digits stand: that is the same in row after row of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

ANY_DIGIT = str.maketrans("123456789", "000000000")
"""Translates a line to its shape: what is the same of all lines whose digits stand in the same places."""
MOST_SHAPES = 4096
_STARTS = frozenset(" \t\v\f\r0123456789")


class RowShapes:
    """The rows of one kind of table. `pattern` matches whole rows, which begin with a blank or a digit.

    It must not care which digits there are.
    """

    def __init__(self, pattern: re.Pattern[str], longest: int) -> None:
        """Know no shape yet; lines of `longest` characters and more are no rows."""
        self._fullmatch, self._longest = pattern.fullmatch, longest
        self._known: set[str] = set()

    def has(self, line: str) -> bool:
        """Say whether a line is a row."""
        if line[:1] not in _STARTS:
            return False
        shape = line.translate(ANY_DIGIT)
        if shape in self._known:
            return True
        is_row = len(line) < self._longest and self._fullmatch(line) is not None
        if is_row and len(self._known) < MOST_SHAPES:
            self._known.add(shape)
        return is_row

    def cells(self, lines: Sequence[str]) -> list[str] | None:
        """Give the words of all lines, one behind the other, or None when a line is no row."""
        text = "\n".join(lines)
        if self._known.issuperset(text.translate(ANY_DIGIT).split("\n")) or all(map(self.has, lines)):
            return text.split()
        return None

    def square(self, lines: Sequence[str], size: int) -> tuple[list[str], list[str]] | None:
        """Give labels and cells, row behind row, of a matrix whose rows are just these lines; None for anything else.

        Labels are whole numbers, cells have a point: where labels stand tells that every row has `size` cells.
        """
        cells = self.cells(lines) if len(lines) == size else None
        if cells is None or len(cells) != size * (size + 1):
            return None
        labels = cells[:: size + 1]
        if not all(map(str.isdigit, labels)):
            return None
        del cells[:: size + 1]
        return labels, cells
