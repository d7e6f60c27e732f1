"""One Airflow for the whole test session, apart from the checkout's own: its environment is set before any import."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from deployment import local_airflow

# A slow machine is no failure, and the same commit gives the same result.
hypothesis.settings.register_profile("plumbline", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("plumbline")

AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="plumbline-tests-"))
for name in [name for name in os.environ if name.startswith(("AIRFLOW", "PLUMBLINE_", "MLFLOW_"))]:
    if name not in ("PLUMBLINE_CASES", "PLUMBLINE_SCREENSHOTS"):
        del os.environ[name]
os.environ.pop("COLUMNS", None)  # what is printed is as wide as without a terminal, whoever starts the tests
os.environ["AIRFLOW_HOME"] = str(AIRFLOW_HOME)
os.environ.update(local_airflow.environment(local_airflow.ONE_SHOT))
os.environ.update(local_airflow.private(AIRFLOW_HOME))
# Tests say themselves where MLflow and results are; what they forget must not end up in the checkout.
os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{AIRFLOW_HOME / 'mlflow.db'}"
os.environ["PLUMBLINE_RESULTS"] = str(AIRFLOW_HOME / "results")


LONGEST = (
    "validation/test_mutations.py",
    "kubernetes/test_gang.py",
    "kubernetes/test_gang_launcher.py",
    "end_to_end/test_services.py",
)
"""A file runs in one process: those that take minutes begin first, or one process waits for the other at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the order within a file stays."""

    def rank(item: pytest.Item) -> int:
        name = item.path.as_posix()
        return next((place for place, long in enumerate(LONGEST) if name.endswith(long)), len(LONGEST))

    items.sort(key=rank)


@pytest.fixture(scope="session")
def airflow_database() -> Path:
    """Give the AIRFLOW_HOME of an Airflow whose database is migrated and has the settings of airflow_settings.yaml."""
    local_airflow.prepare_database(local_airflow.ONE_SHOT, AIRFLOW_HOME / "migrate.log")
    local_airflow.load_settings(local_airflow.ONE_SHOT)
    return AIRFLOW_HOME


@pytest.fixture(scope="session", autouse=True)
def _temporary_airflow_home() -> Iterator[None]:
    yield
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)
