"""A simulated run as `plumbline run` makes one, up to its seal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from plumbline import stages
from plumbline.suites.suite import parse_settings
from plumbline.tracking.run_directory import RunDirectory


def simulate(results: Path, cluster: str, settings: Sequence[str]) -> RunDirectory:
    """Measure a simulated cluster by the nightly suite with these settings, and seal the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_RESULTS", str(results))
        run = stages.prepare(cluster, "nightly", parse_settings(settings), trigger="test", holder_pid=os.getpid())
        for batch_id in stages.batch_ids(run):
            stages.launch_batch(run.path, batch_id, lambda text: None)
        stages.seal(run.path)
    return run
