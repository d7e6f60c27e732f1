"""Which runs a person's decision makes part of the baseline, and which may become so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.run_builder import build_run

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


def test_a_damaged_decisions_file_approves_nothing(tmp_path: Path):
    run = build_run(tmp_path, nodes=1)
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    with (run.path / "decisions.jsonl").open("a") as stream:
        stream.write('{"kind": "revoke_base')
    assert not is_approved(run)
    assert load_history(tmp_path, "local", origin=Origin.MEASURED, approved_only=True).runs == ()


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
