"""JSON objects inside other text: tools print banners before them, collectors wrap them, captures cut them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plumbline.readers.framing import strip_document

_WORK = 16
"""How many times the text's length may be scanned in vain before the search is given up."""
_DECODER = json.JSONDecoder(parse_constant=lambda _name: None)


@dataclass(slots=True)
class Documents:
    """The JSON objects of a text, in order; `cut` when one that never closes was met."""

    objects: list[dict[str, Any]]
    cut: bool


def find_documents(text: str, key: str) -> Documents:
    """Find the outermost JSON objects in `text` whose text has `key` in it.

    Where there is none, line prefixes of collectors are taken off and the search is repeated.
    """
    found = _scan(text, key)
    if not found.objects and key in text and "\n" in text:
        again = _scan(strip_document(text), key)
        return again if again.objects else found
    return found


def _scan(text: str, key: str) -> Documents:
    objects: list[dict[str, Any]] = []
    cut = False
    budget = _WORK * len(text) + 4096
    last = text.rfind(key)
    position = text.find("{")
    while 0 <= position <= last and budget > 0:
        try:
            value, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            budget -= error.pos - position + 16
            cut = cut or (error.pos >= len(text.rstrip()) - 1 and text.find(key, position) >= 0)
            end = position + 1
        except (ValueError, RecursionError):
            budget -= 4096
            end = position + 1
        else:
            if isinstance(value, dict) and text.find(key, position, end) >= 0:
                objects.append(value)
        position = text.find("{", end)
    return Documents(objects, cut or budget <= 0)


def walk(value: Any, depth: int = 6) -> Iterator[dict[str, Any]]:
    """Give an object and those inside it, outermost first."""
    if depth < 0:
        return
    if isinstance(value, dict):
        yield value
        for item in value.values():
            if isinstance(item, (dict, list)):
                yield from walk(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item, depth - 1)
