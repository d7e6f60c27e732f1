"""TrackOperator: log a run to MLflow, and link the task to the run's page there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowSkipException

from plumbline_airflow.failures import errors_explained
from plumbline_airflow.progress import say
from plumbline_airflow.run import judged_directory

if TYPE_CHECKING:
    from airflow.sdk import Context

MLFLOW_RUN = "mlflow_run_id"
"""Key of the XCom that holds the id of the MLflow run."""


class MlflowRunLink(BaseOperatorLink):
    """A button on the task's page; it leads to MLflow in a tab of its own, whatever MLflow says to frames."""

    name = "MLflow run"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Give the address that the operator found; empty where no server is known to show the run."""
        return getattr(operator, "address", None) or ""


class TrackOperator(BaseOperator):
    """Log the judged run to MLflow, once however often this runs. An MLflow that is down costs this task only."""

    operator_extra_links = (MlflowRunLink(),)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.address: str | None = None

    def execute(self, context: Context) -> None:
        """Log, and remember the address. Raises AirflowException (try again) when MLflow is unreachable."""
        from plumbline import stages  # noqa: PLC0415 - not needed to parse a DAG
        from plumbline.tracking.mlflow_tracking import run_url  # noqa: PLC0415
        from plumbline.tracking.run_directory import RunDirectory  # noqa: PLC0415

        run_dir = judged_directory(context["ti"])
        if run_dir is None:
            raise AirflowSkipException("there is no verdict to log")
        say("track")
        with errors_explained():
            context["ti"].xcom_push(MLFLOW_RUN, stages.track(run_dir))
            self.address = run_url(RunDirectory.open(run_dir))
