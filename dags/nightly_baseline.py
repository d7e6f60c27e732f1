"""# Nightly baseline

Measures the cluster every night with the suite `nightly`, compares it with its references and its own history, and
closes the gate when something is wrong. The cluster and the suite are the Airflow variables `plumbline_cluster` and
`plumbline_suite`; a manual run can name others.

* **gate** is red: the cluster should not be used; the report says why.
* **stage_failed** is red: a part of the measuring itself broke (MLflow down, disk full, cluster busy); its log says

The tabs *Report* and *MLflow run* of a run lead to both.
"""

from airflow.sdk import DAG, Param

from plumbline_airflow.pipeline import build_pipeline

with DAG(
    "nightly_baseline",
    schedule="0 2 * * *",
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["plumbline"],
    params={
        "cluster": Param(None, type=["null", "string"], description="Default: the variable plumbline_cluster"),
        "suite": Param(None, type=["null", "string"], description="Default: the variable plumbline_suite"),
        "note": Param(None, type=["null", "string"], maxLength=500, description="For the report"),
    },
):
    build_pipeline("nightly")
