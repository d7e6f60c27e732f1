"""The acceptance DAG without a person: the form's settings reach the plan, and what nobody signed is not accepted.

Airflow's approval needs a scheduler, so it is marked as done here, as somebody could do by hand in the UI; the answer
over REST and UI is in test_services.py.
"""

from __future__ import annotations

from tests.end_to_end.conftest import FIO, Cluster, needs_fio


@needs_fio
def test_a_sign_off_that_was_marked_by_hand_accepts_nothing(cluster: Cluster) -> None:
    cluster.benchmarks(("fio", FIO))
    result = cluster.measure("acceptance", skip="^sign_off$", repeats=2, note="rack 7")
    assert result.state("gate") == "success", result.verdict["reasons"]
    assert (result.state("sign_off"), result.state("decision"), result.finished.state) == (
        "success",
        "failed",
        "failed",
    )
    assert result.run.decisions() == []
    suite = result.run.read_evidence("suite")
    assert (suite["repeats"], suite["note"]) == (2, "rack 7")
    assert len(result.records) == 2
    assert result.run.read_evidence("environment")["trigger"] == "acceptance"
