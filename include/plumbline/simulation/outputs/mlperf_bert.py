"""mlperf_bert: see pretraining.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks.mlperf_bert import TRAINING
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night, Nights, Rung
from plumbline.simulation.outputs import pretraining

if TYPE_CHECKING:
    from numpy.typing import NDArray


def files(night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int]) -> Iterator[Mapping[str, str]]:
    """Print stdout of each launch."""
    return pretraining.files(TRAINING, night, specs, rows)


def values(nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give the rows of each launch."""
    return pretraining.values(TRAINING, nights, rung)
