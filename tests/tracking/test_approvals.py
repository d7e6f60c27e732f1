"""Which runs a person's decision makes part of the baseline, and which may become so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.run_builder import build_run

from plumbline.errors import OutputError
from plumbline.model import Origin
from plumbline.tracking.approvals import approvable, approval, is_approved
from plumbline.tracking.history import load_history


def test_the_last_decision_counts(tmp_path: Path):
    run = build_run(tmp_path, nodes=1)
    assert approval(run) is None and not is_approved(run)
    run.add_decision({"kind": "approve_baseline", "by": "ann", "comment": "as ordered"})
    decided = approval(run)
    assert decided is not None and decided.approved and (decided.by, decided.comment) == ("ann", "as ordered")
    run.add_decision({"kind": "note", "by": "bob"})
    assert is_approved(run)
    run.add_decision({"kind": "revoke_baseline", "by": "bob"})
    assert not is_approved(run)


@pytest.mark.parametrize(
    ("decision", "approved"),
    [
        ({"kind": "acceptance", "decision": "accept"}, True),
        ({"kind": "sign_off", "decision": "approve"}, True),
        ({"kind": "acceptance", "decision": "reject"}, False),
        ({"kind": "acceptance", "decision": "Accept "}, False),
        ({"kind": "acceptance"}, False),
        ({"kind": "approve_baselines"}, False),
        ({"decision": "accept"}, False),
    ],
)
def test_only_an_exact_acceptance_approves(tmp_path: Path, decision: dict, approved: bool):
    run = build_run(tmp_path, nodes=1)
    run.add_decision(decision)
    assert is_approved(run) is approved


def test_a_damaged_decisions_file_approves_nothing_and_its_run_is_named(tmp_path: Path):
    run = build_run(tmp_path, nodes=1)
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    with (run.path / "decisions.jsonl").open("a") as stream:
        stream.write('{"kind": "revoke_base')
    with pytest.raises(OutputError, match=r"decisions\.jsonl:2: damaged decision"):
        is_approved(run)
    history = load_history(tmp_path, "local", origin=Origin.MEASURED, approved_only=True)
    assert history.runs == ()
    [skipped] = history.skipped
    assert skipped.run_id == run.run_id and skipped.damaged and "decisions.jsonl:2" in skipped.reason


def test_an_approval_cut_in_its_line_is_no_silent_absence(tmp_path: Path):
    run = build_run(tmp_path, nodes=1)
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    path = run.path / "decisions.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    [skipped] = load_history(tmp_path, "local", origin=Origin.MEASURED, approved_only=True).skipped
    assert skipped.damaged and "can't be read" in skipped.reason


def test_what_a_person_wrote_is_shown_without_what_a_terminal_obeys(tmp_path: Path):
    run = build_run(tmp_path, nodes=1)
    run.add_decision({"kind": "approve_baseline", "by": "zoë\x1b[2J", "comment": "a\u2028b\x9bc\udc80d\ne\tf"})
    decided = approval(run)
    assert decided is not None
    assert (decided.by, decided.comment) == ("zoë\ufffd[2J", "a\ufffdb\ufffdc\ufffdd\ne\tf")


@pytest.mark.parametrize(
    ("codes", "gate", "may"),
    [
        ([], "open", True),
        (["no_baseline"], "closed", True),
        (["no_baseline", "busy"], "closed", False),
        ([], "closed", False),
    ],
)
def test_what_may_become_baseline(codes: list[str], gate: str, may: bool) -> None:
    reasons = [{"code": code, "verdict": "WARN", "place": "p", "blocks": True} for code in codes]
    assert approvable({"gate": gate, "reasons": reasons}) is may
