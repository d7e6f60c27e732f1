"""What the two MLPerf-style trainings share: parameters, command, rows. The program is plumbline_bench.trainer.

Two modes. `fixed_steps` measures the cluster night by night: step time repeats to a fraction of a percent, time to
train doesn't. `to_target` is a run as MLPerf knows it, run_start to run_stop. Whatever the size, the data is synthetic
and the result a proxy, never an MLPerf result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plumbline.benchmarks.benchmark import Command, Expected, Parameter, Placement
from plumbline.errors import ConfigError
from plumbline.model import Better, Device, Indicator, LaunchSpec, Params, Scalar

OUTPUTS = ("stdout", "mllog.txt", "summary.json", "compliance.json")
COMPLIANCE_FILE = "compliance.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One of the trainings. `accuracy` is its MLLOG measure of quality."""

    name: str
    """As the trainer and MLLOG call it: gpt3, bert."""
    rate: str
    """The indicator that is its rate per rank: tokens or sequences a second."""
    rate_unit: str
    lower_is_better: bool
    accuracy_title: str
    ruleset: str
    expected_findings: frozenset[str]
    """Keys of the rules that a proxy can't keep."""


def parameters(target: float, target_meaning: str, learning_rate: float) -> Mapping[str, Parameter]:
    """Give the parameters; the defaults suit a laptop, profiles of clusters set their own sizes."""
    return {
        "mode": Parameter(
            default="fixed_steps", meaning="time a number of steps, or train to the target",
            choices=("fixed_steps", "to_target"),
        ),
        "steps": Parameter(default=20, meaning="steps that are timed in fixed_steps", least=20, most=1_000_000),
        "warmup_steps": Parameter(default=3, meaning="steps before the timed ones", least=1, most=1_000_000),
        "layers": Parameter(default=2, meaning="transformer blocks", least=1),
        "hidden": Parameter(default=128, meaning="width of the model", least=8),
        "heads": Parameter(default=4, meaning="attention heads; hidden must be a multiple", least=1),
        "sequence": Parameter(default=128, meaning="tokens in a sequence", least=8),
        "vocab": Parameter(default=512, meaning="tokens in the vocabulary", least=32),
        "scaling": Parameter(
            default="weak", meaning="weak: batch_per_rank stays; strong: global_batch stays", choices=("weak", "strong")
        ),
        "batch_per_rank": Parameter(default=8, meaning="sequences a step and rank, in weak scaling", least=1),
        "global_batch": Parameter(default=32, meaning="sequences a step over all ranks, in strong scaling", least=1),
        "parallelism": Parameter(
            default="ddp", meaning="ddp replicates the model, fsdp shards it", choices=("ddp", "fsdp")
        ),
        "precision": Parameter(default="fp32", meaning="of the matrix products", choices=("fp32", "bf16")),
        "learning_rate": Parameter(default=learning_rate, meaning="highest learning rate", least=0),
        "target": Parameter(default=target, meaning=target_meaning, least=0),
        "max_steps": Parameter(default=600, meaning="where to_target gives up", least=1, most=10_000_000),
        "eval_every": Parameter(default=25, meaning="steps between evaluations in to_target", least=1),
        "eval_samples": Parameter(default=128, meaning="sequences of an evaluation", least=1),
        "seed": Parameter(default=1, meaning="of weights and data; the same every night, so that losses compare"),
        "checkpoint": Parameter(default=True, meaning="write a checkpoint to the storage under test, restore it"),
        "threads": Parameter(default=1, meaning="threads of a rank on CPU", least=1, most=4096),
        "timeout_s": Parameter(default=1800.0, meaning="seconds that the launch may take", least=1),
    }  # fmt: skip


def indicators(training: Training) -> tuple[Indicator, ...]:
    """Give the indicators of a training."""
    log = "MLLOG of plumbline_bench.trainer"
    counted = training.rate_unit.split("/", maxsplit=1)[0]
    quality = "nat" if training.lower_is_better else "1"
    return (
        _indicator("step_time", "s", Better.LOWER, "Step time, median",
                   "median over the timed steps, each from batch to updated weights", log, headline=True),
        _indicator("step_time_spread", "1", Better.LOWER, "Step time, spread",
                   "(95th − 5th percentile) ÷ median over the timed steps", log, judged=False),
        _indicator(training.rate, training.rate_unit, Better.HIGHER, f"Training rate per accelerator, {counted}",
                   f"{counted} of one rank's batch ÷ median step time", log, headline=True),
        _indicator("throughput", training.rate_unit, Better.HIGHER, f"Training rate of the group, {counted}",
                   f"{counted} of the global batch ÷ median step time", log, judged=False),
        _indicator("model_flops", "GFLOPS", Better.HIGHER, "Model FLOPS per accelerator",
                   "72·L·h²·(1 + s/(6h)) + 6·p·(h·V + t·h²) a token × tokens a second of a rank; no recomputation",
                   "Narayanan et al. 2021, arXiv:2104.04473, equation 3", judged=False),
        _indicator("final_loss", "nat", Better.LOWER, "Training loss at the end",
                   "mean of the last 5 steps' losses, each the mean over ranks", log),
        _indicator("loss_drop", "nat", Better.HIGHER, "Fall of the training loss",
                   "loss of the first step − final_loss; 0 or less is a failure to learn", log,
                   valid_lower=None, judged=False),
        _indicator("final_accuracy", quality, Better.LOWER if training.lower_is_better else Better.HIGHER,
                   training.accuracy_title, "last eval_accuracy", log, judged=False),
        _indicator("checkpoint_write_time", "s", Better.LOWER, "Checkpoint, time to write",
                   "temporary file, fsync, rename, fsync of the directory", log),
        _indicator("checkpoint_read_time", "s", Better.LOWER, "Checkpoint, time to read back",
                   "rank 0's time to load it from the storage under test", log, judged=False),
        _indicator("checkpoint_restored", "1", Better.HIGHER, "Checkpoint restored bit by bit",
                   "1 when every rank read back what it had in memory, else 0", log, judged=False, display="{:.0f}",
                   valid_upper=1.0),
        _indicator("time_to_train", "s", Better.LOWER, "Time to the target (proxy)",
                   "run_stop − run_start of a run that says success", log, headline=True),
    )  # fmt: skip


def _indicator(name: str, unit: str, better: Better, title: str, formula: str, source: str, **more: Any) -> Indicator:
    return Indicator(name=name, unit=unit, better=better, title=title, formula=formula, source=source, **more)


# ---------------------------------------------------------------------------------------------------------------
# The command


def command(training: Training, placement: Placement, params: Params) -> Command:
    """Write the command of one group. Raises ConfigError for sizes that don't go together."""
    _check(training, placement, params)
    arguments = _arguments(training, placement, params)
    several_hosts = placement.launcher != "local" and len(placement.nodes) > 1
    program = ["-m", "plumbline_bench.trainer"]
    if several_hosts:
        program = ["-m", "plumbline_bench.trainer.hosts", "--hosts", ",".join(placement.nodes)]
        program += ["--per-node", str(placement.accelerators_per_node), "--"]
    return Command(
        argv=(placement.python, *program, *arguments),
        env={"PYTHONPATH": str(placement.programs)},
        timeout_s=float(str(params["timeout_s"])),
        outputs=OUTPUTS,
        expect={"runs": 1, "steps": params["steps"]} if params["mode"] == "fixed_steps" else {"runs": 1},
    )


_PASSED_ON = (
    "mode", "steps", "warmup_steps", "layers", "hidden", "heads", "sequence", "vocab", "scaling", "parallelism",
    "precision", "learning_rate", "max_steps", "eval_every", "eval_samples", "seed", "threads",
)  # fmt: skip


def _arguments(training: Training, placement: Placement, params: Params) -> list[str]:
    arguments = ["--benchmark", training.name, "--nodes", str(placement.node_count)]
    arguments += ["--ranks-per-node", str(placement.accelerators_per_node)]
    arguments += ["--device", "cuda" if placement.device is Device.GPU else "cpu"]
    for name in _PASSED_ON:
        arguments += [f"--{name.replace('_', '-')}", str(params[name])]
    batch = "batch_per_rank" if params["scaling"] == "weak" else "global_batch"
    arguments += [f"--{batch.replace('_', '-')}", str(params[batch])]
    if params["mode"] == "to_target":
        arguments += ["--target", str(params["target"])]
    if params["checkpoint"]:
        arguments += ["--checkpoint-dir", placement.storage_dir]
        if placement.launcher == "local":
            arguments.append("--create-checkpoint-dir")
    return arguments


def _check(training: Training, placement: Placement, params: Params) -> None:
    where = f"mlperf_{training.name}"
    hidden, heads = _whole(params["hidden"]), _whole(params["heads"])
    if hidden % heads:
        raise ConfigError(f"{where}.hidden must be a multiple of heads {heads}, not {hidden}")
    if params["scaling"] == "strong" and _whole(params["global_batch"]) % placement.ranks:
        raise ConfigError(
            f"{where}.global_batch {params['global_batch']} can't be divided evenly by {placement.ranks} ranks; "
            f"with scaling: strong every rung must divide it"
        )
    if _whole(params["eval_samples"]) < placement.ranks:
        raise ConfigError(f"{where}.eval_samples must be at least {placement.ranks}, one for each rank")


def _whole(value: Scalar) -> int:
    return int(str(value))


# ---------------------------------------------------------------------------------------------------------------
# The rows


def expected(training: Training, spec: LaunchSpec) -> Iterable[Expected]:
    """Name every row that a launch must yield."""
    names = ["step_time", "step_time_spread", training.rate, "throughput", "model_flops", "final_loss", "loss_drop"]
    names.append("final_accuracy")
    if spec.params["checkpoint"]:
        names += ["checkpoint_write_time", "checkpoint_read_time", "checkpoint_restored"]
    if spec.params["mode"] == "to_target":
        names.append("time_to_train")
    return [Expected(indicator=name, params=row_params(spec.params)) for name in names]


def row_params(params: Params) -> dict[str, Scalar]:
    """Give the coordinates of the rows: what makes two numbers comparable."""
    names = ["mode", "layers", "hidden", "heads", "sequence", "vocab", "scaling", "parallelism", "precision"]
    names.append("batch_per_rank" if params["scaling"] == "weak" else "global_batch")
    if params["mode"] == "to_target":
        names.append("target")
    return {name: params[name] for name in names}


def global_batch(params: Params, ranks: int) -> int:
    """Give the sequences of a step over all ranks."""
    if params["scaling"] == "strong":
        return _whole(params["global_batch"])
    return _whole(params["batch_per_rank"]) * ranks
