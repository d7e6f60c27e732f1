"""A person accepts or rejects a judged cluster: asked by Airflow, kept in decisions.jsonl and as MLflow tags.

A person can't accept what the gate refuses, nor numbers that were simulated: an Approve is then recorded as a
rejection that says so. To accept in spite of a verdict, waive it where it stays visible (a waiver has a reason, an
owner and an end date), measure again, and approve the run whose gate is then open: a run keeps the waivers that were in
force when it began, so judging it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Param, TriggerRule, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from plumbline.execution.asked import asked_in_words
from plumbline.reports.counts import compared_in_words
from plumbline_airflow.failures import errors_explained
from plumbline_airflow.pipeline import build_pipeline
from plumbline_airflow.progress import say
from plumbline_airflow.run import judged_directory, run_directory

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol as TaskInstance

KIND = "acceptance"
ACCEPT, REJECT = "accept", "reject"
ANSWER_WITHIN = timedelta(days=14)


def build_acceptance() -> None:
    """Build the pipeline, then the question, then its record, in the current DAG.

    The question hangs beside the gate, not behind it, so that a closed gate keeps the run red whatever the answer.
    It is asked again when the worker that records the answer is lost. That includes Airflow's own slip: an answer
    that comes before the scheduler has heard of the pause (under a second, so from a program) fails the task with
    "finished with state success, but the task instance's state attribute is queued" (airflow 3.3.0).
    """
    comment = Param(
        None, type=["null", "string"], maxLength=2000, title="Comment", description="Kept with the decision"
    )
    sign_off = SignOffOperator(
        task_id="sign_off",
        trigger_rule=TriggerRule.ALL_DONE,
        subject="Accept the cluster?",
        defaults=ApprovalOperator.REJECT,
        response_timeout=ANSWER_WITHIN,
        params={"comment": comment},
        retries=2,
        retry_delay=timedelta(seconds=10),
    )
    build_pipeline("acceptance") >> sign_off >> decision()


class SignOffOperator(ApprovalOperator):
    """Ask a person to accept the cluster; no answer is a rejection, and nothing approves by itself."""

    def execute(self, context: Context) -> Any:
        """Put the verdict into the question and wait."""
        from plumbline.tracking.run_directory import RunDirectory  # noqa: PLC0415

        run_dir = judged_directory(context["ti"])
        if run_dir is None:
            raise AirflowSkipException("there is no verdict to decide on")
        with errors_explained():
            verdict = RunDirectory.open(run_dir).read_derived("verdict.json")
        self.subject, self.body = question(verdict)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer. Fails when the cluster is not accepted, so that the run is red."""
        answer = HITLOperator.execute_complete(self, context, event)
        run_dir = run_directory(context["ti"])
        if run_dir is None:
            raise AirflowFailException("there is no run to decide on")
        with errors_explained():
            line = record(run_dir, answer, context["ti"])
        if line["decision"] != ACCEPT:
            raise AirflowFailException(f"rejected: {line['reason']}")
        return answer


def question(verdict: Mapping[str, Any]) -> tuple[str, str]:
    """Give subject and body (Markdown) of the question."""
    refusal = refused(verdict)
    subject = f"Accept {verdict['cluster']}? {verdict['verdict']}, gate {verdict['gate']}"
    reasons = [f"* **{r['verdict']}** {r['place']}: {r['message']}" for r in verdict["reasons"][:10]]
    if len(verdict["reasons"]) > len(reasons):
        reasons.append(f"* … and {len(verdict['reasons']) - len(reasons)} more in the report")
    coverage = verdict["coverage"]
    return subject, "\n".join(
        [
            f"Run `{verdict['run_id']}` of suite `{verdict['suite']}` on `{verdict['cluster']}`: "
            f"**{verdict['verdict']}**, the gate is **{verdict['gate']}**. "
            f"Nodes measured: {coverage['measured']} of {coverage['expected']}, values: "
            f"{coverage['rows_measured']:,} of {coverage['rows_expected']:,}.",
            *_limits_of(verdict),
            "",
            *([f"**It cannot be accepted: {refusal}.** An Approve is recorded as a rejection.", ""] if refusal else []),
            *reasons,
            "",
            "An Approve accepts the cluster, and makes this run part of the baseline for later ones. "
            "The tabs *Report* and *MLflow run* of this DAG run show everything.",
        ]
    )  # fmt: skip


def _limits_of(verdict: Mapping[str, Any]) -> list[str]:
    """Say what the word above does not speak for: a person who signs should know it."""
    words, compared = asked_in_words(verdict.get("asked", ())), compared_in_words(verdict)
    return [
        *(["", f"**Not the suite as it is**: {words}."] if words else []),
        *(["", f"Compared: {compared}."] if compared else []),
    ]


def refused(verdict: Mapping[str, Any]) -> str | None:
    """Say why nobody can accept this run, or None."""
    if verdict["origin"] != "measured":
        return "its numbers were simulated, not measured"
    if verdict["gate"] != "open":
        return f"its gate is closed ({verdict['verdict']})"
    return None


def record(run_dir: Path, answer: Mapping[str, Any], ti: TaskInstance) -> Mapping[str, Any]:
    """Append the decision to decisions.jsonl and give its line; the same answer is not written twice."""
    from plumbline import stages  # noqa: PLC0415
    from plumbline.tracking.run_directory import RunDirectory  # noqa: PLC0415

    run = RunDirectory.open(run_dir)
    gate = stages.gate(run_dir)  # refuses derived/ that doesn't belong to this evidence
    verdict = run.read_derived("verdict.json")
    chosen = answer["chosen_options"][0]
    person = answer["responded_by_user"]
    refusal = refused({**verdict, "gate": "open" if gate.open else "closed"})
    accepted = chosen == ApprovalOperator.APPROVE and refusal is None
    said = f"answered {chosen}" if person else f"nobody answered within {ANSWER_WITHIN.days} days"
    decision = {
        "kind": KIND,
        "decision": ACCEPT if accepted else REJECT,
        "reason": said if accepted or refusal is None else f"{said}, but {refusal}",
        "answer": chosen,
        "by": (person["name"] or person["id"]) if person else "nobody",
        "comment": (answer["params_input"] or {}).get("comment") or "",
        "responded_at": str(answer["responded_at"]),
        "verdict": verdict["verdict"],
        "gate": verdict["gate"],
        "airflow_dag_id": ti.dag_id,
        "airflow_run_id": ti.run_id,
    }
    for line in run.decisions():
        if {key: line.get(key) for key in decision} == decision:
            return line
    return run.add_decision(decision)


@task(trigger_rule=TriggerRule.ALL_DONE, retries=2, retry_delay=timedelta(seconds=30))
def decision(*, ti: TaskInstance) -> None:
    """Put the decision into MLflow and the report, too. Fails unless this DAG run's own decision is an acceptance."""
    from plumbline import stages  # noqa: PLC0415
    from plumbline.tracking.mlflow_tracking import record_decisions  # noqa: PLC0415
    from plumbline.tracking.run_directory import RunDirectory  # noqa: PLC0415

    run_dir = judged_directory(ti)
    if run_dir is None:
        raise AirflowSkipException("there was nothing to decide on")
    run = RunDirectory.open(run_dir)
    with errors_explained():
        ours = [line for line in run.decisions() if line.get("airflow_run_id") == ti.run_id]
        if not ours:
            raise AirflowFailException("nobody decided: the sign-off was skipped or marked by hand")
        say(f"decision: {ours[-1]['decision']} by {ours[-1]['by']}")
        record_decisions(run)
        stages.report(run_dir)  # its page says who decided
    if ours[-1]["decision"] != ACCEPT:
        raise AirflowFailException(f"rejected: {ours[-1]['reason']}")
