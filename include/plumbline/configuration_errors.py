"""What people are told of a document that breaks its model: key, what is wanted, what is there, the nearest choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from plumbline.errors import near_match

LONGEST_VALUE = 80

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "date": "a date such as 2026-11-30",
    "model": "a mapping of keys",
    "dict": "a mapping of keys",
    "mapping": "a mapping of keys",
    "tuple": "a list",
    "list": "a list",
}
"""The first word of pydantic's error types (int_parsing, model_type, …) → what was wanted."""
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "too_short": ("min_length", "a list of at least {}"),
    "too_long": ("max_length", "a list of at most {}"),
    "string_too_short": ("min_length", "text of at least {} characters"),
}
"""Error type → the bound's name in its context, and what was wanted."""
_FORMS = {
    "^/": "an absolute path",
    "^hugepages-": "a name that begins with hugepages-",
    "^[^/]+/[^/]+$": "benchmark/indicator",
    "^[a-z0-9][a-z0-9-]{0,62}$": "a name of a-z, 0-9 and -",
    "^[a-z0-9][a-z0-9_-]{0,62}$": "a name of a-z, 0-9, _ and -",
    "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$": "a Kubernetes name of a-z, 0-9, . and -",
    r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$": "a Kubernetes quantity such as 500m, 4 or 64Gi",
}
"""Patterns of the models in words; one that is not here is shown as it is."""

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")

Loc = tuple[Any, ...]


def explain(
    model: type[BaseModel], data: Mapping[Any, Any], error: PydanticError, lines: Mapping[Loc, int] | None = None
) -> str:
    """Give every violation in one line, in the order of the document's keys, those of one key as one.

    `lines` says where in its file each key stands, counted from 1; see `lines_of`.
    """
    problems: dict[Loc, list[Any]] = {}
    for item in error.errors():
        problems.setdefault(_place(item, data), []).append(item)
    told = [
        _of_one_key(model, place, items) + _at(place, lines or {})
        for place, items in problems.items()
        if not any(len(other) > len(place) and other[: len(place)] == place for other in problems)
    ]
    return "; ".join(told)


def lines_of(text: str) -> dict[Loc, int]:
    """Give the line of every key and list element of a YAML text, counted from 1.

    Nothing of what is not YAML, or contains itself.
    """
    try:
        return dict(_lines_below(yaml.compose(text, Loader=yaml.CSafeLoader), ()))
    except (yaml.YAMLError, RecursionError):
        return {}


def _lines_below(node: yaml.Node | None, place: Loc) -> Iterator[tuple[Loc, int]]:
    if isinstance(node, yaml.MappingNode):
        parts = [(key.value, key, value) for key, value in node.value]
    else:
        parts = [(i, item, item) for i, item in enumerate(node.value)] if isinstance(node, yaml.SequenceNode) else []
    for part, shown, inner in parts:
        yield (*place, part), shown.start_mark.line + 1
        yield from _lines_below(inner, (*place, part))


def _at(place: Loc, lines: Mapping[Loc, int]) -> str:
    """Say the line of a key, or of what lacks it."""
    line = lines.get(place) or lines.get(place[:-1])
    return f" (line {line})" if line else ""


def _place(item: Any, data: Any) -> Loc:
    """Give the keys and positions that lead to what is wrong, without pydantic's names for members of a union."""
    place: list[Any] = []
    for part in item["loc"]:
        listed = isinstance(data, Sequence) and not isinstance(data, str) and isinstance(part, int)
        if (isinstance(data, Mapping) and part in data) or (listed and part < len(data)):
            data = data[part]
            place.append(part)
    return (*place, item["loc"][-1]) if item["type"] == "missing" else tuple(place)


def _of_one_key(model: type[BaseModel], place: Loc, items: Sequence[Any]) -> str:
    kind, key = items[0]["type"], name_of(place)
    if kind == "extra_forbidden":
        return f"unknown key {key!r}{near_match(str(place[-1]), _fields_below(model, place[:-1]))}"
    if kind == "missing":
        return f"key {key!r} is missing"
    told = str(items[0]["ctx"]["error"]) if kind == "value_error" else _what_is_wrong(items)
    return f"{key}: {told}" if key else told


def _what_is_wrong(items: Sequence[Any]) -> str:
    """Say what a value must be, what it is, and which word it may have been meant for."""
    value = items[0]["input"]
    choices = [choice for item in items for choice in _choices(item)]
    wanted = list(dict.fromkeys(filter(None, _wanted(items))))
    if choices and not wanted:
        return f"no such value {_shown(value)}{near_match(str(value), choices)}"
    if not wanted:
        return f"{items[0]['msg']}, not {_shown(value)}"
    near = near_match(str(value), choices)
    hint = near if near.startswith("; did you mean") else _hint([*wanted, *choices], value)
    return f"must be {' or '.join([*wanted, *map(repr, choices)])}, not {_shown(value)}{hint}"


def _choices(item: Any) -> list[str]:
    """Give the words of a closed list; empty for every other error."""
    if item["type"] not in ("literal_error", "enum"):
        return []
    return re.findall(r"'([^']*)'", item["ctx"]["expected"])


def _wanted(items: Iterable[Any]) -> Iterator[str]:
    """Say what each violation wanted; nothing for those that have words of their own."""
    for item in items:
        kind, context = item["type"], item.get("ctx", {})
        if kind == "string_too_short" and context["min_length"] == 1:
            yield "text with something in it"
        elif kind in _BOUNDS:
            name, text = _BOUNDS[kind]
            yield text.format(f"{context[name]:g}")
        elif kind == "invalid_key":
            yield "a key that is text"
        elif kind == "string_pattern_mismatch":
            yield _FORMS.get(context["pattern"], f"text of the form {context['pattern']}")
        else:
            yield _KINDS.get(kind.partition("_")[0], "")


def _hint(wanted: Sequence[str], value: Any) -> str:
    if wanted == ["text"] and isinstance(value, (int, float)):
        return " (in quotes it is text)"
    if wanted in (["a number"], ["a whole number"]) and isinstance(value, str) and _NUMBER.fullmatch(value):
        return " (without quotes it is a number)"
    return ""


def _shown(value: Any) -> str:
    """Write a value as YAML has it, short enough for a line."""
    if value is None:
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, date) else repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def name_of(place: Loc) -> str:
    """Write a place as people do: references[0].lower."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def _fields_below(model: type[BaseModel], path: Iterable[Any]) -> Iterable[str]:
    current: Any = model
    for part in path:
        if isinstance(part, int):  # an element of a list: its model was taken from the list's type
            continue
        field = getattr(current, "model_fields", {}).get(part)
        models = list(_models_in(field.annotation)) if field else []
        if not models:
            return ()
        current = models[0]
    return tuple(getattr(current, "model_fields", ()))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Give the models that a type names, such as Node of `tuple[Node, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)
