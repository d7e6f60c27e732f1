"""Where the run of a DAG run is: the one thing that tasks hand to each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol as TaskInstance

RUN_DIR = "run_dir"
"""Key of the XCom of `prepare` that names the run directory."""


def run_directory(ti: TaskInstance) -> Path | None:
    """Give the run directory of this DAG run, or None when none was prepared."""
    text = ti.xcom_pull(task_ids="prepare", key=RUN_DIR)
    return Path(text) if text else None


def judged_directory(ti: TaskInstance) -> Path | None:
    """Give the run directory, or None when it has no verdict."""
    run_dir = run_directory(ti)
    return run_dir if run_dir and (run_dir / "derived" / "verdict.json").is_file() else None
