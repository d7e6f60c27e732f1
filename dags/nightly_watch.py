"""# Nightly watch

Fails, and tells people, when the night has not been measured: no finished and judged run of the suite is younger than
26 hours, whether nightly_baseline hangs, is late, was paused, or never started. It looks at the run directories and
not at Airflow, so a run by `plumbline run` counts too.

Airflow can't report its own death: let a monitor outside of it call `plumbline status --max-age 26h` as well.
"""

from airflow.sdk import DAG, Param

from plumbline_airflow.watch import finished_lately

with DAG(
    "nightly_watch",
    schedule="0 8 * * *",
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["plumbline"],
    params={
        "cluster": Param(None, type=["null", "string"], description="Default: the variable plumbline_cluster"),
        "suite": Param(None, type=["null", "string"], description="Default: the variable plumbline_suite"),
    },
):
    finished_lately("26h")
