"""BERT's architecture in training: encoder, masked tokens, LAMB, at the size that the profile gives.

The measure is masked-token accuracy on synthetic text of which the best possible accuracy is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from plumbline.benchmarks import _pretraining_results, pretraining
from plumbline.benchmarks.benchmark import Command, Expected, Measured, Placement
from plumbline.model import Contends, LaunchSpec, Params, RunRecord, Scope

NAME = "mlperf_bert"
VERSION = "1"
TITLE = "BERT training, a proxy in MLPerf's manner"
SCOPE = Scope.GROUP
CONTENDS = Contends.FABRIC
READER = "mllog"
COVERS = "the whole, with short steps: latency of fabric and host weigh more than in GPT-3"

TRAINING = pretraining.Training(
    name="bert",
    rate="sequences_per_second_per_rank",
    rate_unit="samples/s",
    lower_is_better=False,
    accuracy_title="Masked-token accuracy of the last evaluation",
    ruleset="5.0.0",
    expected_findings=frozenset(),
)
INDICATORS = pretraining.indicators(TRAINING)
PARAMETERS = pretraining.parameters(
    target=0.72,
    target_meaning="masked-token accuracy to rise to; the text allows 0.85",
    learning_rate=1e-2,
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
