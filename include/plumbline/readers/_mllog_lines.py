r"""MLLOG records out of raw log lines: `:::MLLOG {json}` anywhere in a line, and what is done to such lines on the way.

Records stand behind other text or another rank's half line, several in one line, escaped inside a collector's JSON
(`{\"namespace\": …`), or cut in pieces by a terminal's width. A record is taken only when its JSON object is whole
and names each key once; text behind the object doesn't harm it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from plumbline.readers.framing import peel
from plumbline.readers.source import Source, strip_ansi

TOKEN = b":::MLLOG"
_MARK = ":::MLLOG"
_HEAD_BYTES = 64 << 10
"""How much of the text before the first record is kept, to tell a launch that failed from another format."""
_MOST_PIECES = 24
_MOST_PIECE_BYTES = 64 << 10
_KEY = re.compile(r'\\?"key\\?":\s*\\?"([A-Za-z0-9_.+-]{1,80})\\?"')
_DIGITS = re.compile(r"\d+")
_LONGEST_PREFIX = 40
_MOST_PREFIXES = 200


class _RepeatedKeyError(ValueError):
    """A JSON object names one key twice: nobody can say which value is meant."""


class Record(NamedTuple):
    """One MLLOG record. `origin` is the rank as the line's prefix tells it, '' where it tells none."""

    key: str
    value: Any
    time_ms: float
    metadata: Mapping[str, Any]
    namespace: str
    origin: str


class Damaged(NamedTuple):
    """A record that can't be read. `key` is what it seems to be about, None when even that is lost."""

    key: str | None
    text: str


class Lines:
    """The records of a source, and counts over its lines that hold once they have been read to the end."""

    def __init__(self, source: Source) -> None:
        """Take over reading of `source`."""
        self._source = source
        self.lines = 0
        self.mllog_lines = 0
        self.bad = 0
        self.prefixes: dict[str, int] = {}
        self.head = bytearray()
        self._cut: list[bytes] = []
        self._cut_bytes = 0

    def __iter__(self) -> Iterator[Record | Damaged]:
        """Give records in order of the file."""
        for line in self._source.byte_lines():
            self.lines += 1
            if TOKEN not in line:
                if self._cut:
                    yield from self._continue(line)
                elif not self.mllog_lines and len(self.head) < _HEAD_BYTES:
                    self.head += line[:_HEAD_BYTES] + b"\n"
                continue
            if self._cut:
                yield self._give_up()
            self.mllog_lines += 1
            yield from self._records(line)
        if self._cut:
            yield self._give_up()

    def _records(self, line: bytes) -> Iterator[Record | Damaged]:
        text = line.decode("utf-8", "replace")
        position = text.find(_MARK)
        self._count_prefix(text[:position])
        if "\x1b" in text:
            text = strip_ansi(text)
            position = text.find(_MARK)
        origin = _origin(text[:position]) if position > 0 else ""
        whole_line_tried = False
        while position >= 0:
            position += len(_MARK)
            following = text.find(_MARK, position)
            record, end = _read(text[position:following] if following >= 0 else text[position:], origin)
            if record is None and following >= 0 and not whole_line_tried:
                whole_line_tried = True  # the record may quote the token; one try a line keeps the work linear
                record, end = _read(text[position:], origin)
                if record is not None:
                    following = text.find(_MARK, position + end)
            if record is not None:
                yield record
            elif following < 0 and _looks_cut(text[position:]):
                self._cut, self._cut_bytes = [line], len(line)
            else:
                self.bad += 1
                part = text[position : following if following >= 0 else None]
                yield Damaged(_seeming_key(part), part[:160])
            position = following

    def _count_prefix(self, before: str) -> None:
        shape = _DIGITS.sub("N", before[:400].strip())[:_LONGEST_PREFIX] if before else ""
        if shape in self.prefixes or len(self.prefixes) < _MOST_PREFIXES:
            self.prefixes[shape] = self.prefixes.get(shape, 0) + 1

    def _continue(self, line: bytes) -> Iterator[Record | Damaged]:
        """Try a line as the continuation of a record that a terminal's width has cut."""
        self._cut.append(line)
        self._cut_bytes += len(line)
        if b"}" in line:
            record = _joined(self._cut)
            if record is not None:
                self._cut = []
                yield record
                return
        if len(self._cut) > _MOST_PIECES or self._cut_bytes > _MOST_PIECE_BYTES:
            yield self._give_up()

    def _give_up(self) -> Damaged:
        first = self._cut[0].decode("utf-8", "replace")
        self._cut = []
        self.bad += 1
        part = first[first.rfind(_MARK) + len(_MARK) :]
        return Damaged(_seeming_key(part), part[:160])


def _origin(before: str) -> str:
    """Give the rank that a prefix names; '' where there is none, or other text as well."""
    if not before or before.isspace():
        return ""
    origin, rest = peel(before[:400])
    return "" if rest.strip() else origin


def _joined(pieces: list[bytes]) -> Record | None:
    """Read a record from its pieces: all as wide as the first but the last, and all with its prefix if it has one.

    Anything less strict would take another rank's line into the middle of a text or a number.
    """
    texts = [strip_ansi(piece.decode("utf-8", "replace")) for piece in pieces]
    width = len(texts[0])
    if any(len(text) != width for text in texts[1:-1]) or len(texts[-1]) > width:
        return None
    start = texts[0].rfind(_MARK)
    before = texts[0][:start]
    origin, rest = peel(before[:400])
    continuation = texts[1:]
    if before and not rest.strip():
        peeled = [peel(text) for text in continuation]
        if any(of != origin or text == raw for (of, text), raw in zip(peeled, continuation, strict=True)):
            return None
        continuation = [text for _, text in peeled]
    return _read(texts[0][start + len(_MARK) :] + "".join(continuation), _origin(before))[0]


def _read(text: str, origin: str) -> tuple[Record | None, int]:
    """Read the record that `text` starts with: (record or None, where its JSON ends)."""
    try:
        data, end = _decode(text)
        return _record(data, origin), end
    except (ValueError, RecursionError):
        return None, 0


def _decode(text: str) -> tuple[Any, int]:
    """Read the JSON object that the text starts with, blanks and one level of escaping aside. Raises ValueError."""
    position = len(text) - len(text.lstrip(" \t"))
    if text.startswith('{\\"', position):
        inner, end = _STRING_DECODER.raw_decode('"' + text[position:])
        data, _ = _DECODER.raw_decode(inner)
        return data, position + end - 1
    if not text.startswith("{", position):
        raise ValueError("no JSON object")
    data, end = _FAST_DECODER.raw_decode(text, position)
    # Each key takes a colon: where there are no more colons than keys, none was named twice.
    return (data, end) if _keys(data) == text.count(":", position, end) else _DECODER.raw_decode(text, position)


def _keys(data: Any) -> int:
    """Count the keys of an object and of those right inside it."""
    return len(data) + sum(len(value) for value in data.values() if isinstance(value, dict))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise _RepeatedKeyError("a key is named twice")
    return data


_DECODER, _FAST_DECODER = json.JSONDecoder(object_pairs_hook=_unique), json.JSONDecoder()
_STRING_DECODER = json.JSONDecoder(strict=False)


def _record(data: Any, origin: str) -> Record | None:
    if not isinstance(data, dict):
        return None
    key, time_ms, metadata = data.get("key"), number(data.get("time_ms")), data.get("metadata")
    if not isinstance(key, str) or not key or time_ms is None or time_ms < 0:
        return None
    if not isinstance(metadata, dict):
        metadata = {}
    namespace = data.get("namespace")
    rank = metadata.get("rank", metadata.get("global_rank"))
    if isinstance(rank, int) and not origin:
        origin = f"rank {rank}"
    return Record(key, data.get("value"), time_ms, metadata, namespace if isinstance(namespace, str) else "", origin)


_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,4})?")


def number(value: Any) -> float | None:
    """Give a finite number that was written as a number, or as a string holding nothing else; None otherwise."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value.strip()):
            return None
        value = value.strip()
    elif not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except (OverflowError, ValueError):
        return None
    return result if result - result == 0 else None


def _looks_cut(text: str) -> bool:
    """Say whether more of this record may follow on the next line: it opens more braces than it closes."""
    return "{" in text and text.count("{") > text.count("}")


def _seeming_key(text: str) -> str | None:
    match = _KEY.search(text[:4096])
    return match[1] if match else None
