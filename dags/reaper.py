"""# Reaper

Removes what finished runs left on a Kubernetes cluster, every five minutes, and says what it removed: only the run that
holds the cluster's Lease has pods there. There is rarely anything to do, because every run tidies up after itself: this
is for runs whose Airflow died with them. Does nothing on clusters of another kind; unpause it where there is one.

`plumbline reap CLUSTER` does the same from outside of Airflow.
"""

from airflow.sdk import DAG, Param

from plumbline_airflow.reaping import remove_left_over

with DAG(
    "reaper",
    schedule="*/5 * * * *",
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["plumbline"],
    params={"cluster": Param(None, type=["null", "string"], description="Default: the variable plumbline_cluster")},
):
    remove_left_over()
