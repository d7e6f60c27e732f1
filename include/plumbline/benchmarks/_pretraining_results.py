"""From the trainer's files to values: what the log says, what it should say, and what that means."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.benchmarks._launch_times import wrong_duration, wrong_moments
from plumbline.benchmarks.benchmark import Finding, Measured, Value
from plumbline.benchmarks.pretraining import COMPLIANCE_FILE, Training, global_batch, row_params
from plumbline.errors import OutputError
from plumbline.model import Code, LaunchSpec, RunRecord, Scalar
from plumbline.readers import mllog
from plumbline.readers.reading import Completeness, Fact, Reading, Status
from plumbline.readers.source import Source

_LAST_STEPS = 5
_KEPT_FACTS = ("status", "seed", "time_to_train_ms", "settings", "not_finite", "lines", "mllog_lines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The trainer's log as its reader gives it."""

    readings: Sequence[Reading]
    facts: Mapping[str, Any]
    completeness: Completeness
    settings: Mapping[str, Any] = field(default_factory=dict)

    def values(self, indicator: str) -> list[float]:
        """Give an indicator's values in order of the log."""
        return [item.value for item in self.readings if item.indicator == indicator]


def read_log(spec: LaunchSpec, raw_dir: Path) -> Log:
    """Read the log on stdout. Raises OutputError when it isn't there or isn't MLLOG."""
    path = raw_dir / "stdout"
    if not path.is_file():
        raise OutputError("absent: the trainer left no output", source="stdout")
    items = list(mllog.read(Source.of_path(path), spec.expect))
    facts = {item.name: item.value for item in items if isinstance(item, Fact)}
    settings = {**facts, **facts.get("settings", {})}
    completeness = items[-1]
    assert isinstance(completeness, Completeness)
    readings = [item for item in items if isinstance(item, Reading)]
    return Log(readings=readings, facts=facts, completeness=completeness, settings=settings)


def measure(training: Training, spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read one launch. Raises OutputError when a file is unreadable or absent."""
    log = read_log(spec, raw_dir)
    findings = [
        *_wrong_parameters(training, spec, log),
        *_wrong_time(record, log),
        *_training_findings(spec, log),
        *_checkpoint_findings(spec, log),
    ]
    if spec.params["mode"] == "to_target" and log.completeness.status is Status.COMPLETE:
        findings += _compliance(training, raw_dir / COMPLIANCE_FILE)
    return Measured(
        values=tuple(_values(training, spec, log)),
        findings=tuple(findings),
        facts=tuple(Fact(name, log.facts[name]) for name in _KEPT_FACTS if name in log.facts),
        completeness=(log.completeness,),
    )


# ---------------------------------------------------------------------------------------------------------------
# Values


def _values(training: Training, spec: LaunchSpec, log: Log) -> Iterator[Value]:
    units = {training.rate: training.rate_unit, "throughput": training.rate_unit, "model_flops": "GFLOPS"}
    units |= dict.fromkeys(("final_loss", "loss_drop"), "nat") | dict.fromkeys(_PLAIN, "1")
    units["final_accuracy"] = "nat" if training.lower_is_better else "1"
    params = row_params(spec.params)
    for name, value in (*_rates(training, spec, log), *_quality(log), *_checkpoint(log)):
        yield Value(indicator=name, value=value, unit=units.get(name, "s"), params=params)
    if spec.params["mode"] == "to_target":
        for value in log.values("time_to_train"):
            yield Value(indicator="time_to_train", value=value, unit="s", params=params)


_PLAIN = ("step_time_spread", "checkpoint_restored")


def _rates(training: Training, spec: LaunchSpec, log: Log) -> Iterator[tuple[str, float]]:
    steps = sorted(log.values("step_time"))
    if len(steps) < 2 or steps[0] <= 0:
        return
    median = statistics.median(steps)
    ranks = spec.node_count * spec.accelerators_per_node
    sequences = global_batch(spec.params, ranks)
    tokens = sequences * int(str(spec.params["sequence"]))
    counted = tokens if training.rate_unit == "tokens/s" else sequences
    yield "step_time", median
    yield "step_time_spread", (_percentile(steps, 0.95) - _percentile(steps, 0.05)) / median
    yield training.rate, counted / ranks / median
    yield "throughput", counted / median
    flops = log.settings.get("model_flops_per_token")
    if isinstance(flops, (int, float)) and not isinstance(flops, bool):
        yield "model_flops", flops * tokens / ranks / median / 1e9


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between the closest ranks."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _quality(log: Log) -> Iterator[tuple[str, float]]:
    losses = log.values("train_loss")
    if len(losses) > _LAST_STEPS and not log.facts.get("not_finite", {}).get("train_loss"):
        final = statistics.fmean(losses[-_LAST_STEPS:])
        yield "final_loss", final
        yield "loss_drop", losses[0] - final
    evaluations = log.values("eval_accuracy")
    if evaluations:
        yield "final_accuracy", evaluations[-1]


def _checkpoint(log: Log) -> Iterator[tuple[str, float]]:
    for name in ("checkpoint_write_time", "checkpoint_read_time"):
        yield from ((name, value) for value in log.values(name)[-1:])
    restored = log.settings.get("checkpoint_restored")
    if isinstance(restored, bool):
        yield "checkpoint_restored", float(restored)


# ---------------------------------------------------------------------------------------------------------------
# Findings


def _wrong_parameters(training: Training, spec: LaunchSpec, log: Log) -> Iterator[Finding]:
    """Compare what the trainer logged with what was asked: the log tells what was used."""
    if not log.settings.get("submission_benchmark"):
        return  # it never came to say; the completeness statement tells that
    for name, wanted in _asked(training, spec).items():
        told = log.settings.get(name)
        if told != wanted:
            message = f"the trainer used {name} {told!r}, the plan says {wanted!r}"
            yield Finding(code=Code.WRONG_PARAMETERS, message=message)


def _asked(training: Training, spec: LaunchSpec) -> dict[str, Scalar]:
    params = spec.params
    ranks = spec.node_count * spec.accelerators_per_node
    to_target = params["mode"] == "to_target"
    asked: dict[str, Scalar] = {
        "submission_benchmark": training.name,
        "proxy": True,
        "num_nodes": spec.node_count,
        "num_ranks": ranks,
        "global_batch_size": global_batch(params, ranks),
        "max_sequence_length": params["sequence"],
        "num_layers": params["layers"],
        "hidden_size": params["hidden"],
        "num_heads": params["heads"],
        "vocab_size": params["vocab"],
        "opt_base_learning_rate": params["learning_rate"],
        "planned_steps": params["max_steps"] if to_target else _sum(params["warmup_steps"], params["steps"]),
        "planned_warmup_steps": params["warmup_steps"],
    }
    asked |= {name: params[name] for name in ("mode", "scaling", "parallelism", "precision", "seed", "eval_samples")}
    if to_target:
        asked["target_accuracy"] = params["target"]
    return asked


def _sum(*numbers: Scalar) -> int:
    return sum(int(str(number)) for number in numbers)


def _wrong_time(record: RunRecord, log: Log) -> Iterator[Finding]:
    """A log from another day, or steps that took longer together than the run did, is no measurement of this run."""
    start, stop = log.facts.get("run_start_ms"), log.facts.get("run_stop_ms")
    if start is None:
        return
    told = [("the log's run started at", start), ("the log's run stopped at", stop)]
    yield from wrong_moments(record, [(what, at / 1000) for what, at in told if at is not None])
    total = sum(log.values("step_time"))
    yield from wrong_duration(record, "the steps together", total, "step_time")
    if stop is None:
        return
    yield from wrong_duration(record, "the log's run", (stop - start) / 1000)
    if total > (stop - start) / 1000 + 1:
        message = f"the steps took {total:.1f} s together, the whole run {(stop - start) / 1000:.1f} s"
        yield Finding(code=Code.IMPOSSIBLE_VALUE, message=message, indicator="step_time")


def _training_findings(spec: LaunchSpec, log: Log) -> Iterator[Finding]:
    for name, count in log.facts.get("not_finite", {}).items():
        message = f"{count} values of {name} are NaN, infinite or no number"
        yield Finding(code=Code.NOT_A_NUMBER, message=message, indicator=_ROW_OF.get(name))
    drop = dict(_quality(log)).get("loss_drop")
    if drop is not None and drop <= 0:
        message = f"the loss did not fall: {-drop:.4f} nat higher at the end than at the first step"
        yield Finding(code=Code.NOT_CONVERGED, message=message, indicator="loss_drop")
    if spec.params["mode"] == "to_target" and log.facts.get("status") == "aborted":
        last = log.facts.get("last_eval_accuracy")
        message = f"the target {spec.params['target']} was not reached in {spec.params['max_steps']} steps, last {last}"
        yield Finding(code=Code.NOT_CONVERGED, message=message, indicator="time_to_train")


_ROW_OF = {"train_loss": "final_loss", "eval_accuracy": "final_accuracy", "step_time": "step_time"}


def _checkpoint_findings(spec: LaunchSpec, log: Log) -> Iterator[Finding]:
    if not spec.params["checkpoint"]:
        return
    error = log.settings.get("checkpoint_error")
    if error is not None:
        message = f"the checkpoint could not be written or read: {error}"
        yield Finding(code=Code.STORAGE_UNAVAILABLE, message=message, indicator="checkpoint_write_time")
    if log.settings.get("checkpoint_restored") is False:
        message = "a restored checkpoint differs from what was written"
        yield Finding(code=Code.CHECKPOINT_DIFFERS, message=message, indicator="checkpoint_restored")


def _compliance(training: Training, path: Path) -> Iterator[Finding]:
    """Take the findings of mlperf_logging's own checker. Raises OutputError when they are absent or damaged."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        found = [(str(item["key"]), str(item["message"])) for item in report["findings"]]
        ruleset, passed = str(report["ruleset"]), report["passed"] is True
    except OSError as error:
        raise OutputError(f"absent: {error.strerror}", source=path.name) from None
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(f"no report of the compliance checker: {error}", source=path.name) from None
    if ruleset != training.ruleset:
        message = f"checked against ruleset {ruleset}, {training.ruleset} is the one"
        yield Finding(code=Code.UNEXPECTED_FINDING, message=message)
    for key, message in found:
        if key not in training.expected_findings:
            yield Finding(code=Code.UNEXPECTED_FINDING, message=f"MLPerf rule {key}: {message[:300]}")
    known = sorted({key for key, _ in found} & training.expected_findings)
    if known:
        message = f"a proxy can't keep the MLPerf {ruleset} rules of {', '.join(known)}: expected"
        yield Finding(code=Code.EXPECTED_FINDING, message=message)
    if not found and not passed:
        yield Finding(code=Code.UNEXPECTED_FINDING, message="the checker failed without a finding")
