"""The launcher of this machine: each launch is a child process, one after the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from plumbline.clusters.inventory import Inventory, static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError, LaunchError
from plumbline.execution.launcher import ANSWERS, Progress
from plumbline.execution.run_one import run
from plumbline.model import LaunchSpec


def inventory(profile: ClusterProfile, today: date) -> Inventory:
    """Give the emulated nodes. Raises ConfigError when the benchmark environment is missing."""
    python = profile.path(profile.python)
    if not python.exists():
        raise ConfigError(f"profile {profile.name}: python {python} does not exist; `make bench-env` builds it")
    return static_inventory(profile, today)


def launch(profile: ClusterProfile, specs: Sequence[LaunchSpec], evidence: Path, progress: Progress) -> None:
    """Run the specs in order in child processes of this one. Raises LaunchError when evidence cannot be written."""
    del profile
    answered = answered_launches(evidence)
    for number, spec in enumerate(specs, start=1):
        name = f"{spec.launch_id} ({number} of {len(specs)})"
        if spec.launch_id in answered:
            progress(f"{name}: has a record already")
            continue
        progress(f"{name}: running, at most {spec.timeout_s:.0f} s")
        try:
            record = run(spec, evidence)
        except OSError as error:
            raise LaunchError(f"{spec.launch_id}: the record cannot be written: {error}") from error
        progress(f"{name}: {record.outcome.value} after {record.duration_s:.1f} s{_reason(record.reason)}")


def _reason(text: str) -> str:
    return f" ({text})" if text else ""


def answered_launches(evidence: Path) -> set[str]:
    """Give the launch ids that have a record which answers them; a damaged record answers nothing."""
    found = set()
    for path in (evidence / "records").glob("*.json"):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["outcome"] in ANSWERS:
                found.add(data["launch_id"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found
