"""JSON objects inside other text: tools print banners before them, collectors wrap them, captures cut them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from plumbline.readers.framing import strip_document

_WORK = 16
"""How many times the text's length may be scanned in vain before the search is given up."""
_DECODER = json.JSONDecoder(parse_constant=lambda _name: None)


class Documents:
    """The outermost JSON objects of a text that have `key` in theirs, in order, each read when it is asked for.

    Where there is none, line prefixes of collectors are taken off and the search is repeated. `cut` says, once all
    were given, whether one that never closes was met.
    """

    def __init__(self, text: str, key: str) -> None:
        """Look at nothing yet."""
        self.cut = False
        self._text, self._key = text, key

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the objects."""
        there = False
        for document in self._scan(self._text):
            there = True
            yield document
        if not there and self._key in self._text and "\n" in self._text:
            cut, self.cut = self.cut, False
            for document in self._scan(strip_document(self._text)):
                there = True
                yield document
            self.cut = self.cut if there else cut

    def _scan(self, text: str) -> Iterator[dict[str, Any]]:
        budget = _WORK * len(text) + 4096
        last = text.rfind(self._key)
        position = text.find("{")
        while 0 <= position <= last and budget > 0:
            try:
                value, end = _DECODER.raw_decode(text, position)
            except json.JSONDecodeError as error:
                budget -= error.pos - position + 16
                if error.pos >= len(text.rstrip()) - 1 and text.find(self._key, position) >= 0:
                    self.cut = True
                end = position + 1
            except (ValueError, RecursionError):
                budget -= 4096
                end = position + 1
            else:
                if isinstance(value, dict) and text.find(self._key, position, end) >= 0:
                    yield value
            position = text.find("{", end)
        self.cut = self.cut or budget <= 0
