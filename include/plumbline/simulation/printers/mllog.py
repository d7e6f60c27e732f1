"""MLLOG as plumbline_bench.trainer writes it: settings, run, steps, evaluations, checkpoint. Format: mlperf-logging."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plumbline.model import Scalar
from plumbline.simulation.printers import STAMP
from plumbline.sums import added

INIT_MS = 5000
"""From init_start to init_stop, where the run starts. Assumption."""


def header(settings: Mapping[str, Scalar], begin_ms: int) -> str:
    """Print what stands before the run: the same for every launch of a batch."""
    lines = [STAMP, _line("init_start", None, begin_ms, event="INTERVAL_START")]
    lines += [_line(key, value, begin_ms) for key, value in settings.items()]
    lines.append(_line("init_stop", None, begin_ms + INIT_MS, event="INTERVAL_END"))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One run: `warmup` losses without times, then `steps_s` with losses; evaluations as (step, accuracy)."""

    begin_ms: int
    batch: int
    warmup: int
    steps_s: Sequence[float]
    losses: Sequence[float]
    evaluations: Sequence[tuple[int, float]]
    status: str
    checkpoint_write_s: float | None
    checkpoint_read_s: float | None

    @property
    def mean_s(self) -> float:
        """Mean of the timed steps: the warm-up's are taken to be as long."""
        return added(self.steps_s) / len(self.steps_s)

    @property
    def stop_ms(self) -> int:
        """Epoch ms of run_stop."""
        return self.begin_ms + self.warmup * _milliseconds(self.mean_s) + elapsed_ms(self.steps_s)


def body(run: Training) -> str:
    """Print run_start to run_stop."""
    now = run.begin_ms
    lines = [_line("run_start", None, now, event="INTERVAL_START")]
    evaluations = dict(run.evaluations)
    mean = run.mean_s
    for step, loss in enumerate(run.losses, start=1):
        if step <= run.warmup:
            now += _milliseconds(mean)
            value = f'{{"reduced_train_loss": {loss:.6f}}}'
        else:
            seconds = run.steps_s[step - run.warmup - 1]
            now += _milliseconds(seconds)
            value = f'{{"reduced_train_loss": {loss:.6f}, "train_step_time": {seconds:.9f}}}'
        lines.append(
            f':::MLLOG {{"namespace": "", "time_ms": {now}, "event_type": "POINT_IN_TIME", "key": "tracked_stats", '
            f'"value": {value}, "metadata": {{"step": {step}, "samples_count": {step * run.batch}}}}}'
        )
        if step in evaluations:
            lines.append(_line("eval_accuracy", evaluations[step], now, samples_count=step * run.batch))
    now += 1
    if run.checkpoint_write_s is not None and run.checkpoint_read_s is not None:
        value_of = {"checkpoint_write_time": run.checkpoint_write_s, "checkpoint_read_time": run.checkpoint_read_s}
        lines.append(_line("tracked_stats", value_of, now, step=len(run.losses)))
        lines.append(_line("checkpoint_restored", True, now))
    samples = len(run.losses) * run.batch
    lines.append(_line("train_samples", samples, now))
    lines.append(_line("run_stop", None, now, event="INTERVAL_END", status=run.status, samples_count=samples))
    return "\n".join(lines) + "\n"


def elapsed_ms(steps_s: Sequence[float]) -> int:
    """Give the time from run_start to run_stop of a run without warm-up."""
    return sum(map(_milliseconds, steps_s)) + 1


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _line(key: str, value: object, time_ms: int, *, event: str = "POINT_IN_TIME", **metadata: object) -> str:
    record = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": event,
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f":::MLLOG {json.dumps(record)}"
