"""Finds fio's JSON documents among other text, line by line."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.readers._fio_model import DIRECTIONS
from plumbline.readers.framing import peel
from plumbline.readers.source import Source, strip_ansi

DOCUMENT_BYTES = 256 << 20
"""Longer documents are given up: the largest known (thousands of jobs, json+) are some MiB."""
_UNKNOWN_BYTES = 1 << 20
"""Text in braces that names none of fio's keys for this long is something else."""
_KEYS = (b'"fio version"', b'"jobs"', b'"client_stats"')
_NEAR_LINES = 10_000
"""A report's lines stand this close together: beyond, only a line that can begin one is looked for."""
_TEXT_KEYS = tuple(key.decode() for key in _KEYS)
_BRACE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}]')
_NOT_A_NUMBER = re.compile(r"(?<=[:,\[])\s*-?(?:nan|inf)(?:\(\w*\))?(?=\s*[,}\]])", re.IGNORECASE)
_STRAY = re.compile(r"^fio: .*$", re.MULTILINE)
_DECODER = json.JSONDecoder(strict=False)
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Broken:
    """A fio document that stops before its end, or is damaged: its text, and where it begins (from 1)."""

    text: str
    line: int


class _Gatherer:
    """Collects the lines of one document until its braces balance."""

    def __init__(self, line: int, *, framed: bool) -> None:
        self.line = line
        self.framed = framed
        self.depth = 0
        self.size = 0
        self.is_fio = False
        self.indented = False
        self.lines: list[bytes] = []

    def add(self, raw: bytes) -> None:
        """Take a line in which the document doesn't end."""
        if len(self.lines) == 1:
            self.indented = raw[:1].isspace()
        self.lines.append(raw)
        self.size += len(raw) + 1
        if not self.is_fio:
            self.is_fio = any(key in raw for key in _KEYS)

    def skips(self, raw: bytes, text: str) -> bool:
        """Take a line that needs no close look, in a document that is surely fio's: it can't end in it.

        `text` is the line as Latin-1. A brace alone at a line's end is none in a string when the line's quotes are
        paired, for strings don't span lines.
        """
        if not self.is_fio or not self.indented or self.size > DOCUMENT_BYTES:
            return False
        if "{" in text or "}" in text:
            bare = text.strip()
            if bare in ("}", "},") and self.depth > 1:
                self.depth -= 1
            elif (
                bare[-1] == "{" and text[0].isspace() and text.count("{") == 1 and "}" not in text
                and "\\" not in text and "\x1b" not in text and text.count('"') % 2 == 0
            ):  # fmt: skip
                self.depth += 1
            else:
                return False
        self.lines.append(raw)
        self.size += len(raw) + 1
        return True

    def feed(self, text: str) -> int | None:
        """Take a line; give the offset behind the closing brace when the document ends in it."""
        end = None
        if "{" in text or "}" in text:
            for token in _BRACE.finditer(text):
                if (brace := token[0]) == "{":
                    self.depth += 1
                elif brace == "}":
                    self.depth -= 1
                    if self.depth <= 0:
                        end = token.end()
                        break
        self.add((text if end is None else text[:end]).encode("utf-8", "surrogatepass"))
        return end

    def full(self) -> bool:
        """Say whether this is longer than any document of fio."""
        return self.size > (DOCUMENT_BYTES if self.is_fio else _UNKNOWN_BYTES)

    def texts(self) -> list[str]:
        return [_decode(raw) for raw in self.lines]

    def text(self) -> str:
        return _decode(b"\n".join(self.lines))


Found = list[str] | Mapping[str, Any] | Broken
"""Lines that may be fio's text (as printed), a fio document, or a broken one."""


def sift(source: Source) -> Iterator[Found]:
    """Give what may be fio's, in order. A last line without its end is given in any case, unless a document has it.

    Memory is bounded by the largest document.
    """
    sieve = _Sieve()
    for block in source.blocks():
        yield from sieve.sift(block, ended=source.ends_whole)
    yield from sieve.left()


class _Sieve:
    """What is known between one block of lines and the next."""

    def __init__(self) -> None:
        self._gatherers: dict[str, _Gatherer] = {}
        self._only: _Gatherer | None = None
        self._near = self._number = 0

    def sift(self, block: bytes, *, ended: bool) -> Iterator[Found]:
        """Go through lines; `ended` says that they have their ends."""
        if ended and not self._gatherers and b"{" not in block and block.isascii() and b"\x1b" not in block:
            if lines := self._of_text(block.decode("ascii").split("\n")):
                yield lines
            return
        lines = []
        near, first = self._near, self._number + 1
        # Text is searched several times faster than bytes.
        for number, (raw, text) in enumerate(
            zip(block.split(b"\n"), block.decode("latin-1").split("\n"), strict=True), first
        ):
            if self._only is not None:
                if self._only.skips(raw, text):
                    continue
            elif not self._gatherers and "{" not in text:
                near -= 1
                if _may_be_text(text) if near > 0 else _may_begin_text(text):
                    near = _NEAR_LINES
                    lines.append(text if text.isascii() and "\x1b" not in text else _decode(raw))
                elif not ended:
                    lines.append(_decode(raw))
                continue
            lines = yield from self._look(_decode(raw), number, lines)
        self._near, self._number = near, first + block.count(b"\n")
        if lines:
            yield lines

    def _of_text(self, lines: Sequence[str]) -> list[str]:
        """Give those that may be fio's of lines that hold no document."""
        near, found = self._near, []
        for text in lines:
            near -= 1
            if _may_be_text(text) if near > 0 else _may_begin_text(text):
                near = _NEAR_LINES
                found.append(text)
        self._near, self._number = near, self._number + len(lines)
        return found

    def _look(self, line: str, number: int, lines: list[str]) -> Generator[Found, None, list[str]]:
        """Look at a line that may be part of a document. Give the lines that are still to be given."""
        for item in _sift_line(line.removeprefix("\ufeff") if number == 1 else line, number, self._gatherers):
            if isinstance(item, str):
                lines.append(item)
                continue
            if lines:
                yield lines
            lines = []
            yield item
        self._only = _sole(self._gatherers)
        return lines

    def left(self) -> Iterator[Found]:
        """Give what was gathered of documents that never ended."""
        for gatherer in self._gatherers.values():
            for item in _given_up(gatherer):
                yield [item] if isinstance(item, str) else item


def _may_begin_text(text: str) -> bool:
    """Say whether a line far from others of fio may be the first of a report."""
    return "fio" in text or "(g" in text or "Starting " in text or text.startswith("2;")


def _sole(gatherers: Mapping[str, _Gatherer]) -> _Gatherer | None:
    """Give the one open document when nothing stands before its lines, so that they need no look each."""
    gatherer = gatherers.get("") if len(gatherers) == 1 else None
    return None if gatherer is None or gatherer.framed else gatherer


def _may_be_text(text: str) -> bool:
    """Say whether a line near others of fio may be one: the rest of a report stands close to its first line."""
    if "=" in text:
        return (
            "th=[" in text or ("min=" in text and "lat (" in text) or "IOPS=" in text or "bw=" in text or "(g" in text
            or "err" in text or "maxt=" in text or "hostname=" in text or "%=" in text or "fio" in text
            or "verify" in text
        )  # fmt: skip
    return (
        "percentiles (" in text or "Run status group" in text or "fio" in text or "Starting " in text
        or "verify" in text or text.endswith("...") or ("<" in text and text.rstrip().endswith(">"))
    )  # fmt: skip


def _decode(raw: bytes) -> str:
    return strip_ansi(raw.decode("utf-8", "replace"))


def _sift_line(line: str, number: int, gatherers: dict[str, _Gatherer]) -> Iterator[str | Mapping[str, Any] | Broken]:
    gatherer = gatherers.get("")
    if gatherer is not None and not gatherer.framed and len(gatherers) == 1:
        origin, text = "", line
    else:
        origin, text = peel(line)
        gatherer = gatherers.get(origin)
    if gatherer is not None and (gatherer.indented or not gatherer.is_fio) and text.rstrip() == "{":
        del gatherers[origin]  # no such line stands inside an indented document: the last one was cut
        yield from _given_up(gatherer)
        gatherer = None
    rest = text
    while rest:
        if gatherer is None:
            start = _start(rest)
            if start is None:
                yield line if rest == text else rest
                return
            if rest[:start].strip():
                yield rest[:start]
            gatherer = gatherers[origin] = _Gatherer(number, framed=text != line)
            rest = rest[start:]
        end = gatherer.feed(rest)
        if end is None:
            if gatherer.full():
                del gatherers[origin]
                yield from _given_up(gatherer)
            return
        del gatherers[origin]
        yield from _finished(gatherer)
        rest, gatherer = rest[end:], None


def _start(text: str) -> int | None:
    """Give where a JSON object begins in a line of text, or None."""
    first = text.find("{")
    if first < 0:
        return None
    if any(key in text for key in _TEXT_KEYS):
        return first
    if not text[:first].strip(" \t[,"):
        is_other = len(text) > first + 3 and text.count("{") == text.count("}")  # a whole object, and not fio's
        return None if is_other else first
    bare = text.rstrip()
    return len(bare) - 1 if bare.endswith("{") else None


def _finished(gatherer: _Gatherer) -> Iterator[str | Mapping[str, Any] | Broken]:
    if not gatherer.is_fio:
        if gatherer.text().strip(" {}\n\t") == "":
            yield {}
        else:
            yield from gatherer.texts()
        return
    text = gatherer.text()
    document = _parse(text)
    if document is None:
        yield Broken(text, gatherer.line)
    else:
        yield from _fio_documents(document, 0)


def _given_up(gatherer: _Gatherer) -> Iterator[str | Broken]:
    if gatherer.is_fio:
        yield Broken(gatherer.text(), gatherer.line)
    else:
        yield from gatherer.texts()


def _parse(text: str) -> Any:
    """Decode a document; bare nan and inf become null, lines of fio's own messages between are left out."""
    with contextlib.suppress(ValueError, RecursionError):
        return _DECODER.decode(text)
    with contextlib.suppress(ValueError, RecursionError):
        return _DECODER.decode(_NOT_A_NUMBER.sub(" null", _STRAY.sub("", text)))
    return None


def _fio_documents(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Give the fio documents in a decoded value: it itself, or those that somebody wrapped in it."""
    if isinstance(value, dict):
        if "fio version" in value or any(_is_entries(value.get(key)) for key in ("jobs", "client_stats")):
            yield value
        elif depth < _DEEPEST:
            for item in value.values():
                yield from _fio_documents(item, depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for item in value:
            yield from _fio_documents(item, depth + 1)


def _is_entries(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(entry, dict) and any(isinstance(entry.get(way), dict) for way in DIRECTIONS) for entry in value
    )
