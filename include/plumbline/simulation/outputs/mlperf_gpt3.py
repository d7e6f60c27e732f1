"""mlperf_gpt3: see pretraining.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks.mlperf_gpt3 import TRAINING
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night, Nights, Rung
from plumbline.simulation.outputs import Printed, pretraining

if TYPE_CHECKING:
    from numpy.typing import NDArray


def files(night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int], begin: datetime) -> Iterator[Printed]:
    """Print stdout of each launch."""
    return pretraining.files(TRAINING, night, specs, rows, begin)


def works_s(spec: LaunchSpec) -> float:
    """Give how long all steps take."""
    return pretraining.works_s(spec)


def values(nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give the rows of each launch."""
    return pretraining.values(TRAINING, nights, rung)
