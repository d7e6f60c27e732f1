"""The seeds of a scoreboard: a file of whole numbers that nobody tuned a detector on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.configuration import load_yaml
from plumbline.errors import ConfigError

CLUSTER = Path(__file__).parent / "scoreboard.yaml"
"""The simulated cluster that is scored on when none is named."""
DEVELOPMENT = Path(__file__).parent / "development_seeds.yaml"
"""Detectors are tuned on these only, so their scores on them flatter."""
MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """The numbers in order, and what names them: the file's name and the SHA-256 of its bytes."""

    numbers: tuple[int, ...]
    name: str
    sha256: str
    development: bool


def read_seeds(path: Path) -> Seeds:
    """Read a file of whole numbers: one a line (# begins a comment), or a YAML list. Raises ConfigError."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read this file of seeds: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot read this file of seeds: not UTF-8 text, at byte {error.start}") from None
    if path.suffix in (".yaml", ".yml"):
        listed = load_yaml(path)
        if not isinstance(listed, list):
            raise ConfigError(f"{path}: must be a list of whole numbers, not {type(listed).__name__}")
        items = [(f"[{i}]", item) for i, item in enumerate(listed)]
    else:
        items = [
            (f":{number}", int(word) if word.isascii() and word.isdigit() else word)
            for number, line in enumerate(text.splitlines(), start=1)
            for word in line.partition("#")[0].split()
        ]
    digest = hashlib.sha256(data).hexdigest()
    known = DEVELOPMENT.is_file() and digest == hashlib.sha256(DEVELOPMENT.read_bytes()).hexdigest()
    return Seeds(numbers=_checked(path, items), name=path.name, sha256=digest, development=known)


def _checked(path: Path, items: list[tuple[str, Any]]) -> tuple[int, ...]:
    seen: dict[int, str] = {}
    for where, item in items:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= MOST:
            raise ConfigError(f"{path}{where}: a seed is a whole number from 0 to {MOST}, not {item!r}")
        if item in seen:
            raise ConfigError(f"{path}{where}: seed {item} is already at {seen[item]}: it would count twice")
        seen[item] = where
    if not seen:
        raise ConfigError(f"{path}: holds no seed")
    return tuple(seen)
