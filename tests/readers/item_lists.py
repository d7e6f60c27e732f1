"""A reader's items as a list, and logs broken in the ways in which logs break."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from plumbline.readers.reading import Completeness, Fact, Reading
from plumbline.readers.source import Source

WRAPS = {
    "CRLF": lambda line: f"{line}\r",
    "colour": lambda line: f"\x1b[0;31m{line}\x1b[0m",
    "pdsh": lambda line: f"node12: {line}",
    "mpirun tag": lambda line: f"[1,0]<stdout>:{line}",
    "srun label": lambda line: f"0: {line}",
    "kubernetes": lambda line: f"2026-01-01T00:00:00.000000000Z stdout F {line}",
    "collector JSON": lambda line: '{"log":"' + line.replace("\t", " ").replace("\x1b", "") + '\\n","stream":"stdout"}',
    "NCCL between": lambda line: f"{line}\nnode1:12:12 [0] NCCL INFO Channel 00 : 0 -> 1",
}
"""What launchers and collectors make of each line."""


def items(reader, text: str | bytes, **expect):
    """Read all of it; the end is told once, and last."""
    source = Source.of_bytes(text) if isinstance(text, bytes) else Source.of_text(text)
    found = list(reader.read(source, expect))
    assert [type(item) for item in found].count(Completeness) == 1
    assert isinstance(found[-1], Completeness)
    return found


def readings(found):
    return [item for item in found if isinstance(item, Reading)]


def values(found, indicator):
    return [item.value for item in readings(found) if item.indicator == indicator]


def facts(found):
    return {item.name: item.value for item in found if isinstance(item, Fact)}


def figures(found):
    """Give what was measured, whichever run it was in: indicator, value, params."""
    return {
        (one.indicator, one.value, tuple(sorted((k, v) for k, v in one.params.items() if k != "run")))
        for one in readings(found)
    }


def beginnings(text: str, first: str, last: str, most: int | None = None):
    """Cut a text behind each line from the one that holds `first` to the one before `last`; about `most` of them."""
    lines = text.splitlines(keepends=True)
    start, end = (next(at for at, line in enumerate(lines) if mark in line) for mark in (first, last))
    step = 1 if most is None or end < most else 7
    return ["".join(lines[:kept]) for kept in range(start + 1, end + 1, step)]


def cut_points(size: int, end: int, most: int = 250):
    """Give every place of a small text; of a large one the first 40, the last `end`, and others by chance."""
    if size <= most:
        return range(size)
    places = random.Random(size).sample(range(size), most - 40 - end)
    return sorted({*range(40), *range(size - end, size), *places})


def mangled(data: st.DataObject, corpus: list[bytes]) -> bytes:
    """Draw one of the outputs, with bytes of it replaced."""
    base = bytearray(data.draw(st.sampled_from(corpus)))
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(base)))
        size = data.draw(st.integers(0, 40))
        base[at : at + size] = data.draw(st.binary(max_size=20))
    return bytes(base)
