"""Who may accept what, and that the answer is kept with the evidence that it rests on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from tests.run_builder import build_run

from plumbline.model import Code, Origin, verdict
from plumbline.tracking.run_directory import RunDirectory
from plumbline_airflow import sign_off
from plumbline_airflow.sign_off import SignOffOperator, question, record, refused

ADA = {"id": "1", "name": "ada"}


def answer(
    option: str, person: dict[str, str] | None = ADA, comment: str | None = "rack 7 looks good"
) -> dict[str, Any]:
    return {
        "chosen_options": [option],
        "params_input": {"comment": comment},
        "responded_at": datetime(2026, 3, 2, 9, 30, tzinfo=UTC),
        "responded_by_user": person,
    }


def task_instance(run: RunDirectory | None) -> Any:
    def xcom_pull(task_ids: str, key: str) -> str | None:
        assert (task_ids, key) == ("prepare", "run_dir")
        return str(run.path) if run else None

    return SimpleNamespace(dag_id="acceptance", run_id="manual__1", xcom_pull=xcom_pull, id="ti")


@pytest.fixture
def good(tmp_path: Path) -> RunDirectory:
    run = build_run(tmp_path)
    assert run.read_derived("verdict.json")["gate"] == "open"
    return run


@pytest.fixture
def closed(tmp_path: Path) -> RunDirectory:
    broken = verdict(Code.WRONG_RESULT, "rung 4 group 0", "3 wrong elements")
    run = build_run(tmp_path, extra=[broken])
    assert run.read_derived("verdict.json")["gate"] == "closed"
    return run


def test_an_approval_is_recorded_with_person_comment_and_evidence(good: RunDirectory) -> None:
    line = record(good.path, answer("Approve"), task_instance(good))
    assert line["decision"] == "accept"
    assert (line["by"], line["comment"]) == ("ada", "rack 7 looks good")
    assert line["manifest_sha256"] == good.manifest_sha256()
    assert (line["airflow_dag_id"], line["airflow_run_id"]) == ("acceptance", "manual__1")
    assert good.decisions() == [line]


def test_a_rejection_is_recorded(good: RunDirectory) -> None:
    line = record(good.path, answer("Reject", comment=None), task_instance(good))
    assert (line["decision"], line["reason"], line["comment"]) == ("reject", "answered Reject", "")


def test_no_answer_is_a_rejection_by_nobody(good: RunDirectory) -> None:
    line = record(good.path, {**answer("Reject", person=None), "params_input": {}}, task_instance(good))
    assert (line["decision"], line["by"]) == ("reject", "nobody")
    assert "nobody answered within 14 days" in line["reason"]


def test_a_closed_gate_cannot_be_accepted(closed: RunDirectory) -> None:
    line = record(closed.path, answer("Approve"), task_instance(closed))
    assert (line["decision"], line["answer"]) == ("reject", "Approve")
    assert "its gate is closed" in line["reason"]


def test_a_simulated_cluster_cannot_be_accepted(tmp_path: Path) -> None:
    run = build_run(tmp_path, cluster="sim", origin=Origin.SIMULATED)
    line = record(run.path, answer("Approve"), task_instance(run))
    assert line["decision"] == "reject"
    assert "simulated" in line["reason"]


def test_a_verdict_that_was_edited_cannot_be_accepted(closed: RunDirectory) -> None:
    from plumbline.errors import OutputError

    path = closed.derived / "verdict.json"
    path.write_text(path.read_text().replace('"gate": "closed"', '"gate": "open"'))
    assert json.loads(path.read_text())["gate"] == "open"
    with pytest.raises(OutputError, match="doesn't belong to this evidence"):
        record(closed.path, answer("Approve"), task_instance(closed))
    assert closed.decisions() == []


def test_a_repeated_task_records_its_answer_once(good: RunDirectory) -> None:
    first = record(good.path, answer("Approve"), task_instance(good))
    assert record(good.path, answer("Approve"), task_instance(good)) == first
    assert len(good.decisions()) == 1


# -- the operator ----------------------------------------------------------------------------------------------------


def operator() -> SignOffOperator:
    from airflow.sdk import Param

    return SignOffOperator(
        task_id="sign_off",
        subject="?",
        defaults="Reject",
        response_timeout=sign_off.ANSWER_WITHIN,
        params={"comment": Param(None, type=["null", "string"])},
    )


def test_the_run_turns_red_when_the_answer_is_no(good: RunDirectory) -> None:
    with pytest.raises(AirflowFailException, match="rejected: answered Reject"):
        operator().execute_complete({"ti": task_instance(good)}, answer("Reject"))
    assert len(good.decisions()) == 1


def test_the_run_goes_on_when_the_answer_is_yes(good: RunDirectory) -> None:
    operator().execute_complete({"ti": task_instance(good)}, answer("Approve"))
    assert [line["decision"] for line in good.decisions()] == ["accept"]


def test_an_approve_on_a_closed_gate_turns_the_run_red_too(closed: RunDirectory) -> None:
    with pytest.raises(AirflowFailException, match="answered Approve, but its gate is closed"):
        operator().execute_complete({"ti": task_instance(closed)}, answer("Approve"))


def test_nobody_is_asked_about_a_run_without_a_verdict(tmp_path: Path) -> None:
    run = build_run(tmp_path)
    (run.derived / "verdict.json").unlink()
    for ti in (task_instance(run), task_instance(None)):
        with pytest.raises(AirflowSkipException):
            operator().execute({"ti": ti})


def test_the_question_shows_the_verdict_and_warns_where_approving_is_in_vain(closed: RunDirectory) -> None:
    data = closed.read_derived("verdict.json")
    subject, body = question(data)
    assert subject == "Accept local? FAIL, gate closed"
    assert "3 wrong elements" in body
    assert "cannot be accepted: its gate is closed (FAIL)" in body
    assert "cannot be accepted" not in question({**data, "gate": "open"})[1]


def test_the_question_says_what_the_word_does_not_speak_for(tmp_path: Path) -> None:
    run = build_run(tmp_path, asked=({"setting": "node_counts", "run": [4], "suite": "ladder"},))
    counts = {"approved_runs": 0, "history": 0, "beyond": 0, "references": 1, "nothing": 2, "shown": 3, "left_out": []}
    body = question({**run.read_derived("verdict.json"), "compared": counts})[1]
    assert "**Not the suite as it is**: node_counts 4 (the suite: ladder)." in body
    assert "2 with nothing yet" in body and "no run was approved before it began" in body


@pytest.mark.parametrize(("origin", "gate", "accepted"), [
    ("measured", "open", True), ("measured", "closed", False), ("simulated", "open", False),
    ("simulated", "closed", False), ("", "open", False), ("measured", "", False),
])  # fmt: skip
def test_only_an_open_gate_over_measured_numbers_can_be_accepted(origin: str, gate: str, accepted: bool) -> None:
    assert (refused({"origin": origin, "gate": gate, "verdict": "PASS"}) is None) is accepted
