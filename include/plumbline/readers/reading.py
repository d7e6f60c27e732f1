"""What a reader gives: readings, facts, and last a statement of completeness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from typing import Any, Protocol

from plumbline.model import Params, Scalar
from plumbline.readers.source import Source


class Status(StrEnum):
    """Whether the output is all that the tool had to say."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    """It stops before its end, or holds fewer rows than it announces or than were expected."""
    ABORTED = "aborted"
    """The tool says that it stopped early (signal, run_stop aborted)."""
    FAILED = "failed"
    """The tool ran, or tried to, and says that it failed; or a result check in it failed."""
    NOT_STARTED = "not_started"
    """What ought to have run never did: banners, launcher errors, or an initialisation without a run."""
    UNKNOWN = "unknown"
    """The format has no footer and no expectation was given: nobody can tell."""


@dataclass(frozen=True, slots=True, init=False)
class Reading:
    """One number as the tool printed it, in the reader's unit for that indicator. `params` are its coordinates."""

    indicator: str
    value: float
    unit: str
    params: Params = field(default_factory=dict)

    def __init__(self, indicator: str, value: float, unit: str, params: Params | None = None) -> None:
        """Set the fields through their slots: tables have millions of cells, and this takes half the time."""
        _set_indicator(self, indicator)
        _set_value(self, value)
        _set_unit(self, unit)
        _set_params(self, {} if params is None else params)


_slots: Any = Reading
_set_indicator, _set_value = _slots.indicator.__set__, _slots.value.__set__
_set_unit, _set_params = _slots.unit.__set__, _slots.params.__set__


class _Draft:
    """A Reading that is not frozen yet."""

    __slots__ = ("indicator", "params", "unit", "value")
    indicator: str
    value: float
    unit: str
    params: Params


def readings_of(
    indicators: Iterable[str], values: Iterable[float], units: Iterable[str], params: Iterable[Params]
) -> list[Reading]:
    """Give a Reading for each place in four columns, which end together: for tables, at half the constructor's cost."""
    found: list[Any] = []
    for indicator, value, unit, place in zip(indicators, values, units, params):  # noqa: B905 - units may be endless
        draft = _Draft()
        draft.indicator, draft.value, draft.unit, draft.params = indicator, value, unit, place
        draft.__class__ = Reading  # type: ignore[assignment]  # has the same slots
        found.append(draft)
    return found


def readings_where_there(
    indicators: Sequence[str], values: Sequence[float | None], units: Sequence[str], params: Sequence[Params]
) -> list[Reading]:
    """Give what `readings_of` gives of the places that have a value."""
    there = [value for value in values if value is not None]
    if len(there) == len(values):
        return readings_of(indicators, there, units, params)
    kept = [value is not None for value in values]
    return readings_of(compress(indicators, kept), there, compress(units, kept), compress(params, kept))


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is not a measured number: versions, host names, statuses, counts of rows, lists.

    What JSON has no number for (nan, infinity) stands in its value as text.
    """

    name: str
    value: Any

    def __post_init__(self) -> None:
        """Put text in the place of numbers that nobody could write down again."""
        if not _is_finite(self.value):
            object.__setattr__(self, "value", _with_text(self.value))


@dataclass(frozen=True, slots=True)
class Completeness:
    """The last item of every reader: what it expected, what it found, and why it is not complete."""

    reader: str
    status: Status
    expected: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


Item = Reading | Fact | Completeness


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(_is_finite, value))


def _with_text(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _with_text(item) for key, item in value.items()}
    return [_with_text(item) for item in value] if isinstance(value, (list, tuple)) else value


class Reader(Protocol):
    """A module in this package: one tool's output format. Pure: a source in, items out."""

    NAME: str
    """The module's own name, by which it is found without importing the others."""
    TOOL: str
    """One line for people: which tools and versions."""
    INDICATORS: Mapping[str, tuple[str, str]]
    """indicator name → (unit, what it is)."""
    FACTS: Mapping[str, str]
    """fact name → what it is."""
    EXPECTATIONS: Mapping[str, str]
    """key of `--expect` → what it means."""

    def sniff(self, head: str) -> float:
        """Say how sure the first 64 KiB look like this format: 0 no, 1 certain. Used by reader `auto`."""

    def read(self, source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
        """Give the items in order of the output, Completeness last and exactly once.

        Raises OutputError when this is not the format at all; never another exception.
        """
