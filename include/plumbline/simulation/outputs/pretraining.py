"""mlperf_gpt3 and mlperf_bert: the trainer's log on stdout, and in to_target its compliance report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._pretraining_results import _asked
from plumbline.benchmarks.pretraining import Training, global_batch
from plumbline.model import LaunchSpec, Scalar
from plumbline.simulation.night import Night
from plumbline.simulation.physics import TRAIN_NOISE, step_times
from plumbline.simulation.printers import mllog

if TYPE_CHECKING:
    from numpy.typing import NDArray

RELATIVE_STEP = {"gpt3": 1.0, "bert": 0.35}
"""Step time relative to the hardware model's GPT-3 proxy. Assumption."""
_CONVERGES_AT = 220
"""Steps to the target on average. Assumption."""


def steps_of(training: Training, night: Night, specs: Sequence[LaunchSpec]) -> NDArray[Any]:
    """Give the step times of every launch, seconds: [launches, steps]."""
    groups = night.groups(specs)
    params = specs[0].params
    count = int(str(params["max_steps" if params["mode"] == "to_target" else "steps"]))
    rng = night.noise(training.name, groups.nodes)
    made = step_times(count, night.truth, groups, night.model, rng, night.step_common)
    return made * RELATIVE_STEP[training.name]


def files(training: Training, night: Night, specs: Sequence[LaunchSpec]) -> Iterator[Mapping[str, str]]:
    """Print stdout of each launch, and compliance.json of those that train to a target."""
    made = steps_of(training, night, specs)
    begin_ms = round(night.moment.timestamp() * 1000)
    head = mllog.header(_settings(training, specs[0]), begin_ms)
    rng = night.noise(training.name, "converge", specs[0].node_count)
    converge = 1 + TRAIN_NOISE * rng.standard_normal(len(specs))
    for row, spec in enumerate(specs):
        run = _run(training, spec, made[row].tolist(), float(converge[row]), begin_ms + 5000)
        found = {"stdout": head + mllog.body(run)}
        if spec.params["mode"] == "to_target":
            found["compliance.json"] = json.dumps({"ruleset": training.ruleset, "passed": True, "findings": []})
        yield found


def _settings(training: Training, spec: LaunchSpec) -> dict[str, Scalar]:
    params = spec.params
    layers, hidden, sequence = (int(str(params[name])) for name in ("layers", "hidden", "sequence"))
    flops = 72 * layers * hidden**2 * (1 + sequence / (6 * hidden)) + 6 * hidden * int(str(params["vocab"]))
    return {**_asked(training, spec), "model_flops_per_token": flops, "simulated_by": "plumbline"}


def _run(training: Training, spec: LaunchSpec, steps: list[float], converge: float, begin_ms: int) -> mllog.Training:
    params = spec.params
    to_target = params["mode"] == "to_target"
    warmup = 0 if to_target else int(str(params["warmup_steps"]))
    if to_target:
        steps = steps[: max(40, round(_CONVERGES_AT * converge))]
    total = warmup + len(steps)
    start, floor = (4.2, 2.0) if training.lower_is_better else (6.2, 1.6)
    losses = [floor + (start - floor) * math.exp(-2.5 * i / total) for i in range(total)]
    target = float(str(params["target"]))
    last = target * 0.999 if training.lower_is_better else target * 1.001
    every = int(str(params["eval_every"])) if to_target else total
    worse = 1.2 if training.lower_is_better else 0.8
    evaluations = [(step, last * worse) for step in range(every, total, every)] + [(total, last)]
    return mllog.Training(
        begin_ms=begin_ms,
        batch=global_batch(params, spec.node_count * spec.accelerators_per_node),
        warmup=warmup,
        steps_s=steps,
        losses=losses,
        evaluations=evaluations,
        status="success" if to_target else "completed",
        checkpoint_write_s=2.1 if params["checkpoint"] else None,
        checkpoint_read_s=1.4 if params["checkpoint"] else None,
    )
