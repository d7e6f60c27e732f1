"""The dead man's switch inside Airflow: has the night been measured?"""

from __future__ import annotations

import contextlib
import io
from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException

from plumbline_airflow import notify
from plumbline_airflow.failures import errors_explained
from plumbline_airflow.pipeline import STAGE_LIMIT
from plumbline_airflow.request import read_request


@task(on_failure_callback=notify.night_missing, execution_timeout=STAGE_LIMIT)
def finished_lately(max_age: str, *, params: Any, dag: Any, dag_run: Any) -> None:
    """Fail, and tell people, unless the newest finished and judged run is younger than `max_age` (such as 26h)."""
    from plumbline.cli import build_parser  # noqa: PLC0415 - not needed to parse a DAG

    request = read_request(params, dag_run.conf, dag.params)
    said = io.StringIO()
    arguments = ["status", "--cluster", request.cluster, "--suite", request.suite, "--max-age", max_age]
    chosen = build_parser().parse_args(arguments)
    with errors_explained(), contextlib.redirect_stdout(said):
        status = int(chosen.run(chosen))
    if status:
        raise AirflowFailException(said.getvalue().strip())
