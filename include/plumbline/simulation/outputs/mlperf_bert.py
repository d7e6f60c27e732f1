"""mlperf_bert: see pretraining.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from plumbline.benchmarks.mlperf_bert import TRAINING
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night
from plumbline.simulation.outputs import pretraining


def files(night: Night, specs: Sequence[LaunchSpec]) -> Iterator[Mapping[str, str]]:
    """Print stdout of each launch."""
    return pretraining.files(TRAINING, night, specs)
