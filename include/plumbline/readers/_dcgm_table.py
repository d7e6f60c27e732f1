"""The table that `dcgmi diag` prints without -j, as the same results.

DCGM 2 and 3 write `Pass - All` or `Fail - GPUs: 1, 3` behind a test, with Warning, Error and Info rows below it; DCGM 4
writes the test's own status and below it one row for each entity (`GPU0: Pass`), whose rows are `Warning: GPU0`.
Longer texts are cut every 45 characters. Source: NVIDIA/DCGM, dcgmi/Diag.cpp of 2.1 to 4.6.
A row that is none of these makes the table a damaged one; where it says that something failed, that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from plumbline.readers._dcgm_results import Diagnosis, Result
from plumbline.readers.framing import strip_prefix

ROOT = "table"
HEADER = re.compile(r"\| ?Diagnostic +\| Result +\|")
SECTION = re.compile(r"[|+]-{3,9}  (\w[\w ]{0,40}?)  -+\+-+[|+]")
_RULE = re.compile(r"\+-{10,}\+-{10,}\+")
_WORDS = {word.lower(): word for word in ("Pass", "Skip", "Not Run", "Warn", "Fail")}
"""The statuses, the best first."""
_ORDER = tuple(_WORDS.values())
_ANY = "|".join(_WORDS)
_NUMBERS = r"\d{1,4}(?:, ?\d{1,4})*,?"
_STATUS = re.compile(rf"({_ANY})(?: - (?:All|GPUs?: ({_NUMBERS})))?", re.IGNORECASE)
_LIST = re.compile(_NUMBERS)
_GROUP = r"([A-Za-z][A-Za-z ]{0,20}?) ?(\d{1,4})"
_ENTITY = re.compile(rf"{_GROUP}: ({_ANY})", re.IGNORECASE)
_OTHER_ENTITY = re.compile(rf"{_GROUP}:\s*[A-Za-z]*")
_NOTE = re.compile(rf"(Warning|Error|Info)(?:: {_GROUP})?", re.IGNORECASE)
_FAILED = re.compile(r"(?:[^:]{1,30}: ?)?fail(?:ed|ure|s)?(?![\w/])", re.IGNORECASE)
_PIECE = 45
_SPACES = 2
"""How many spaces a piece of a text may end with: it goes on although it is that much shorter."""
_METADATA = {"DCGM Version": "version", "Driver Version Detected": "driver"}


def tables_in(text: str) -> Iterator[tuple[Diagnosis, str]]:
    """Give the tables of an output, each with what it lacks ('' where it is whole)."""
    table: _Table | None = None
    for raw in text.splitlines():
        line = strip_prefix(raw, hosts=True).strip()
        if HEADER.search(line):
            if table is not None:
                yield table.cut()
            table = _Table()
        elif table is None:
            if "|" in line and _is_stray(line):
                table = _Table("rows of a table without its header")
                table.take(line)
        elif _RULE.fullmatch(line):
            yield table.whole()
            table = None
        else:
            table.take(line)
    if table is not None:
        yield table.cut()


def _is_stray(line: str) -> bool:
    """Say whether a line outside of tables is one of a diagnostic's."""
    if SECTION.fullmatch(line):
        return True
    name, cell, _ = _split(line)
    return bool(name and (_STATUS.fullmatch(cell.strip()) or _FAILED.match(cell.strip())))


def _split(line: str) -> tuple[str, str, bool]:
    """Give a row's name, its cell, and whether both its ends are there. Names have no bar in them, texts may."""
    whole = len(line) > 1 and line.startswith("|") and line.endswith("|")
    name, bar, cell = line.removeprefix("|").partition("|")
    if not bar:
        return name.strip(), "", False
    return name.strip(), (cell[:-1] if line.endswith("|") else cell).removeprefix(" "), whole and cell != ""


class _Note(NamedTuple):
    """What stands below a test: of which kind, on which entity (as `_key` gives it, or None), in pieces."""

    kind: str
    about: tuple[str, str] | None
    pieces: list[str]


def _key(group: str, entity: str) -> tuple[str, str]:
    return group.lower(), entity


class _Table:
    """One table as its lines come."""

    def __init__(self, damage: str = "") -> None:
        """Start below the header; `damage` says what is known to be missing."""
        self._diagnosis = Diagnosis(ROOT)
        self._damage = damage
        self._category = ""
        self._test = ""
        self._rows: list[Result] = []
        """The results of the test whose rows are being read: its own, then those of its entities."""
        self._notes: list[_Note] = []
        self._text_goes_on = self._list_goes_on = False
        """Whether the row before may go on in the next one."""

    def take(self, line: str) -> None:
        """Take a line below the header."""
        if section := SECTION.fullmatch(line):
            self._end_test()
            self._category = section[1]
        elif "|" in line and line.strip("| "):
            name, cell, whole = _split(line)
            if not whole or not self._takes(name, cell):
                self._spoil(name, cell, whole=whole)

    def whole(self) -> tuple[Diagnosis, str]:
        """Give what was read of a table that has its last line, and what is wrong with it."""
        self._end_test()
        return self._diagnosis, self._damage

    def cut(self) -> tuple[Diagnosis, str]:
        """Give what was read of a table that stops too early: the last texts may lack their ends."""
        self._notes, self._text_goes_on = [], False
        self._end_test()
        return self._diagnosis, "the table stops before its last line"

    def _takes(self, name: str, cell: str) -> bool:
        """Take a row, or say that it is none that the tool prints."""
        text = cell.strip()
        if name and (note := _NOTE.fullmatch(name)):
            return self._takes_note(note, cell)
        if name and (status := _STATUS.fullmatch(text)):
            self._begin(name)
            self._add(status)
            return True
        if name or self._category == "Metadata":
            return self._takes_metadata(name, text)
        return bool(self._test) and self._takes_below(cell, text)

    def _takes_note(self, note: re.Match[str], cell: str) -> bool:
        self._close_list()
        if not self._test:
            return False
        about = _key(note[2], note[3]) if note[2] else None
        self._notes.append(_Note(note[1].capitalize(), about, []))
        self._add_piece(cell)
        return True

    def _takes_metadata(self, name: str, text: str) -> bool:
        if self._category not in ("", "Metadata") or self._test or _FAILED.match(text):
            return False
        if name in _METADATA:
            setattr(self._diagnosis, _METADATA[name], text)
        return name in _METADATA or self._category == "Metadata"

    def _takes_below(self, cell: str, text: str) -> bool:
        """Take a row without a name: more GPUs of the row above, an entity's, another status, more of a text."""
        if self._list_goes_on and _LIST.fullmatch(text):
            row = self._rows[-1]
            self._rows[-1] = row._replace(entities=(*row.entities, *re.findall(r"\d+", text)))
            self._list_goes_on = text.endswith(",")
        elif entity := _ENTITY.fullmatch(text):
            self._close_list()
            self._text_goes_on = False
            word = _WORDS[entity[3].lower()]
            self._rows.append(Result(self._test, self._category, entity[1], (entity[2],), word))
        elif status := _STATUS.fullmatch(text):
            self._add(status)
        elif self._text_goes_on and not _OTHER_ENTITY.fullmatch(text):
            self._add_piece(cell)
        else:
            return False
        return True

    def _begin(self, test: str) -> None:
        self._end_test()
        self._test = test

    def _add(self, status: re.Match[str]) -> None:
        self._close_list()
        self._text_goes_on = False
        gpus = tuple(re.findall(r"\d+", status[2] or ""))
        word = _WORDS[status[1].lower()]
        self._rows.append(Result(self._test, self._category, "GPU" if gpus else None, gpus, word))
        self._list_goes_on = (status[2] or "").endswith(",")

    def _add_piece(self, cell: str) -> None:
        self._notes[-1].pieces.append(cell[:_PIECE])
        self._text_goes_on = len(cell[:_PIECE].rstrip()) >= _PIECE - _SPACES

    def _close_list(self) -> None:
        """End a list of GPUs: one that ends with a comma lacks some."""
        if self._list_goes_on:
            self._damage = self._damage or f"the list of GPUs of test {self._test} stops before its end"
        self._list_goes_on = False

    def _spoil(self, name: str, cell: str, *, whole: bool) -> None:
        """Take a row that is none of those that the tool prints: what it says of a failure, not its numbers."""
        failed = _FAILED.match(cell.strip())
        row = f"{name} {cell.strip()}".strip()[:80]
        self._damage = self._damage or f"a row of the table is {'not known' if whole else 'torn'}: {row}"
        self._list_goes_on = False
        if self._text_goes_on and self._notes[-1].kind == "Info":
            self._notes.pop()  # its last number may have stood in this row
        self._text_goes_on = False
        if name and not _NOTE.fullmatch(name) and (failed or whole):
            self._begin(name)
        if failed:
            self._test = self._test or "unnamed"
            self._rows.append(Result(self._test, self._category, None, (), "Fail"))
        elif self._test and not self._rows:
            self._rows.append(Result(self._test, self._category, None, (), "Not Run"))

    def _end_test(self) -> None:
        """Put the test's rows where they belong: of DCGM 4, the first sums up those of the entities."""
        self._close_list()
        self._text_goes_on = False
        if not self._test:
            return
        rows, book = self._noted(), self._diagnosis
        if len(rows) > 1 and rows[0].group is None:
            book.summaries[self._test] = rows.pop(0)
        book.results += rows
        book.tests.setdefault(self._test, []).extend(rows)
        self._test, self._rows, self._notes = "", [], []

    def _noted(self) -> list[Result]:
        """Give the rows with their texts, each with those of its entities.

        A text that names no entity belongs to the worst row, one on an entity that has no row to the test's own.
        """
        rows = self._rows
        if not self._notes:
            return rows
        ranks = [_ORDER.index(row.status) for row in rows]
        owners: dict[tuple[str, str], int] = {}
        for at, row in enumerate(rows):
            for entity in row.entities:
                owner = owners.setdefault(_key(row.group or "", entity), at)
                if ranks[at] > ranks[owner]:
                    owners[_key(row.group or "", entity)] = at
        worst = max(range(len(rows)), key=ranks.__getitem__)
        warnings: dict[int, list[str]] = {}
        info: dict[int, list[str]] = {}
        for note in self._notes:
            at = worst if note.about is None else owners.get(note.about, 0)
            (info if note.kind == "Info" else warnings).setdefault(at, []).append("".join(note.pieces).strip())
        return [
            row._replace(warnings=tuple(warnings.get(at, ())), info=tuple(info.get(at, ())))
            for at, row in enumerate(rows)
        ]
