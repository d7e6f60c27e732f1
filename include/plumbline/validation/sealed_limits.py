"""Read back what a run was prepared to be judged against. What can't be read is a problem, never a silence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from plumbline.analysis.baseline import BaselineLimit, baseline_from
from plumbline.errors import ConfigError
from plumbline.references.reference import ReferenceSet, references_from
from plumbline.validation.waivers import Waiver, waivers_from

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOtherwise:
    """A benchmark's approved history that is not comparable with this run, and why; the names of its `runs`.

    `indicators` names those that it is about, empty for the whole benchmark.
    """

    benchmark: str
    indicators: tuple[str, ...]
    reason: str
    runs: tuple[str, ...]

    def holds_for(self, benchmark: str, indicator: str) -> bool:
        """Say whether the history of an indicator is left out."""
        return self.benchmark == benchmark and (not self.indicators or indicator in self.indicators)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLimits:
    """references.json of a run's evidence. `references` is None where they can't be read: no number can be trusted.

    `problems` says what can't be read or is missing, each a sentence; every one of them closes the gate.
    """

    references: ReferenceSet | None
    baseline: tuple[BaselineLimit, ...]
    waivers: tuple[Waiver, ...]
    nights: Mapping[str, int]
    approved_runs: tuple[str, ...]
    otherwise: tuple[MeasuredOtherwise, ...]
    """What of the approved runs is left out because it was measured otherwise, sorted."""
    problems: tuple[str, ...]


def read_limits(data: Any) -> SealedLimits:
    """Read the sealed limits of a run. Never raises for damaged data."""
    given: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    problems: list[str] = []

    def part(name: str, read: Callable[[Any], T], otherwise: T) -> T:
        try:
            return read(given[name])
        except KeyError as error:
            problems.append(f"{name} of this run are missing ({error.args[0]})")
        except (ConfigError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{name} of this run can't be read: {error}")
        return otherwise

    no_references: ReferenceSet | None = None
    no_baseline: tuple[BaselineLimit, ...] = ()
    no_waivers: tuple[Waiver, ...] = ()
    no_runs: tuple[str, ...] = ()
    nothing: tuple[MeasuredOtherwise, ...] = ()
    references = part("references", references_from, no_references)
    baseline = part("baseline", _baseline, no_baseline)
    approved = part("approved_runs", lambda names: tuple(str(name) for name in names), no_runs)
    if approved and not baseline and not any(text.startswith("baseline") for text in problems):
        problems.append(f"{len(approved)} approved runs are named and no limit of theirs is there")
    problems.extend(part("unusable", _unusable, no_runs) if "unusable" in given else ())
    return SealedLimits(
        references=references,
        baseline=baseline,
        waivers=part("waivers", waivers_from, no_waivers),
        nights=part("nights", _nights, {}),
        approved_runs=approved,
        otherwise=part("left_out", _otherwise, nothing) if "left_out" in given else nothing,
        problems=tuple(problems),
    )


def _unusable(data: Any) -> tuple[str, ...]:
    """Say of each approved run that gave no history why, and what to do: a baseline that shrinks must be noticed."""
    return tuple(
        f"approved run {item['run_id']} gave no history: {item['reason']}; judge it again, or revoke its approval "
        "(plumbline approve --revoke)"
        for item in data
    )


def _otherwise(data: Any) -> tuple[MeasuredOtherwise, ...]:
    """Put together what is left out of a benchmark's history for one reason; runs left out whole are not in it."""
    found: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for item in data:
        if "benchmark" in item:
            key = (str(item["benchmark"]), tuple(map(str, item.get("indicators", ()))), str(item["reason"]))
            found.setdefault(key, []).append(str(item["run_id"]))
    return tuple(
        MeasuredOtherwise(benchmark=benchmark, indicators=indicators, reason=reason, runs=tuple(runs))
        for (benchmark, indicators, reason), runs in sorted(found.items())
    )


_BOUNDS = ("value", "lower", "upper", "warn_lower", "warn_upper")


def _baseline(data: Any) -> tuple[BaselineLimit, ...]:
    """Read baseline limits; a bound that is no finite number would bind nothing. Raises ValueError."""
    limits = baseline_from(data)
    for limit in limits:
        for name in _BOUNDS:
            bound = getattr(limit, name)
            if bound is not None and (isinstance(bound, bool) or not math.isfinite(bound)):
                raise ValueError(f"{name} of {limit.benchmark}/{limit.indicator} is {bound}")
    return limits


def _nights(data: Any) -> dict[str, int]:
    """Read ages in nights. Raises ValueError for one that is not a count."""
    for name, count in data.items():
        if type(count) is not int or count < 0:
            raise ValueError(f"{name}: {count!r}")
    return dict(data)
