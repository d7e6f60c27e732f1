"""Lists that only grow: one JSON object a line, on disk before the next thing happens.

A line is written in ASCII, and only a line feed ends one: what other tools take for a line's end (U+2028, U+0085), and
what a terminal would obey, stands in it as an escape.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import OutputError


def append_line(path: Path, item: Mapping[str, Any]) -> None:
    """Add one object to a list, which is made where there is none. Raises OSError.

    A last line that was never finished (its writer was killed, the disk was full) is ended first: it stays damaged,
    and takes no other with it.
    """
    line = json.dumps(item, sort_keys=True).encode("ascii") + b"\n"
    with path.open("ab+") as stream:
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            line = line if stream.read(1) == b"\n" else b"\n" + line
        stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())


def lines_of(path: Path) -> Iterator[tuple[int, str, dict[str, Any] | None]]:
    """Give number (from 1), text and object of each line; None for a damaged one, nothing where there is no list.

    Raises OutputError for a list that can't be opened.
    """
    if not path.is_file():
        return
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise OutputError(f"cannot read: {error.strerror or error}", source=str(path)) from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line.decode("utf-8", "replace"), _object(line)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        item = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None
