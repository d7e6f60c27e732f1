"""The two ways to train: a fixed number of steps with every step timed, or until the target is reached."""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plumbline_bench.trainer.checkpoint import Result, try_checkpoint
from plumbline_bench.trainer.config import PROXY_NOTE, Config
from plumbline_bench.trainer.data import Batches, evaluation_share, make_corpus
from plumbline_bench.trainer.events import Events
from plumbline_bench.trainer.group import Group, spread
from plumbline_bench.trainer.model import (
    FLOPS_FORMULA,
    FLOPS_SOURCE,
    LanguageModel,
    flops_per_token,
    predicted_per_sequence,
)
from plumbline_bench.trainer.optimizer import clip, learning_rate, make_optimizer, set_learning_rate

SUMMARY_NAME = "summary.json"
COMPLIANCE_NAME = "compliance.json"


@dataclass(slots=True)
class Progress:
    """What a run has come to so far."""

    status: str = "aborted"
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    step_times: list[float] = field(default_factory=list)
    last_eval: float | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    checkpoint: Result | None = None


class Trainer:
    """One rank of a run."""

    def __init__(self, config: Config, group: Group) -> None:
        """Build model, data and optimizer, and log what they are."""
        self.config, self.group = config, group
        self.events = Events(config, active=group.first)
        self.corpus = make_corpus(config.benchmark, config.vocab, config.seed)
        self.events.announce(config, self.corpus)
        torch.manual_seed(config.seed)
        self.model: nn.Module = spread(LanguageModel(config).to(group.device), config, group)
        self.optimizer = make_optimizer(self.model, config)
        self.batches = Batches(self.corpus, config, group.rank, group.device)
        self.evaluation = evaluation_share(self.corpus, config, group.rank, group.device)
        self.progress = Progress()

    def step(self) -> float:
        """Train on the next batch and give its mean loss over all ranks."""
        config, number = self.config, self.progress.steps
        set_learning_rate(self.optimizer, learning_rate(config, number))
        inputs, labels = self.batches.take(number)
        with self._precision():
            total, _ = self.model(inputs, labels)
            loss = total / (config.batch_per_rank * predicted_per_sequence(config))
        loss.backward()
        clip(self.model, config)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        (reduced,) = self.group.total(float(loss.detach()))
        self.progress.steps += 1
        mean = reduced / config.ranks
        self.progress.losses.append(mean)
        return mean

    def evaluate(self) -> float:
        """Give the evaluation over all ranks: log perplexity (gpt3), share of masked tokens told right (bert)."""
        inputs, labels = self.evaluation
        loss = right = 0.0
        self.model.eval()
        with torch.no_grad(), self._precision():
            for place in range(0, len(inputs), self.config.batch_per_rank):
                batch = slice(place, place + self.config.batch_per_rank)
                batch_loss, batch_right = self.model(inputs[batch], labels[batch])
                loss, right = loss + float(batch_loss), right + float(batch_right)
        self.model.train()
        predicted = len(inputs) * predicted_per_sequence(self.config)
        loss, right, predicted = self.group.total(loss, right, float(predicted))
        return loss / predicted if self.config.lower_is_better else right / predicted

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "bf16":
            return torch.autocast(self.group.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    # -- the two modes

    def fixed_steps(self) -> None:
        """Train a fixed number of steps."""
        self._begin()
        self._block(self.config.total_steps)
        self._evaluate_and_log()
        self._end("completed")

    def to_target(self) -> None:
        """Train until an evaluation reaches the target, or until the steps are used up."""
        self._begin()
        status = "aborted"
        while self.progress.steps < self.config.max_steps and status == "aborted":
            self._block(min(self.config.eval_every, self.config.max_steps - self.progress.steps))
            if self._reached(self._evaluate_and_log()):
                status = "success"
        self._end(status)

    def _block(self, steps: int) -> None:
        """Train some steps, and time those behind the warm-up."""
        here = self._samples()
        self.events.start("block_start", first_epoch_num=here, epoch_count=1, samples_count=here)
        for _ in range(steps):
            started = time.perf_counter()
            loss = self.step()
            self.group.finish()
            took = time.perf_counter() - started
            measured = self.progress.steps > self.config.warmup_steps
            if measured:
                self.progress.step_times.append(took)
            self._log_step(loss, took if measured else None)
        self.events.end("block_stop", first_epoch_num=here, samples_count=self._samples())

    def _reached(self, accuracy: float) -> bool:
        return accuracy <= self.config.target if self.config.lower_is_better else accuracy >= self.config.target

    def _begin(self) -> None:
        self.group.wait()
        self.events.end("init_stop")
        self.progress.started_ms = time.time_ns() // 1_000_000
        self.events.start("run_start", time_ms=self.progress.started_ms)
        self.events.start("epoch_start", epoch_num=0)

    def _end(self, status: str) -> None:
        self.progress.ended_ms = time.time_ns() // 1_000_000
        self.progress.status = status
        if self.config.checkpoint_dir is not None:
            self._try_checkpoint()  # behind the end of training; run_stop carries the time at which that was
        self.events.end("epoch_stop", epoch_num=self._samples())
        self.events.event("train_samples", self._samples())
        self.events.end("run_stop", time_ms=self.progress.ended_ms, status=status, samples_count=self._samples())

    def _samples(self) -> int:
        return self.progress.steps * self.config.global_batch

    def _log_step(self, loss: float, took: float | None) -> None:
        value: dict[str, float] = {"reduced_train_loss": loss}
        if took is not None:
            value |= {"train_step_time": took, "throughput": self.config.global_batch / took}
        self.events.event("tracked_stats", value, step=self.progress.steps, samples_count=self._samples())

    def _evaluate_and_log(self) -> float:
        place = {"epoch_num": self._samples(), "samples_count": self._samples()}
        self.events.start("eval_start", **place)
        accuracy = self.progress.last_eval = self.evaluate()
        self.events.event("eval_accuracy", accuracy, **place)
        self.events.end("eval_stop", **place)
        return accuracy

    def _try_checkpoint(self) -> None:
        result = try_checkpoint(self.model, self.optimizer, self.progress.steps, self.config, self.group)
        self.progress.checkpoint = result
        times = {"checkpoint_write_time": result.write_time, "checkpoint_read_time": result.read_time}
        known = {name: value for name, value in times.items() if value is not None}
        self.events.event("tracked_stats", known, step=self.progress.steps)
        if result.size_bytes is not None:
            self.events.event("checkpoint_size_bytes", result.size_bytes)
        if result.restored is not None:
            self.events.event("checkpoint_restored", result.restored)
        if result.error is not None:
            self.events.event("checkpoint_error", result.error)


def train(config: Config, group: Group) -> int:
    """Run one rank from start to end and give its exit status: 0 unless something went wrong."""
    trainer = Trainer(config, group)
    if group.first:
        print(f"{config.benchmark} proxy on synthetic text: {PROXY_NOTE}", flush=True)
    trainer.fixed_steps() if config.mode == "fixed_steps" else trainer.to_target()
    if group.first:
        out = Path(config.output_dir)
        if config.mode == "to_target":
            from plumbline_bench.trainer.compliance import check  # noqa: PLC0415 - imports much, and only this needs it

            write_json(out / COMPLIANCE_NAME, check(trainer.events.path, config.benchmark))
        write_json(out / SUMMARY_NAME, summary(config, trainer))
        print(_last_line(config, trainer.progress), flush=True)
    group.wait()
    return 0


def summary(config: Config, trainer: Trainer) -> dict[str, Any]:
    """Give the run in one object. Numbers that the run doesn't have are null."""
    progress = trainer.progress
    succeeded = progress.status == "success" and progress.started_ms is not None and progress.ended_ms is not None
    median = statistics.median(progress.step_times) if progress.step_times else None
    per_rank = config.batch_per_rank * config.sequence
    return {
        "proxy": True,
        "note": PROXY_NOTE,
        "benchmark": config.benchmark,
        "mode": config.mode,
        "status": progress.status,
        "time_to_train_s": (progress.ended_ms - progress.started_ms) / 1000 if succeeded else None,
        "target": config.target if config.mode == "to_target" else None,
        "best_reachable": trainer.corpus.best_reachable,
        "last_eval_accuracy": _number(progress.last_eval),
        "final_loss": _number(progress.losses[-1] if progress.losses else None),
        "steps": progress.steps,
        "step_time_median_s": median,
        "tokens_per_second_per_rank": per_rank / median if median else None,
        "model_flops_per_token": flops_per_token(config),
        "model_flops_formula": FLOPS_FORMULA,
        "model_flops_source": FLOPS_SOURCE,
        "checkpoint": asdict(progress.checkpoint) if progress.checkpoint else None,
        "config": asdict(config),
        "torch": torch.__version__,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _last_line(config: Config, progress: Progress) -> str:
    what = f"{config.benchmark} proxy, {config.mode}: {progress.status} after {progress.steps} steps"
    return f"{what}, loss {progress.losses[-1]:.4f}, evaluation {progress.last_eval:.4f} ({PROXY_NOTE})"


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(data, stream, indent=1, allow_nan=False)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
