"""Numbers in the cells that NVIDIA's tools print: '81559 MiB', '26.78 W', '16x', '[N/A]', 'ERR!'.

A cell is a number, the absence of one, a fault that the driver reports in its place, or text.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from plumbline.errors import ConfigError
from plumbline.units import UNITS, convert

_NUMBER = re.compile(r"([-+]?\d{1,30}(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?)\s*(.*)", re.DOTALL | re.ASCII)
_ABSENT = frozenset(
    (
        "", "-", "--", "n/a", "na", "none", "not supported", "not available", "unknown", "not found", "no data",
        "requested functionality has been deprecated", "deprecated", "insufficient permissions", "no permission",
        "not applicable", "undefined",
    )
)  # fmt: skip
_FAULTS = ("err!", "error", "unknown error", "gpu requires reset", "gpu is lost", "reset required")
_SPELLINGS = {
    "c": "degC", "°c": "degC", "w": "W", "mhz": "MHz", "mib": "MiB", "kib": "KiB", "gib": "GiB", "%": "%", "s": "s",
    "us": "us", "ms": "ms", "ns": "ns", "kb/s": "kB/s", "mb/s": "MB/s", "gb/s": "GB/s", "mw": "mW", "j": "J",
    "x": "count", "bank(s)": "count", "gb": "GB", "tb/s": "TB/s", "watts": "W",
}  # fmt: skip
"""How the tools spell units. 'MB' is left out: old drivers printed it and meant MiB."""

DCGM_BLANKS = (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328)
"""DCGM's sentinels for no data in 32-bit, 64-bit and floating fields; +1 not found, +2 not supported, +3 not
permitted. Source: dcgm_structs.h, DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK."""


def bare(cell: str) -> str:
    """Give a cell without the spaces and the one pair of square brackets around it."""
    text = cell.strip()
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def is_absent(cell: str) -> bool:
    """Say whether the tool printed that it has no value here."""
    return bare(cell).lower().rstrip(".") in _ABSENT


@lru_cache(maxsize=4096)
def fault(cell: str) -> str | None:
    """Give the fault that stands where a value ought to be ('GPU requires reset', 'ERR!'), or None."""
    text = bare(cell)
    low = text.lower().rstrip(".")
    return text if low in _FAULTS or low.startswith(("gpu is lost", "gpu requires reset")) else None


def is_blank(value: float) -> bool:
    """Say whether DCGM means 'no data' by this number."""
    if value < DCGM_BLANKS[0]:
        return False
    return any(blank <= value <= blank + 15 for blank in DCGM_BLANKS) or value >= DCGM_BLANKS[1]


def unit_of(text: str) -> str | None:
    """Give Plumbline's spelling of a unit as NVIDIA's tools write it, or None for an unknown one."""
    word = text.strip()
    return word if word in UNITS else _SPELLINGS.get(word.lower())


@lru_cache(maxsize=8192)
def quantity(cell: str, unit: str, *, printed: str | None = None) -> float | None:
    """Give a cell's number in `unit`, or None where there is none that a person would accept.

    The cell's own unit is converted; `printed` is the unit of a cell without one (from a column's header).
    A number followed by anything else is not a number.
    """
    match = _NUMBER.fullmatch(cell.strip())
    if match is None or not math.isfinite(value := float(match[1])):
        return None
    spelled = unit_of(match[2] or printed or unit)
    if spelled is None or spelled == unit:
        return None if spelled is None else value
    try:
        return convert(value, spelled, unit)
    except (ConfigError, OverflowError):  # another dimension: not this quantity
        return None


def whole(cell: str) -> int | None:
    """Give a cell that is a whole number and nothing else ('8'), or None."""
    text = cell.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
