"""The task that logs to MLflow links to the run there, and costs nothing else when MLflow is down."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from tests.run_builder import build_run

from plumbline import stages
from plumbline.errors import TrackingError
from plumbline_airflow.track import MlflowRunLink, TrackOperator


class TaskInstance(SimpleNamespace):
    """What the operator asks of a task instance."""

    def xcom_pull(self, task_ids: str, key: str) -> str | None:
        return self.run_dir

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def context(run_dir: Path | None) -> Any:
    return {"ti": TaskInstance(run_dir=str(run_dir) if run_dir else None, pushed={})}


def test_the_task_links_to_the_run_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build_run(tmp_path)
    known = {"run_id": "abc", "experiment_id": "7", "experiment": "e", "tracking_uri": "http://mlflow.example.org"}
    run.write_derived_json("mlflow.json", known)
    monkeypatch.setattr(stages, "track", lambda run_dir: "abc")
    task, asked = TrackOperator(task_id="track"), context(run.path)
    task.execute(asked)
    assert asked["ti"].pushed == {"mlflow_run_id": "abc"}  # an id, no number
    [link] = task.operator_extra_links
    assert link.get_link(task, ti_key=None) == "http://mlflow.example.org/#/experiments/7/runs/abc"


def test_without_an_address_there_is_no_link() -> None:
    assert MlflowRunLink().get_link(TrackOperator(task_id="track"), ti_key=None) == ""


def test_mlflow_being_down_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(run_dir: Path) -> str:
        raise TrackingError("MLflow at http://mlflow: no answer")

    monkeypatch.setattr(stages, "track", down)
    with pytest.raises(AirflowException, match="no answer") as caught:
        TrackOperator(task_id="track").execute(context(build_run(tmp_path).path))
    assert not isinstance(caught.value, AirflowFailException)


def test_a_run_without_a_verdict_is_not_logged(tmp_path: Path) -> None:
    run = build_run(tmp_path)
    (run.derived / "verdict.json").unlink()
    for run_dir in (run.path, None):
        with pytest.raises(AirflowSkipException):
            TrackOperator(task_id="track").execute(context(run_dir))
