"""JSON objects inside other text: tools print banners before them, collectors wrap them, captures cut them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from plumbline.readers.framing import join_parts, strip_prefix

_WORK = 16
"""How many times the text's length may be scanned in vain before the search is given up."""
_DECODER = json.JSONDecoder(parse_constant=lambda _name: None)
_LONGEST_BEGIN = 256
_OBJECT = re.compile(r'\{\s*"')
_GLANCE = 4096
_TOKEN = 16
"""How many characters before the end of a part the decoder may complain of a word, number or escape cut by it."""
_OPEN_STRING = "Unterminated string"
"""What the decoder says of a string that runs to the text's end; it gives the place where the string begins."""


class Documents:
    """The outermost JSON objects of a text that have one of `keys` in theirs, in order, each read when it is asked for.

    Whatever stands between them and has a key's name in it is searched once more without the line prefixes of
    collectors. `cut` says, once all were given, whether something is there that is such an object's and can't be read:
    one that breaks off though a key, or one of the `marks` that only such objects have, stands in what could be read of
    it; a key or mark with its colon outside of all that have a key; or one that only began where the text ends.
    """

    def __init__(self, text: str, *keys: str, marks: tuple[str, ...] = ()) -> None:
        """Look at nothing yet. Keys are as they stand in the text, with their quotes."""
        self.cut = False
        self._text, self._keys, self._marks = text, keys, (*keys, *marks)
        self._bare_keys = tuple(key.strip('"') for key in keys)
        quoted = "|".join(re.escape(mark) for mark in self._marks if mark.startswith('"'))
        self._member = re.compile(rf"(?:{quoted})\s*:") if quoted else None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the objects."""
        begin, broken = 0, False
        for found in self._scan(self._text):
            if found is None:
                broken = True
                continue
            value, start, end = found
            yield from self._between(begin, start, broken=broken)
            yield value
            begin, broken = end, False
        yield from self._between(begin, len(self._text), broken=broken or self._only_began())

    def _only_began(self) -> bool:
        """Say whether the text ends before the first key of an object was written out."""
        _, brace, begun = self._text[-_LONGEST_BEGIN:].rpartition("{")
        return bool(brace) and any(mark.startswith(begun.strip()) for mark in self._marks)

    def _between(self, start: int, end: int, *, broken: bool) -> Iterator[dict[str, Any]]:
        """Give the objects of a part without an object, whose lines may have prefixes; `broken`: one could not be read.

        Where taking them off shows an object, only what is broken then is.
        """
        if _first(self._text, self._bare_keys, start, end) is not None:
            part = self._text[start:end]
            bare = "\n".join(strip_prefix(line, hosts=True) for line in join_parts(part.splitlines()))
            there = broken_there = False
            for found in self._scan(bare) if bare != part else ():
                if found is None:
                    broken_there = True
                else:
                    there = True
                    yield found[0]
            broken = broken_there if there else broken or broken_there
        self.cut = self.cut or broken

    def _scan(self, text: str) -> Iterator[tuple[dict[str, Any], int, int] | None]:
        """Give the objects with their places, None where one can't be read."""
        budget = _WORK * len(text) + 4096
        last = max((text.rfind(mark) for mark in self._marks), default=-1)
        after = 0
        begun = _OBJECT.search(text)
        while begun is not None and (position := begun.start()) <= last and budget > 0:
            end = position + 1
            try:
                value, end = _decode(text, position)
            except _UnreadableError as error:
                budget -= error.reach - position + _TOKEN
                if error.runs_out or _first(text, self._marks, position, error.reach) is not None:
                    yield None
            except (ValueError, RecursionError):
                budget -= 4096
                yield None
            else:
                if _first(text, self._keys, position, end) is not None:
                    if self._has_member(text, after, position):
                        yield None
                    yield value, position, end
                    after = end
            begun = _OBJECT.search(text, end)
        if budget <= 0 or self._has_member(text, after, len(text)):
            yield None

    def _has_member(self, text: str, start: int, end: int) -> bool:
        """Say whether a key or mark stands as one in a part without an object that has a key: its head was lost."""
        return self._member is not None and self._member.search(text, start, end) is not None


class _UnreadableError(Exception):
    """No object can be read: up to `reach` it is one. Where it `runs_out` in a string, that is where this begins."""

    def __init__(self, reach: int, *, runs_out: bool) -> None:
        """Keep both."""
        super().__init__(reach)
        self.reach, self.runs_out = reach, runs_out


def _decode(text: str, position: int) -> tuple[dict[str, Any], int]:
    """Read the object at a place, and give where it ends.

    A short part is tried first: the decoder's complaint counts the lines from the beginning of what it was given.
    """
    part = text[position : position + _GLANCE]
    for given, at in ((part, 0), (text, position)):
        try:
            value, end = _DECODER.raw_decode(given, at)
        except json.JSONDecodeError as error:
            runs_out = error.msg.startswith(_OPEN_STRING)
            is_part = given is part and position + _GLANCE < len(text)
            if not is_part or not (runs_out or error.pos >= len(part) - _TOKEN):
                raise _UnreadableError(error.pos + position - at, runs_out=runs_out) from None
        else:
            return value, end + position - at
    raise AssertionError("the whole text is no part")


def _first(text: str, words: tuple[str, ...], start: int, end: int) -> int | None:
    """Give where the first of the words that stands in a part of a text stands there."""
    return next((at for word in words if (at := text.find(word, start, end)) >= 0), None)
