"""How numbers and foreign text are written in reports: for reading, and so that no text can pretend to be ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from plumbline.amounts import node_list, plural
from plumbline.model import Indicator
from plumbline.readers.source import strip_ansi
from plumbline.units import show_bytes

__all__ = [
    "clean", "duration", "node_list", "number", "params_in_words", "percent", "plain", "plural", "shortened", "unit",
]  # fmt: skip

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]|[\ud800-\udfff]"
)
"""Control characters, and those that hide or turn text around: a tool's output must not dress up as a verdict."""


def clean(text: str) -> str:
    """Remove colour codes; replace what is not seen, or changes the direction of writing, by a visible mark."""
    return _UNSEEN.sub("\ufffd", strip_ansi(text))


def shortened(text: str, length: int) -> str:
    """Give one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def number(value: float | None, known: Indicator | None = None) -> str:
    """Write a value as its indicator asks, or with four digits; a missing one as a dash."""
    if value is None:
        return "–"
    if known is not None and known.display != "{:.4g}":
        return known.display.format(value)
    return plain(value)


def plain(value: float) -> str:
    """Write four significant digits without an exponent where that stays readable: 1234567 → '1,235,000'."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e9:
        rounded = float(f"{value:.4g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.4g}"
    return f"{value:.4g}"


def unit(name: str) -> str:
    """Write a unit for people; a ratio has none."""
    return {"1": "", "us": "µs", "degC": "°C", "count": ""}.get(name, name)


def percent(change: float | None) -> str:
    """Write a relative change with its sign."""
    return "" if change is None else f"{change:+.1%}"


def duration(seconds: float | None) -> str:
    """Write a duration the way people say it: '1 h 12 min', '3 min 5 s', '12.5 s'."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def params_in_words(params: str | Mapping[str, Any], names: Iterable[str] | None = None) -> str:
    """Write parameters for people: 'all_reduce, 8 GiB'. `names` chooses and orders; None takes all."""
    given = json.loads(params) if isinstance(params, str) else params
    words = []
    for name in given if names is None else names:
        value = given.get(name)
        if value is None:
            continue
        if name.endswith("_bytes") and isinstance(value, int):
            words.append(show_bytes(value))
        else:
            words.append(value if isinstance(value, str) else f"{name.replace('_', ' ')} {value}")
    return ", ".join(words)
