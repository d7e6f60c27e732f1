"""GPT-3's architecture in training: decoder, Adam, cosine learning rate, at the size that the profile gives.

The measure is log perplexity on synthetic text whose entropy is known: a target above it can be reached.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from plumbline.benchmarks import _pretraining_results, pretraining
from plumbline.benchmarks.benchmark import Command, Expected, Measured, Placement
from plumbline.model import Contends, LaunchSpec, Params, RunRecord, Scope

NAME = "mlperf_gpt3"
VERSION = "1"
TITLE = "GPT-3 training, a proxy in MLPerf's manner"
SCOPE = Scope.GROUP
CONTENDS = Contends.FABRIC
READER = "mllog"
COVERS = "the whole: accelerators under a real load, the fabric between them, the storage that takes checkpoints"

TRAINING = pretraining.Training(
    name="gpt3",
    rate="tokens_per_second_per_rank",
    rate_unit="tokens/s",
    lower_is_better=True,
    accuracy_title="Log perplexity of the last evaluation",
    ruleset="4.1.0",
    expected_findings=frozenset(
        # The rules fix what belongs to 175 billion parameters on C4: sequences of 2,048, a learning rate of 2e-5 or
        # 3e-5, an initial checkpoint, a log perplexity of 2.6 to 2.69.
        ("max_sequence_length", "opt_base_learning_rate", "init_checkpoint_step", "eval_accuracy")
    ),
)
INDICATORS = pretraining.indicators(TRAINING)
PARAMETERS = pretraining.parameters(
    target=2.2,
    target_meaning="log perplexity to fall to, in nat; the text itself has an entropy of 1.816",
    learning_rate=3e-3,
)


def command(placement: Placement, params: Params) -> Command:
    """Write the command of one group. Raises ConfigError for sizes that don't go together."""
    return pretraining.command(TRAINING, placement, params)


def expected(spec: LaunchSpec) -> Iterable[Expected]:
    """Name every row that this launch must yield."""
    return pretraining.expected(TRAINING, spec)


def measure(spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read the launch's log. Raises OutputError when a file is unreadable or absent."""
    return _pretraining_results.measure(TRAINING, spec, record, raw_dir)
