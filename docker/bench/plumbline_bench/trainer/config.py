"""What a training run is: one frozen value that model, data, optimizer and log are all made from.

Nothing is logged that isn't read from here, and nothing trains with a value that isn't from here.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

PROXY_NOTE = "plumbline proxy, not an MLPerf result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One run. Batches are sequences; `learning_rate_end`, `start_warmup_step` and the like are used as they stand."""

    benchmark: str
    mode: str
    nodes: int
    ranks_per_node: int
    device: str
    parallelism: str
    precision: str
    threads: int
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocab: int
    scaling: str
    batch_per_rank: int
    steps: int
    warmup_steps: int
    max_steps: int
    eval_every: int
    eval_samples: int
    target: float
    learning_rate: float
    learning_rate_end: float
    learning_rate_warmup_steps: int
    beta_1: float
    beta_2: float
    epsilon: float
    weight_decay: float
    gradient_clip_norm: float | None
    seed: int
    checkpoint_dir: str | None
    create_checkpoint_dir: bool
    output_dir: str

    @property
    def ranks(self) -> int:
        """How many processes take part."""
        return self.nodes * self.ranks_per_node

    @property
    def global_batch(self) -> int:
        """Sequences in one step over all ranks."""
        return self.batch_per_rank * self.ranks

    @property
    def total_steps(self) -> int:
        """The most steps that the run takes: the learning rate's schedule ends there."""
        return self.warmup_steps + self.steps if self.mode == "fixed_steps" else self.max_steps

    @property
    def optimizer(self) -> str:
        """Adam with decoupled weight decay, as the GPT-3 reference; LAMB, as the BERT reference."""
        return "adam" if self.benchmark == "gpt3" else "lamb"

    @property
    def lower_is_better(self) -> bool:
        """Whether the target is an upper bound: log perplexity is, masked-token accuracy isn't."""
        return self.benchmark == "gpt3"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    learning_rate: float
    learning_rate_end: float
    beta_2: float
    epsilon: float
    weight_decay: float
    gradient_clip_norm: float | None
    target: float
    layers: int
    hidden: int
    heads: int


_DEFAULTS = {
    # Betas, epsilon, weight decay and clipping are those of the MLPerf references; rates suit the small model.
    "gpt3": _Defaults(
        learning_rate=3e-3, learning_rate_end=3e-4, beta_2=0.95, epsilon=1e-8, weight_decay=0.1,
        gradient_clip_norm=1.0, target=2.2, layers=2, hidden=128, heads=4,
    ),
    "bert": _Defaults(
        learning_rate=1e-2, learning_rate_end=0.0, beta_2=0.999, epsilon=1e-6, weight_decay=0.01,
        gradient_clip_norm=None, target=0.72, layers=2, hidden=128, heads=4,
    ),
}  # fmt: skip


def parse(argv: Sequence[str] | None = None) -> Config:
    """Read the command line. Ends the process with status 2 and a message that names the argument when it is wrong."""
    parser = _parser()
    given = parser.parse_args(argv)
    defaults = _DEFAULTS[given.benchmark]
    values = {name: value for name, value in vars(given).items() if name != "global_batch"}
    for field in dataclasses.fields(_Defaults):
        if values.get(field.name) is None:
            values[field.name] = getattr(defaults, field.name)
    values["gradient_clip_norm"] = defaults.gradient_clip_norm
    values["beta_1"] = 0.9
    ranks = given.nodes * given.ranks_per_node
    if given.scaling == "strong":
        if given.global_batch is None or given.global_batch % ranks or given.global_batch < ranks:
            parser.error(f"--global-batch {given.global_batch}: strong scaling divides it evenly by {ranks} ranks")
        values["batch_per_rank"] = given.global_batch // ranks
    if given.learning_rate_warmup_steps is None:
        total = given.warmup_steps + given.steps if given.mode == "fixed_steps" else given.max_steps
        values["learning_rate_warmup_steps"] = max(1, min(20, total // 10))
    config = Config(**values)
    problem = _problem(config)
    if problem:
        parser.error(problem)
    return config


def _problem(config: Config) -> str | None:
    least_one = (
        "nodes", "ranks_per_node", "threads", "layers", "hidden", "heads", "batch_per_rank", "steps", "max_steps",
        "eval_every", "learning_rate_warmup_steps",
    )  # fmt: skip
    for name in least_one:
        if getattr(config, name) < 1:
            return f"--{name.replace('_', '-')} must be at least 1, not {getattr(config, name)}"
    if config.hidden % config.heads:
        return f"--hidden {config.hidden} must be a multiple of --heads {config.heads}"
    if config.sequence < 8 or config.vocab < 32:
        return f"--sequence must be at least 8 and --vocab at least 32, not {config.sequence} and {config.vocab}"
    if config.eval_samples < config.ranks:
        return f"--eval-samples {config.eval_samples} must be at least the number of ranks, {config.ranks}"
    if config.warmup_steps < 0 or config.learning_rate <= 0:
        return "--warmup-steps can't be negative, and --learning-rate must be above 0"
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plumbline_bench.trainer",
        description="Train a GPT-3 or BERT proxy on synthetic text, and log it as MLLOG.",
        epilog="Under torchrun or mpirun it joins their ranks; otherwise it starts nodes × ranks-per-node processes "
        "on this machine, over loopback.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--benchmark", choices=("gpt3", "bert"), required=True)
    add("--mode", choices=("fixed_steps", "to_target"), default="fixed_steps")
    add("--nodes", type=int, default=1)
    add("--ranks-per-node", type=int, default=1)
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--parallelism", choices=("ddp", "fsdp"), default="ddp")
    add("--precision", choices=("fp32", "bf16"), default="fp32", help="of the matrix products; weights stay in fp32")
    add("--threads", type=int, default=1, help="of each process on CPU")
    add("--layers", type=int)
    add("--hidden", type=int)
    add("--heads", type=int)
    add("--sequence", type=int, default=128, help="tokens in a sequence")
    add("--vocab", type=int, default=512)
    add("--scaling", choices=("weak", "strong"), default="weak", help="what stays the same when nodes are added")
    add("--batch-per-rank", type=int, default=8, help="sequences a step and rank, in weak scaling")
    add("--global-batch", type=int, help="sequences a step over all ranks, in strong scaling")
    add("--steps", type=int, default=20, help="steps that are measured, in fixed_steps")
    add("--warmup-steps", type=int, default=3, help="steps before those")
    add("--max-steps", type=int, default=1000, help="where to_target gives up")
    add("--eval-every", type=int, default=25, help="steps between evaluations, in to_target")
    add("--eval-samples", type=int, default=128, help="sequences of an evaluation")
    add("--target", type=float, help="log perplexity to fall to (gpt3), masked-token accuracy to rise to (bert)")
    add("--learning-rate", type=float)
    add("--learning-rate-warmup-steps", type=int)
    add("--seed", type=int, default=1)
    add("--checkpoint-dir", help="directory under test: write a checkpoint there, restore and compare it, remove it")
    add("--create-checkpoint-dir", action="store_true", help="make that directory; otherwise it must be there")
    add("--output-dir", default=".", help="where mllog.txt, summary.json and compliance.json go")
    return parser
