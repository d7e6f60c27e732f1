"""Whether derived/ is still its judge's word on this evidence: asked before it is repeated, sealed anew or approved.

A seal written over what somebody edited, or over another judge's files, would make them this judge's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plumbline.errors import OutputError, TrackingError
from plumbline.model import VerdictKind
from plumbline.suites.suite import ALWAYS_BLOCKING
from plumbline.tracking.run_directory import RunDirectory

WRITTEN_LATER = ("report.html", "findings.json", "mlflow.json")
_JUDGED = ("measurements.parquet", "verdicts.parquet", "gx.json", "launches.json")
"""The files of derived/ that a judge does not write, and those that it writes beside verdict.json."""


def judgement(run: RunDirectory) -> dict[str, Any]:
    """Give what tells one judgement from another, and nothing that tracking or a report changes. Raises OutputError."""
    refuse_changed(run, "mlflow.json")
    verdict = run.read_derived("verdict.json")
    provenance = run.read_derived("provenance.json")
    return {
        "manifest": provenance["manifest_sha256"],
        "verdict": {key: value for key, value in verdict.items() if key != "mlflow_run_id"},
        "files": {name: provenance["files"].get(name) for name in _JUDGED},
    }


def refuse_rejudged(run: RunDirectory, earlier: Mapping[str, Any]) -> None:
    """Hold derived/ against the judgement that was read before: only that may be sealed.

    Raises TrackingError, OutputError.
    """
    if judgement(run) != earlier:
        what = f"{run.run_id} was judged otherwise while it was being logged to MLflow; plumbline track {run.run_id}"
        raise TrackingError(what)


def refuse_changed(run: RunDirectory, *rewritten: str) -> None:
    """Hold derived/ against its seal before the seal is written anew, or an edited verdict would be sealed with it.

    `rewritten` names the files that the stage itself, or one that was stopped, writes. Raises OutputError.
    """
    own = {f"derived/{name}" for name in rewritten}
    for problem in run.problems(evidence=False):
        if problem["path"] not in own and problem["problem"] != "extra":
            what = f"{problem['path']} is {problem['problem']} since it was judged; plumbline judge {run.run_id}"
            raise OutputError(what, source=run.run_id)


def refuse_taken_back(run: RunDirectory) -> None:
    """Raise OutputError where an open gate stands over evidence that has changed: no page may repeat its word."""
    if run.read_derived("verdict.json").get("gate") != "open":
        return
    if touched := taken_back_by(run.problems()):
        what = f"{touched['path']} is {touched['problem']} since it was judged; plumbline judge {run.run_id}"
        raise OutputError(what, source=run.run_id)


def taken_back_by(problems: Iterable[Mapping[str, str]]) -> Mapping[str, str] | None:
    """Give the first problem that takes an open gate back: evidence that changed, but for raw output that is gone."""
    return next(filter(_takes_back, problems), None)


def _takes_back(problem: Mapping[str, str]) -> bool:
    pruned = problem["problem"] == "missing" and problem["path"].startswith("evidence/raw/")
    return problem["path"].startswith("evidence/") and not pruned


def contradiction(verdict: Mapping[str, Any]) -> str | None:
    """Say that verdict.json is not in a form, or says open beside what closes; None when it agrees with itself."""
    reasons, word = verdict.get("reasons"), verdict.get("gate")
    if (
        word not in ("open", "closed")
        or verdict.get("verdict") not in set(VerdictKind)
        or not isinstance(reasons, list)
    ):
        return "verdict.json has no gate, verdict and reasons in their form: judge the run again"
    closing = [reason for reason in reasons if not isinstance(reason, Mapping) or reason.get("blocks") is not False]
    if word == "open" and (closing or verdict["verdict"] in ALWAYS_BLOCKING):
        return f"verdict.json says open, {verdict['verdict']}, with {len(closing)} reasons that close it"
    return None
