"""One module per tool's output format; found by name, with no list to keep.

A reader turns text into readings, facts and a completeness statement, and knows nothing of clusters or thresholds.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from plumbline.errors import ConfigError, OutputError, near_match
from plumbline.model import Scalar
from plumbline.readers.reading import Completeness, Fact, Item, Reader, Reading, Status
from plumbline.readers.source import Source

__all__ = [
    "Completeness", "Fact", "Item", "Reader", "Reading", "Source", "Status", "detect", "read", "reader",
    "reader_names", "readers",
]  # fmt: skip

_SHARED = {"reading", "source", "framing"}
HEAD_BYTES = 64 << 10


@cache
def reader_names() -> Sequence[str]:
    """Give the name of every reader, in order. A reader is called as its module, so none is imported for this."""
    names = (info.name for info in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name not in _SHARED and not name.startswith("_")))


def readers() -> Mapping[str, Reader]:
    """Give every reader by name."""
    return {name: reader(name) for name in reader_names()}


@cache
def reader(name: str) -> Reader:
    """Give one reader. Raises ConfigError with the nearest name when there is none."""
    if name not in reader_names():
        raise ConfigError(f"no reader {name!r}{near_match(name, [*reader_names(), 'auto'])}")
    return cast(Reader, importlib.import_module(f"{__name__}.{name}"))


def detect(path: Path) -> Reader:
    """Choose the reader whose `sniff` is surest of the file's head. Raises OutputError when none is."""
    with path.open("rb") as stream:
        start = stream.read(HEAD_BYTES)
    head = start.decode("utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    scores = {name: module.sniff(head) for name, module in readers().items()}
    best = max(scores, key=lambda name: scores[name])
    if scores[best] < 0.3:
        raise OutputError("no reader knows this format", source=path.name, excerpt=head[:80])
    return readers()[best]


def read(name: str, source: Source, expect: Mapping[str, Scalar] | None = None) -> Iterator[Item]:
    """Read a source with a named reader. Raises ConfigError for an unknown reader or expectation, and OutputError."""
    chosen = reader(name)
    for key in expect or {}:
        if key not in chosen.EXPECTATIONS:
            raise ConfigError(f"reader {name} knows no expectation {key!r}{near_match(key, chosen.EXPECTATIONS)}")
    return chosen.read(source, expect or {})
