"""A progress line of gpu-burn: how far it is, and what it shows of each GPU."""

from __future__ import annotations

import re
from functools import lru_cache

_PERCENT = re.compile(r"(?:^|\s)(\d{1,3}\.\d)%\s*$")
_DONE = re.compile(r"(-?\d{1,18}) \((\d{1,12}) Gflop/s\)")
_SLASH = re.compile(r" ?/ ")
"""What stands between GPUs to version 0.7; those without a rate are older still."""
_ERRORS = re.compile(r"(-?\d{1,18})(?: +\((WARNING|DIED)!\))?")
_TEMPERATURE = re.compile(r"(\d{1,4}) C|--")
_ALL_DONE, _ALL_ERRORS, _ALL_TEMPERATURES = (
    re.compile(rf"\s*(?:{cell.pattern})\s*(?:- (?:{cell.pattern})\s*)*+") for cell in (_DONE, _ERRORS, _TEMPERATURE)
)
MOST_GPUS = 1024

Shown = tuple[int, int, int, bool, int | None]
"""Of a GPU: iterations, GFLOPS, errors, whether its process died, temperature."""


def progress(text: str) -> tuple[float, list[Shown]] | None:
    """Read the percentage and what is shown of each GPU; None when the line is cut or overwritten by other output."""
    if "/ " in text:
        text = _SLASH.sub(" - ", text)
    before, _, rest = text.rpartition("proc'd: ")
    work, _, rest = rest.partition(" errors: ")
    wrong, _, warm = rest.partition(" temps: ")
    percent = _PERCENT.search(before)
    if percent is None or not warm:
        return None
    warm = warm.lstrip().partition("  ")[0]
    if (done := _work(work)) is None or (errors := _errors(wrong)) is None or (heat := _temperatures(warm)) is None:
        return None
    if not len(done) == len(errors) == len(heat) <= MOST_GPUS:
        return None
    return float(percent[1]), [(*d, *e, t) for d, e, t in zip(done, errors, heat, strict=True)]


# A line shows most cells of the line before again.


def _work(text: str) -> list[tuple[int, int]] | None:
    """Read (iterations, GFLOPS) of each GPU; None when anything else stands there."""
    found = [_done(cell.rstrip()) for cell in text.strip().split(" - ")]
    if None not in found:
        return [cell for cell in found if cell is not None]
    if "Gflop" not in text and all(re.fullmatch(r"-?\d{1,18}", cell.strip()) for cell in text.split(" - ")):
        return [(int(cell), 0) for cell in text.split(" - ")]
    if not _ALL_DONE.fullmatch(text):
        return None
    return [(int(iterations), int(rate)) for iterations, rate in _DONE.findall(text)]


@lru_cache(maxsize=4096)
def _done(cell: str) -> tuple[int, int] | None:
    match = _DONE.fullmatch(cell)
    return (int(match[1]), int(match[2])) if match else None


@lru_cache(maxsize=1024)
def _errors(text: str) -> list[tuple[int, bool]] | None:
    """Read (errors since the summary, whether the process died) of each GPU.

    The program counts them in 32 bits with a sign, so that many look negative. What it shows of a process that died is
    no count: it goes on adding what was in memory when it could no longer read one.
    """
    if not _ALL_ERRORS.fullmatch(text):
        return None
    return [(0 if mark == "DIED" else int(count) % (1 << 32), mark == "DIED") for count, mark in _ERRORS.findall(text)]


@lru_cache(maxsize=4096)
def _temperatures(text: str) -> list[int | None] | None:
    """Read the temperature of each GPU, None where there is none."""
    if not _ALL_TEMPERATURES.fullmatch(text):
        return None
    return [int(cell) if cell else None for cell in _TEMPERATURE.findall(text)]
