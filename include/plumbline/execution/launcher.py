"""Launchers: how the launches of a batch are started on a kind of cluster. A launcher is a few lines."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Protocol, cast

from plumbline.clusters.inventory import Inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.model import LaunchSpec, Outcome

Progress = Callable[[str], None]

ANSWERS = frozenset({Outcome.EXITED, Outcome.SIGNALLED, Outcome.TIMEOUT, Outcome.NOT_STARTED})
"""Outcomes that answer a launch. Only the others, which are the infrastructure's doing, may be tried again."""

_MODULES = {
    "kubernetes": "plumbline.execution.kubernetes",
    "local": "plumbline.execution.local",
    "simulated": "plumbline.simulation.launcher",
}


class Launcher(Protocol):
    """A module that knows one kind of cluster."""

    def inventory(self, profile: ClusterProfile, today: date) -> Inventory:
        """Give the nodes, those that cannot be measured with their reason. Raises LaunchError, ConfigError."""

    def launch(self, profile: ClusterProfile, specs: Sequence[LaunchSpec], evidence: Path, progress: Progress) -> None:
        """Run the specs and leave a record for each that came back; those that have an answer already are left.

        Raises LaunchError when the infrastructure fails as a whole.
        """


def launcher(profile: ClusterProfile) -> Launcher:
    """Give the launcher of a profile."""
    return cast(Launcher, importlib.import_module(_MODULES[profile.launcher]))
