"""People's decisions on judged runs: which runs may become part of the baseline, and which are."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.errors import ConfigError, OutputError
from plumbline.model import Code
from plumbline.tracking.derived_seal import WRITTEN_LATER, refuse_changed, refuse_unfinished
from plumbline.tracking.run_directory import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The last word that was said on a run's evidence."""

    kind: str
    approved: bool
    by: str | None
    at: str | None
    comment: str | None


def approve(run_dir: Path, *, by: str, comment: str, kind: str = "approve_baseline") -> dict[str, Any]:
    """Record a person's decision on a judged run.

    A run becomes part of the baseline when its gate is open, whatever warnings it has, or when nothing but a missing
    baseline closes it: an acceptance, which blocks warnings, could never have a first one otherwise. Of a run that is
    approved the standing decision is given, and none is added.
    Raises ConfigError for any other run, OutputError where evidence or verdict is not what was sealed, or is pruned.
    """
    run = RunDirectory.open(run_dir)
    refuse_unfinished(run)
    if kind == "approve_baseline":
        refuse_changed(run, *WRITTEN_LATER)
        if run.pruned:
            raise OutputError("its raw output is pruned: a baseline needs its evidence whole", source=run.run_id)
        if problem := next((p for p in run.problems() if p["path"].startswith("evidence/")), None):
            raise OutputError(f"{problem['path']} is {problem['problem']} since the seal", source=run.run_id)
    data = run.read_derived("verdict.json")
    if kind == "approve_baseline" and not approvable(data):
        raise ConfigError(_why_closed(run.run_id, data["reasons"]))
    if kind == "revoke_baseline":
        _refuse_unapproved(run)
    if not by.strip():
        raise ConfigError("an approval needs a name: --by")
    if kind == "approve_baseline" and (standing := standing_approval(run)):
        return standing
    return run.add_decision({"kind": kind, "by": by, "comment": comment, "verdict": data["verdict"]})


def approvable(verdict: Mapping[str, Any]) -> bool:
    """Say whether a run of this verdict.json may become part of the baseline, by what closes its gate."""
    closing = [reason for reason in verdict["reasons"] if reason.get("blocks") is not False]
    return verdict["gate"] == "open" or (bool(closing) and all(one["code"] == Code.NO_BASELINE for one in closing))


def _why_closed(run_id: str, reasons: Sequence[Mapping[str, Any]]) -> str:
    others = [one for one in reasons if one.get("blocks") is not False and one["code"] != Code.NO_BASELINE]
    first = f" by {others[0]['verdict']} {others[0]['code']} at {others[0]['place']}" if others else ""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"{run_id}: its gate is closed{first}{more}; a run becomes baseline when its gate is open, or closed by "
        "nothing but a missing baseline: mend or waive what closes it, and measure again"
    )


def _refuse_unapproved(run: RunDirectory) -> None:
    if standing_approval(run) is None:
        raise ConfigError(f"{run.run_id} is not approved: there is nothing to take back")


def standing_approval(run: RunDirectory) -> dict[str, Any] | None:
    """Give the line that makes a run part of the baseline, None without one. Raises OutputError for a damaged file."""
    decision = approval(run)
    if decision is None or not decision.approved:
        return None
    lines = run.decisions()
    return [one for one in lines if (one.get("kind"), one.get("decided_at")) == (decision.kind, decision.at)][-1]


def approval(run: RunDirectory) -> Decision | None:
    """Give the last decision on a run's evidence, or None. Raises OutputError for a damaged decisions file."""
    last = None
    for item in run.decisions():
        kind, answer = item.get("kind"), item.get("decision")
        if kind == "approve_baseline":
            approved = True
        elif kind == "revoke_baseline":
            approved = False
        elif kind in ("acceptance", "sign_off"):
            approved = answer in ("accept", "approve")
        else:
            continue
        last = Decision(
            kind=kind,
            approved=approved,
            by=_shown(item.get("by")),
            at=item.get("decided_at"),
            comment=_shown(item.get("comment")),
        )
    return last


def is_approved(run: RunDirectory) -> bool:
    """Say whether a person approved this very evidence as a baseline. Raises OutputError for a damaged file.

    A damaged file answers neither yes nor no: what is lost in it may be the approval, or what took it back.
    """
    decision = approval(run)
    return decision is not None and decision.approved


def _shown(text: Any) -> str | None:
    """Give what a person wrote without what a terminal would obey, or what no page can be written with."""
    if text is None:
        return None
    return "".join(
        "\ufffd" if unicodedata.category(sign) in _UNSHOWN and sign not in "\n\t" else sign for sign in str(text)
    )


_UNSHOWN = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, halves of characters, separators of lines and paragraphs."""
