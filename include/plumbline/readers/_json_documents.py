"""JSON objects inside other text: tools print banners before them, collectors wrap them, captures cut them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from plumbline.readers.framing import strip_document

T = TypeVar("T")
_WORK = 16
"""How many times the text's length may be scanned in vain before the search is given up."""
_DECODER = json.JSONDecoder(parse_constant=lambda _name: None)


@dataclass(slots=True)
class Documents(Generic[T]):
    """The JSON objects of a text, in order; `cut` when one that never closes was met."""

    objects: list[T]
    cut: bool


def find_documents(text: str, key: str) -> Documents[dict[str, Any]]:
    """Find the outermost JSON objects in `text` whose text has `key` in it.

    Where there is none, line prefixes of collectors are taken off and the search is repeated.
    """
    return read_documents(text, key, lambda document: document)


def read_documents(text: str, key: str, read: Callable[[dict[str, Any]], T]) -> Documents[T]:
    """Find what `find_documents` finds, and keep of each object only what `read` gives of it."""
    found = _scan(text, key, read)
    if not found.objects and key in text and "\n" in text:
        again = _scan(strip_document(text), key, read)
        return again if again.objects else found
    return found


def _scan(text: str, key: str, read: Callable[[dict[str, Any]], T]) -> Documents[T]:
    objects: list[T] = []
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
                objects.append(read(value))
        position = text.find("{", end)
    return Documents(objects, cut or budget <= 0)


def inner_objects(value: Any, depth: int = 6) -> list[dict[str, Any]]:
    """Give an object and those inside it, outermost first."""
    found: list[dict[str, Any]] = []
    _walk(value, depth, found)
    return found


def _walk(value: Any, depth: int, found: list[dict[str, Any]]) -> None:
    if isinstance(value, dict):
        found.append(value)
        value = value.values()
    if depth > 0:
        for item in value:
            if isinstance(item, (dict, list)):
                _walk(item, depth - 1, found)
