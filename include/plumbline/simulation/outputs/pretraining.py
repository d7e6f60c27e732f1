"""mlperf_gpt3 and mlperf_bert: the trainer's log on stdout, and in to_target its compliance report."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._pretraining_results import _LAST_STEPS, _asked
from plumbline.benchmarks.pretraining import Training, global_batch
from plumbline.model import LaunchSpec, Scalar
from plumbline.simulation.night import Night, Nights, Rung
from plumbline.simulation.outputs import Printed
from plumbline.simulation.physics import TRAIN_NOISE, step_times
from plumbline.simulation.printers import mllog
from plumbline.simulation.rounding import printed

if TYPE_CHECKING:
    from numpy.typing import NDArray

RELATIVE_STEP = {"gpt3": 1.0, "bert": 0.35}
"""Step time relative to the hardware model's GPT-3 proxy. Assumption."""
_LONG_STEP_S = 2.0
"""Assumption."""
_CONVERGES_AT = 220
"""Steps to the target on average. Assumption."""
_CHECKPOINT_WRITE_S, _CHECKPOINT_READ_S = 2.1, 1.4


def steps_of(training: Training, nights: Nights, rung: Rung) -> NDArray[Any]:
    """Give the step times of every launch, seconds: [launches, steps]."""
    params = rung.spec.params
    count = int(str(params["max_steps" if params["mode"] == "to_target" else "steps"]))
    rng = nights.noise(training.name, rung.groups.nodes)
    common = nights.step_common(rung.groups)
    return step_times(count, nights.truth, rung.groups, nights.model, rng, common) * RELATIVE_STEP[training.name]


def steps_needed(training: Training, nights: Nights, rung: Rung) -> list[int]:
    """Give how many steps each launch times: as many as asked for, or as it needs to reach the target."""
    params, size = rung.spec.params, len(rung.groups.index)
    if params["mode"] != "to_target":
        return [int(str(params["steps"]))] * size
    rng = nights.noise(training.name, "converge", rung.groups.nodes)
    converge = 1 + rng.normal(0, TRAIN_NOISE, size)
    most = int(str(params["max_steps"]))
    return [min(most, max(40, round(_CONVERGES_AT * one))) for one in converge.tolist()]


def files(
    training: Training, night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int], begin: datetime
) -> Iterator[Printed]:
    """Print stdout of each launch, and compliance.json of those that train to a target."""
    nights = Nights.of([night])
    rung = nights.rung_of(specs)
    made, needed = steps_of(training, nights, rung), steps_needed(training, nights, rung)
    settings = _settings(training, specs[0])
    for row in rows:
        begin_ms = round(night.began(specs[row], begin).timestamp() * 1000)
        head = mllog.header(settings, begin_ms)
        run = _run(training, specs[row], made[row, : needed[row]].tolist(), begin_ms + mllog.INIT_MS)
        found = {"stdout": head + mllog.body(run)}
        if specs[row].params["mode"] == "to_target":
            found["compliance.json"] = json.dumps({"ruleset": training.ruleset, "passed": True, "findings": []})
        yield Printed(found, (run.stop_ms - begin_ms) / 1000)


def works_s(spec: LaunchSpec) -> float:
    """Give how long all steps take at a low rate."""
    params = spec.params
    names = ("max_steps",) if params["mode"] == "to_target" else ("warmup_steps", "steps")
    return sum(int(str(params[name])) for name in names) * _LONG_STEP_S


def _settings(training: Training, spec: LaunchSpec) -> dict[str, Scalar]:
    return {**_asked(training, spec), "model_flops_per_token": _flops_per_token(spec), "simulated_by": "plumbline"}


def _flops_per_token(spec: LaunchSpec) -> float:
    params = spec.params
    layers, hidden, sequence = (int(str(params[name])) for name in ("layers", "hidden", "sequence"))
    return 72 * layers * hidden**2 * (1 + sequence / (6 * hidden)) + 6 * hidden * int(str(params["vocab"]))


def _run(training: Training, spec: LaunchSpec, steps: list[float], begin_ms: int) -> mllog.Training:
    params = spec.params
    to_target = params["mode"] == "to_target"
    warmup = 0 if to_target else int(str(params["warmup_steps"]))
    total = warmup + len(steps)
    last = _last_accuracy(training, spec)
    every = int(str(params["eval_every"])) if to_target else total
    worse = 1.2 if training.lower_is_better else 0.8
    evaluations = [(step, last * worse) for step in range(every, total, every)] + [(total, last)]
    return mllog.Training(
        begin_ms=begin_ms,
        batch=global_batch(params, spec.node_count * spec.accelerators_per_node),
        warmup=warmup,
        steps_s=steps,
        losses=_losses(training, total),
        evaluations=evaluations,
        status="success" if to_target else "completed",
        checkpoint_write_s=_CHECKPOINT_WRITE_S if params["checkpoint"] else None,
        checkpoint_read_s=_CHECKPOINT_READ_S if params["checkpoint"] else None,
    )


def _losses(training: Training, total: int) -> list[float]:
    start, floor = (4.2, 2.0) if training.lower_is_better else (6.2, 1.6)
    return [floor + (start - floor) * math.exp(-2.5 * i / total) for i in range(total)]


def _last_accuracy(training: Training, spec: LaunchSpec) -> float:
    target = float(str(spec.params["target"]))
    return target * 0.999 if training.lower_is_better else target * 1.001


# -- the same without text -------------------------------------------------------------------------------------------


def values(training: Training, nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give step time, rates and quality of every launch, from the times and losses as printed."""
    import numpy as np

    spec = rung.spec
    made, needed = steps_of(training, nights, rung), steps_needed(training, nights, rung)
    ranks = spec.node_count * spec.accelerators_per_node
    sequences = global_batch(spec.params, ranks)
    tokens = sequences * int(str(spec.params["sequence"]))
    counted = tokens if training.rate_unit == "tokens/s" else sequences
    middle, spread = _middle(printed(made, 9), needed)
    columns = [middle, spread, counted / ranks / middle, counted / middle]
    columns.append(_flops_per_token(spec) * tokens / ranks / middle / 1e9)
    columns += list(_quality(training, spec, needed).T)
    size = len(made)
    if spec.params["checkpoint"]:
        columns += [np.full(size, one) for one in (_CHECKPOINT_WRITE_S, _CHECKPOINT_READ_S, 1.0)]
    if spec.params["mode"] == "to_target":
        columns.append(
            np.array([mllog.elapsed_ms(row[:count]) / 1000 for row, count in zip(made.tolist(), needed, strict=True)])
        )
    return np.stack(columns, axis=1), np.zeros(size, bool)


def _middle(steps: NDArray[Any], needed: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give median and relative spread of each launch's steps, launches with equally many steps together."""
    import numpy as np

    middle, spread = np.empty(len(steps)), np.empty(len(steps))
    counts = np.array(needed)
    for count in sorted(set(needed)):
        rows = counts == count
        ordered = np.sort(steps[rows, :count], axis=1)
        half = count // 2
        middle[rows] = ordered[:, half] if count % 2 else (ordered[:, half - 1] + ordered[:, half]) / 2
        spread[rows] = (_percentile(ordered, 0.95) - _percentile(ordered, 0.05)) / middle[rows]
    return middle, spread


def _percentile(ordered: NDArray[Any], share: float) -> NDArray[Any]:
    place = share * (ordered.shape[1] - 1)
    low = math.floor(place)
    high = min(low + 1, ordered.shape[1] - 1)
    found: NDArray[Any] = ordered[:, low] + (ordered[:, high] - ordered[:, low]) * (place - low)
    return found


def _quality(training: Training, spec: LaunchSpec, needed: Sequence[int]) -> NDArray[Any]:
    """Give final loss, its fall, and the last evaluation of each launch: [launches, 3]."""
    import numpy as np

    warmup = 0 if spec.params["mode"] == "to_target" else int(str(spec.params["warmup_steps"]))
    found = {}
    for count in set(needed):
        losses = [float(f"{loss:.6f}") for loss in _losses(training, warmup + count)]
        final = statistics.fmean(losses[-_LAST_STEPS:])
        found[count] = (final, losses[0] - final, _last_accuracy(training, spec))
    return np.array([found[count] for count in needed])
