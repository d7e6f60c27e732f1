"""Whether derived/ is still its judge's word on this evidence: asked before it is repeated, sealed anew or approved.

A seal written over what somebody edited, or over another judge's files, would make them this judge's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from plumbline.errors import OutputError, TrackingError
from plumbline.model import VerdictKind
from plumbline.suites.suite import ALWAYS_BLOCKING
from plumbline.tracking.run_directory import RunDirectory

PAGE = ("report.html", "findings.json")
"""The files that `report` writes."""
WRITTEN_LATER = (*PAGE, "mlflow.json")
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


def refuse_unfinished(run: RunDirectory) -> None:
    """Raise OutputError for a run without a manifest: nothing can be said of it before its launches have ended."""
    if run.sealed:
        return
    if (run.derived / "verdict.json").is_file():
        what = "the run is unfinished: evidence/manifest.json is gone since it was judged"
    else:
        what = f"the run is unfinished; `plumbline run --resume {run.run_id}` goes on with it"
    raise OutputError(what, source=run.run_id)


def refuse_changed(run: RunDirectory, *rewritten: str) -> None:
    """Hold derived/ against its seal before the seal is written anew, or an edited verdict would be sealed with it.

    `rewritten` names the files that the stage itself, or one that was stopped, writes. Raises OutputError.
    """
    refuse_unfinished(run)
    own = {f"derived/{name}" for name in rewritten}
    for problem in run.problems(evidence=False):
        if problem["path"] not in own and problem["problem"] != "extra":
            _refuse(run, problem)


def refuse_taken_back(run: RunDirectory) -> None:
    """Raise OutputError where an open gate stands over evidence that has changed: no page may repeat its word."""
    if run.read_derived("verdict.json").get("gate") != "open":
        return
    if touched := taken_back_by(run.problems()):
        _refuse(run, touched)


def taken_back_by(problems: Iterable[Mapping[str, str]]) -> Mapping[str, str] | None:
    """Give the first problem that takes an open gate back: evidence that changed or is gone."""
    return next((problem for problem in problems if problem["path"].startswith("evidence/")), None)


def remedy(run: RunDirectory) -> str:
    """Say what helps where derived/ and evidence don't agree."""
    if run.pruned:
        return "its raw output is pruned, so that it can't be judged again"
    return f"plumbline judge {run.run_id}"


def _refuse(run: RunDirectory, problem: Mapping[str, str]) -> NoReturn:
    lost = problem["problem"] == "missing" and problem["path"].startswith("evidence/")
    helps = "put it back: judged without it, the run is INVALID" if lost and not run.pruned else remedy(run)
    raise OutputError(f"{problem['path']} is {problem['problem']} since it was judged; {helps}", source=run.run_id)


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
