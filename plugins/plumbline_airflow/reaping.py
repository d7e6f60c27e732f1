"""The reaper inside Airflow: removes what finished runs left on a cluster."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from plumbline_airflow.failures import errors_explained
from plumbline_airflow.pipeline import STAGE_LIMIT
from plumbline_airflow.progress import say
from plumbline_airflow.request import read_request


@task(execution_timeout=STAGE_LIMIT)
def remove_left_over(*, params: Any, dag: Any, dag_run: Any) -> list[str]:
    """Remove what no living run owns; give the names. Fails when something could not be removed."""
    from plumbline.clusters.profile import load_profile  # noqa: PLC0415 - not needed to parse a DAG
    from plumbline.kubernetes.access import connect  # noqa: PLC0415
    from plumbline.kubernetes.reaper import reap  # noqa: PLC0415

    cluster = read_request(params, dag_run.conf, dag.params).cluster
    with errors_explained():
        profile = load_profile(cluster)
        if profile.kubernetes is None:
            raise AirflowSkipException(f"{cluster} is of launcher {profile.launcher}: nothing outlives a run there")
        removed = reap(connect(profile), profile)
    for one in removed:
        say(one.sentence())
    if stayed := [one for one in removed if one.error]:
        raise AirflowFailException(f"{len(stayed)} of {len(removed)} could not be removed: {stayed[0].sentence()}")
    return [one.name for one in removed]
