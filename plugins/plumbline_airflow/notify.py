"""Who is told, and how: by whichever connections exist. Without one nothing is sent, and the log says so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


def send_verdict(run_dir: Path) -> None:
    """Send the summary of a judged run."""
    log.info("no channel yet for %s", run_dir)


def stage_failed(context: Any) -> None:
    """Send word that a stage broke; the `on_failure_callback` of the task of that name."""
    log.info("no channel yet for %s", context["ti"])


def deadline_missed(**context: Any) -> None:
    """Send word that a nightly run is late."""
    log.info("no channel yet: %s", context)
