"""What one training run has logged so far. See readers/mllog.py for the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plumbline.model import Scalar
from plumbline.readers._mllog_lines import Damaged, Record, number
from plumbline.readers._mllog_stats import coordinates, counted, statistic, statistics_of
from plumbline.readers.reading import Reading

_LONGEST_RUN_MS = 400 * 86_400_000
_CLOCK_SLACK_MS = 1_000
_SAME_TIME_MS = 250
"""Ranks log the same thing together, behind a collective; a harness that evaluates twice takes longer than that."""
_MOST_SETTINGS = 400
_MOST_REMEMBERED = 50_000
_ROW_KEYS = frozenset(("eval_accuracy", "tracked_stats", "run_start", "run_stop", "power_reading"))
_MARKS = frozenset((
    "run_start", "run_stop", "init_start", "seed", "eval_start", "eval_stop", "power_measurement_stop",
))  # fmt: skip
_NO_SETTING = frozenset((
    "cache_clear", "weights_initialization", "data_file", "seed", "status", "current_lr", "eval_accuracy",
    "init_start", "init_stop", "run_start", "run_stop", "epoch_start", "epoch_stop", "block_start", "block_stop",
    "eval_start", "eval_stop", "tracked_stats", "power_reading",
))  # fmt: skip
_ONE_VALUED = ("submission_benchmark", "global_batch_size")


class _Seen:
    """The last 50,000 to 100,000 things and when: enough for ranks that log together, bounded for any log."""

    def __init__(self) -> None:
        self._new: dict[int, float] = {}
        self._old: dict[int, float] = {}

    def add(self, thing: object, time_ms: float) -> bool:
        """Remember a thing and say whether it is new, or was seen at quite another time."""
        mark = hash(thing)
        before = self._new.get(mark, self._old.get(mark))
        if before is not None and abs(time_ms - before) <= _SAME_TIME_MS:
            return False
        self._new[mark] = time_ms
        if len(self._new) >= _MOST_REMEMBERED:
            self._old, self._new = self._new, {}
        return True


@dataclass(slots=True, eq=False)
class Run:
    """One training run as far as it has been read. Times are milliseconds since 1970, as logged."""

    number: int | None = None
    """Its place among the runs of the log, None until its run_start was read."""
    first_ms: float = math.inf
    start_ms: float | None = None
    stop_ms: float | None = None
    starts: int = 0
    stops: int = 0
    statuses: list[str] = field(default_factory=list)
    settings: dict[str, Scalar] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    seeds: dict[Scalar, None] = field(default_factory=dict)
    evals: int = 0
    eval_marks: int = 0
    last_eval: Any = None
    steps: int = 0
    duplicates: int = 0
    not_finite: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    before_start: int = 0
    went_back_ms: float = 0.0
    latest_ms: float = 0.0
    final: dict[str, float] = field(default_factory=dict)
    power_stops: int = 0
    restarted: bool = False
    owners: dict[str, str] = field(default_factory=dict)
    seen: _Seen = field(default_factory=_Seen)

    # -- what a record adds

    def take(self, record: Record) -> list[Reading]:
        """Add a record that belongs to this run and give its readings."""
        self.first_ms = min(self.first_ms, record.time_ms)
        if self.start_ms is not None and self.stop_ms is None and record.key != "run_stop":
            self._watch_clock(record.time_ms)
        if record.key == "eval_accuracy":
            return list(self._evaluation(record))
        if record.key == "power_reading":
            return list(self._power(record))
        if self._mark(record):
            return []
        readings = self._statistics(record)
        self._setting(record)
        return readings

    def _mark(self, record: Record) -> bool:
        """Take a record that only marks a point in the run, and say whether it is one."""
        key = record.key
        if key not in _MARKS:
            return False
        if key == "run_start":
            self.starts += 1
            self.start_ms = record.time_ms if self.start_ms is None else min(self.start_ms, record.time_ms)
        elif key == "run_stop":
            self.stop(record)
        elif key == "init_start":
            if self.start_ms is not None and self.stop_ms is None:
                self.restarted = self.restarted or record.time_ms > self.start_ms + _CLOCK_SLACK_MS
        elif key == "seed":
            self._seed(record.value)
        elif key == "eval_stop":
            if self.stop_ms is None and self._owned("eval_stop", record):
                self.eval_marks += self.seen.add(("eval_stop", *coordinates(record).items()), record.time_ms)
        elif key == "power_measurement_stop":
            self.power_stops += 1
        return True

    def stop(self, record: Record) -> None:
        """Add a run_stop: the latest of the ranks counts, and every status that any of them gives."""
        self.stops += 1
        status = record.metadata.get("status")
        told = status.strip().lower()[:40] if isinstance(status, str) else ""
        if told not in self.statuses:
            self.statuses.append(told)
        self.stop_ms = record.time_ms if self.stop_ms is None else max(self.stop_ms, record.time_ms)

    def lose(self, damaged: Damaged) -> None:
        """Note a record that can't be read, where it may have been a row of this run."""
        if self.start_ms is None or self.stop_ms is not None:
            return
        if damaged.key is None or damaged.key in _ROW_KEYS or statistic(damaged.key):
            self.lost.append(damaged.key or "unknown")

    def _watch_clock(self, time_ms: float) -> None:
        if self.start_ms is not None and time_ms < self.start_ms - _CLOCK_SLACK_MS:
            self.before_start += 1
        self.went_back_ms = max(self.went_back_ms, self.latest_ms - time_ms)
        self.latest_ms = max(self.latest_ms, time_ms)

    def _seed(self, value: Any) -> None:
        if isinstance(value, (int, float, str)) and len(self.seeds) < 100_000:
            self.seeds.setdefault(value)

    def _setting(self, record: Record) -> None:
        value = record.value
        if record.key in _NO_SETTING or isinstance(value, (dict, list)) or value is None or statistic(record.key):
            return
        if isinstance(value, float) and not math.isfinite(value):
            return
        known = self.settings.get(record.key)
        if known is None and len(self.settings) < _MOST_SETTINGS:
            self.settings[record.key] = value[:400] if isinstance(value, str) else value
        elif record.key in _ONE_VALUED and known != value and len(self.conflicts) < 8:
            self.conflicts.append(f"{record.key} is {known!r} and {value!r}"[:200])

    def _owned(self, name: str, record: Record) -> bool:
        """Say whether a record is from the rank that was first to log this; other ranks tell the same again."""
        if not record.origin:
            return True
        return self.owners.setdefault(name, record.origin) == record.origin

    def _is_new(self, name: str, value: float, record: Record, where: dict[str, Scalar]) -> bool:
        time_ms = None if where else record.time_ms
        thing = (name, value, time_ms, record.namespace, *where.items())
        fresh = self._owned(name, record) and self.seen.add(thing, record.time_ms)
        self.duplicates += not fresh
        return fresh

    # -- readings

    def _evaluation(self, record: Record) -> Iterator[Reading]:
        parts = record.value.items() if isinstance(record.value, dict) else [("", record.value)]
        where = coordinates(record)
        fresh = False
        for metric, raw in parts:
            value = number(raw)
            params = {**where, "metric": str(metric)[:80]} if metric else where
            if value is None:
                self._count_not_finite("eval_accuracy", raw)
            elif self._is_new("eval_accuracy", value, record, params):
                fresh = True
                if self.stop_ms is None:
                    yield Reading("eval_accuracy", value, "1", self._phase(params))
        if fresh:
            self.evals += 1
            self.last_eval = record.value

    def _statistics(self, record: Record) -> list[Reading]:
        found: list[Reading] = []
        where: dict[str, Scalar] | None = None
        for name, raw in statistics_of(record):
            known = statistic(name) if isinstance(name, str) else None
            if known is None:
                continue
            indicator, factor = known
            value = number(raw)
            if value is None:
                self._count_not_finite(indicator, raw)
                continue
            where = coordinates(record) if where is None else where
            params = where
            if indicator.endswith("throughput"):
                params = {**where, "counts": counted(name, self.settings.get("submission_benchmark"))}
            if not self._is_new(name, value, record, where):
                continue
            if self.stop_ms is not None:
                self.final[indicator] = value * factor
                continue
            self.steps += indicator == "step_time"
            found.append(Reading(indicator, value * factor, _UNITS.get(indicator, "1"), self._phase(params)))
        return found

    def _power(self, record: Record) -> Iterator[Reading]:
        value = number(record.value)
        where = {**coordinates(record), "time_ms": int(record.time_ms)}
        if value is not None and self.seen.add(("power", value, record.namespace, *where.items()), record.time_ms):
            yield Reading("power", value, "W", where)

    def _phase(self, params: dict[str, Scalar]) -> dict[str, Scalar]:
        return params if self.start_ms is not None else {**params, "phase": "before run_start"}

    def _count_not_finite(self, indicator: str, raw: Any) -> None:
        if isinstance(raw, float) or (isinstance(raw, str) and raw.strip().lower() in ("nan", "inf", "-inf")):
            self.not_finite[indicator] = self.not_finite.get(indicator, 0) + 1

    # -- the end

    @property
    def elapsed_ms(self) -> float | None:
        """Give run_stop − run_start, None where either is missing or no run can have taken that long."""
        if self.start_ms is None or self.stop_ms is None:
            return None
        elapsed = self.stop_ms - self.start_ms
        return elapsed if 0 < elapsed < _LONGEST_RUN_MS else None

    @property
    def status(self) -> str:
        """Give what the log says of the run: success, aborted, another word of run_stop, incomplete, not_started."""
        if self.start_ms is None and self.stop_ms is None:
            return "not_started"
        if self.start_ms is None or self.stop_ms is None:
            return "incomplete"
        return next((told for told in self.statuses if told != "success"), "success") or "unknown"

    @property
    def time_to_train_ms(self) -> float | None:
        """Give the time to train: of a run that says success and whose clock can be believed, None otherwise."""
        return self.elapsed_ms if self.status == "success" and not self.before_start and not self.conflicts else None


_UNITS = {
    "step_time": "s", "validation_step_time": "s", "validation_time": "s", "train_epoch_time": "s",
    "checkpoint_write_time": "s", "checkpoint_read_time": "s", "throughput": "1/s", "validation_throughput": "1/s",
}  # fmt: skip
