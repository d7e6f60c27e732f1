"""# Acceptance

Measures a new or repaired cluster with the suite `acceptance`, judges it, and asks a person to accept it. Fill in the
form (*Trigger*), wait for the report, then answer under *Required Actions*: Approve or Reject, with a comment. The
answer is kept in the run's `decisions.jsonl` and in MLflow. No answer within 14 days is a rejection.

A closed gate, and a simulated cluster, can't be accepted: an Approve is then recorded as a rejection that says why.
"""

from airflow.sdk import DAG, Param

from plumbline_airflow.choices import cluster_names, suite_names
from plumbline_airflow.sign_off import build_acceptance

COUNTS = "Such as 1,2,4 or ladder (1, 2, 4 … and all nodes). Empty: as the suite says"
REPEATS = "How often each measurement is repeated. Empty: as the suite says"

with DAG(
    "acceptance",
    schedule=None,
    is_paused_upon_creation=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["plumbline"],
    params={
        "cluster": Param("local", type="string", enum=cluster_names(), title="Cluster", description="Its profile"),
        "suite": Param("acceptance", type="string", enum=suite_names(), title="Suite", description="What is measured"),
        "node_counts": Param(None, type=["null", "string", "array"], pattern=r"^(ladder|[1-9]\d*(, *[1-9]\d*)*)$",
                             items={"type": "integer", "minimum": 1}, minItems=1, uniqueItems=True,
                             title="Node counts", description=COUNTS, section="Scale"),
        "repeats": Param(None, type=["null", "integer"], minimum=1, maximum=50, title="Repeats",
                         description=REPEATS, section="Scale"),
        "note": Param(None, type=["null", "string"], maxLength=500, title="Note", description="For the report"),
    },
):  # fmt: skip
    build_acceptance()
