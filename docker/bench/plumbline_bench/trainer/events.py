"""What the trainer writes: MLLOG through mlperf_logging, on stdout and in mllog.txt, from rank 0 alone.

Every hyperparameter is read from the configuration that the run is built from, and every line says that it is a proxy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlperf_logging import mllog

from plumbline_bench.trainer.config import PROXY_NOTE, Config
from plumbline_bench.trainer.data import Corpus
from plumbline_bench.trainer.model import FLOPS_FORMULA, flops_per_token
from plumbline_bench.trainer.optimizer import POLY_POWER, START_WARMUP_STEP

LOG_NAME = "mllog.txt"


def hyperparameters(config: Config, corpus: Corpus) -> Iterator[tuple[str, Any]]:
    """Give (MLLOG key, value) of everything that the run is made with, in the order in which it is logged."""
    yield "seed", config.seed
    yield "global_batch_size", config.global_batch
    yield "gradient_accumulation_steps", 1
    yield "max_sequence_length", config.sequence
    yield "eval_samples", config.eval_samples
    yield "opt_name", config.optimizer
    yield "opt_base_learning_rate", config.learning_rate
    yield "opt_learning_rate_warmup_steps", config.learning_rate_warmup_steps
    yield from _optimizer_of_reference(config)
    yield "num_layers", config.layers
    yield "hidden_size", config.hidden
    yield "num_heads", config.heads
    yield "vocab_size", config.vocab
    yield "batch_size_per_rank", config.batch_per_rank
    yield "num_nodes", config.nodes
    yield "num_ranks", config.ranks
    yield "scaling", config.scaling
    yield "parallelism", config.parallelism
    yield "precision", config.precision
    yield "mode", config.mode
    yield "planned_steps", config.total_steps
    yield "planned_warmup_steps", config.warmup_steps
    if config.mode == "to_target":
        yield "target_accuracy", config.target
    yield "model_flops_per_token", flops_per_token(config)
    yield "model_flops_formula", FLOPS_FORMULA
    yield "best_reachable", corpus.best_reachable


def _optimizer_of_reference(config: Config) -> Iterator[tuple[str, Any]]:
    if config.optimizer == "adam":
        yield "opt_end_learning_rate", config.learning_rate_end
        yield "opt_learning_rate_decay_steps", config.total_steps
        yield "opt_learning_rate_decay_schedule", "cosine with linear warmup"
        yield "opt_adam_beta_1", config.beta_1
        yield "opt_adam_beta_2", config.beta_2
        yield "opt_adam_epsilon", config.epsilon
        yield "opt_weight_decay", config.weight_decay
        yield "opt_gradient_clip_norm", config.gradient_clip_norm
        yield "init_checkpoint_step", 0
        return
    yield "opt_learning_rate_training_steps", config.total_steps
    yield "num_warmup_steps", config.learning_rate_warmup_steps
    yield "start_warmup_step", START_WARMUP_STEP
    yield "opt_lamb_learning_rate_decay_poly_power", POLY_POWER
    yield "opt_lamb_beta_1", config.beta_1
    yield "opt_lamb_beta_2", config.beta_2
    yield "opt_lamb_epsilon", config.epsilon
    yield "opt_lamb_weight_decay_rate", config.weight_decay


class Events:
    """The MLLOG of one run; on ranks other than 0 nothing is written."""

    def __init__(self, config: Config, *, active: bool) -> None:
        """Open the log."""
        self.active = active
        self.path = Path(config.output_dir) / LOG_NAME
        if not active:
            return
        self.path.unlink(missing_ok=True)
        mllog.config(filename=str(self.path), root_dir=str(Path(__file__).parents[2]), default_stack_offset=2)
        self._logger = mllog.get_mllogger()
        for handler in self._logger.logger.handlers:
            handler.setLevel(logging.INFO)

    def start(self, key: str, *, time_ms: int | None = None, **metadata: Any) -> None:
        """Log the start of an interval, now or at the time that is given."""
        if self.active:
            self._logger.start(key, metadata=metadata, time_ms=time_ms)

    def end(self, key: str, *, time_ms: int | None = None, **metadata: Any) -> None:
        """Log the end of an interval, now or at the time that is given."""
        if self.active:
            self._logger.end(key, metadata=metadata, time_ms=time_ms)

    def event(self, key: str, value: Any, **metadata: Any) -> None:
        """Log a value."""
        if self.active:
            self._logger.event(key, value=value, metadata=metadata)

    def announce(self, config: Config, corpus: Corpus) -> None:
        """Log who trains what, and with which hyperparameters."""
        size = f"{config.layers} layers, hidden {config.hidden}, sequence {config.sequence}"
        self.event("cache_clear", False, reason="synthetic data: nothing is read from a cache")
        self.start("init_start")
        self.event("submission_benchmark", config.benchmark, proxy=True, note=PROXY_NOTE)
        self.event("submission_division", "open", note="a proxy fits no division; the word only selects the rules")
        self.event("submission_org", PROXY_NOTE)
        self.event("submission_platform", f"plumbline proxy: {config.nodes} nodes, {config.ranks} ranks; {size}")
        self.event("submission_status", "research", note=PROXY_NOTE)
        self.event("proxy", True)
        for key, value in hyperparameters(config, corpus):
            self.event(key, value)
