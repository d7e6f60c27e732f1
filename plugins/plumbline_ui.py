"""The one file that Airflow's plugin loader reads: links from a DAG run to its report and its MLflow run.

It also imports the operators, so that the processes which Airflow forks for tasks find them loaded: without it every
task start pays the seconds that importing the Kubernetes provider takes. A plugin is read when a component starts.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

import plumbline_airflow.pipeline  # noqa: F401 - loads the operators before the fork


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """Serve the pages below /plumbline; only the API server ever imports them."""
    from plumbline_airflow.pages import app  # noqa: PLC0415

    await app(scope, receive, send)


class PlumblinePlugin(AirflowPlugin):
    """Adds two tabs to every DAG run's page; a view without `url_route` would not show there."""

    name = "plumbline"
    fastapi_apps = [{"app": pages, "url_prefix": "/plumbline", "name": "plumbline"}]
    external_views = [
        {
            "name": "Report",
            "href": "plumbline/report?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "plumbline-report",
        },
        {
            "name": "MLflow run",
            "href": "plumbline/mlflow?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "plumbline-mlflow",
        },
    ]
