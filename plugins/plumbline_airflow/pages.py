"""Two pages of the API server: a DAG run's report, and its MLflow run.

Airflow does not ask the callers of a plugin's pages who they are, so each page here asks for the same right as the DAG
run itself. Only the file derived/report.html of a run directory is ever served.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.xcom import XComModel
from fastapi import Depends, FastAPI, Query
from fastapi.responses import FileResponse, HTMLResponse, Response
from sqlalchemy import select

from plumbline.tracking.run_directory import RUN_ID, RunDirectory
from plumbline_airflow.run import RUN_DIR

Text = Annotated[str, Query()]
MAY_READ_RUN = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))
# The report is made of what programs printed: it may run its own scripts, and nothing in the name of Airflow's user.
ISOLATED = {
    "Content-Security-Policy": "sandbox allow-scripts allow-popups allow-downloads",
    "Cache-Control": "no-store",
}

app = FastAPI(title="Plumbline", openapi_url=None)


@app.get("/report", dependencies=[MAY_READ_RUN])
def report(dag_id: Text, run_id: Text, session: SessionDep) -> Response:
    """Give the report of a DAG run."""
    run = _run(dag_id, run_id, session)
    if run is None:
        return _note("This DAG run has no run directory: nothing was prepared, or it is gone.", 404)
    path = run.derived / "report.html"
    if not path.is_file():
        return _note(f"Run {run.run_id} has no report yet.", 404)
    return FileResponse(path, media_type="text/html", headers=ISOLATED)


@app.get("/mlflow", dependencies=[MAY_READ_RUN])
def mlflow(dag_id: Text, run_id: Text, session: SessionDep) -> Response:
    """Show the MLflow run of a DAG run: its address, and its page where MLflow lets itself be framed."""
    from plumbline.tracking.mlflow_tracking import run_url  # noqa: PLC0415

    run = _run(dag_id, run_id, session)
    if run is None:
        return _note("This DAG run has no run directory: nothing was prepared, or it is gone.", 404)
    address = run_url(run)
    if address is None:
        return _note(
            f"Run {run.run_id} is not in MLflow yet, or no MLflow server is known to show it: set MLFLOW_TRACKING_URI "
            f"or PLUMBLINE_MLFLOW_UI. `plumbline track {run.run_id}` logs it.",
            404,
        )
    shown = html.escape(address, quote=True)
    return HTMLResponse(
        "<!doctype html><title>MLflow run</title><style>html,body{height:100%;margin:0;font:14px system-ui}"
        "body{display:flex;flex-direction:column}p{margin:6px 10px}iframe{flex:1;border:0}</style>"
        f"<p>MLflow run: <a href='{shown}'>{shown}</a> (also a button of the task <i>track</i>)</p>"
        f"<iframe title='MLflow run' src='{shown}'></iframe>",
        headers={"Cache-Control": "no-store"},
    )


def _run(dag_id: str, run_id: str, session: SessionDep) -> RunDirectory | None:
    found = session.scalar(
        select(XComModel.value).where(
            XComModel.dag_id == dag_id,
            XComModel.run_id == run_id,
            XComModel.task_id == "prepare",
            XComModel.key == RUN_DIR,
        )
    )
    if not isinstance(found, str):
        return None
    run = RunDirectory(Path(found.strip('"')))
    return run if RUN_ID.match(run.run_id) and run.evidence.is_dir() else None


def _note(text: str, status: int) -> HTMLResponse:
    page = (
        f"<!doctype html><title>Plumbline</title><p style='font: 16px system-ui; margin: 2em'>{html.escape(text)}</p>"
    )
    return HTMLResponse(page, status_code=status, headers=ISOLATED)
