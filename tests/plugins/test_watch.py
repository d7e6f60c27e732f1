"""The dead man's switch: a night without a finished run fails, whatever Airflow believes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.run_builder import build_run

from plumbline_airflow.watch import finished_lately

ASKED = {"cluster": "local", "suite": "nightly"}


def watch(max_age: str = "26h", **conf: str) -> None:
    finished_lately.function(max_age, params={**ASKED, **conf}, dag=SimpleNamespace(params=ASKED),
                             dag_run=SimpleNamespace(conf=conf))  # fmt: skip


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    return tmp_path


def test_a_night_that_was_measured_is_fine(results: Path) -> None:
    build_run(results, when=datetime.now(UTC) - timedelta(hours=6))
    watch()


def test_an_old_run_is_not_last_night(results: Path) -> None:
    build_run(results, when=datetime.now(UTC) - timedelta(hours=30))
    with pytest.raises(AirflowFailException, match="older than 26h"):
        watch()


def test_no_run_at_all_is_told(results: Path) -> None:
    with pytest.raises(AirflowFailException, match="local/nightly: no finished run at all"):
        watch()


def test_an_unfinished_run_does_not_count(results: Path) -> None:
    run = build_run(results, when=datetime.now(UTC) - timedelta(hours=6))
    (run.evidence / "manifest.json").unlink()
    with pytest.raises(AirflowFailException, match="no finished run"):
        watch()


def test_an_unknown_key_is_refused(results: Path) -> None:
    with pytest.raises(AirflowFailException, match="no parameter 'clustr'; did you mean 'cluster'"):
        watch(clustr="x")


def test_an_unknown_cluster_is_refused_by_name(results: Path) -> None:
    with pytest.raises(AirflowFailException, match="no cluster profile 'lcal'"):
        watch(cluster="lcal")
