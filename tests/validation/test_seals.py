"""A seal that was broken and made anew is told, wherever something remembers the first."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.seals import SEALS, note_seal, seal_problems


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    found = build_run(tmp_path, Scenario(nodes=1))
    note_seal(found)
    return found


def reseal(run: RunDirectory) -> None:
    """Break the seal, change a record, seal anew."""
    (run.evidence / "manifest.json").unlink()
    path = next((run.evidence / "records").glob("*.json"))
    path.write_text(path.read_text().replace('"reason": ""', '"reason": "nothing"'))
    run.seal()


def test_one_seal_is_noted_once_and_no_problem(run: RunDirectory):
    note_seal(run)
    assert len((run.path.parents[1] / SEALS).read_text().splitlines()) == 1
    assert list(seal_problems(run)) == []


def test_a_second_seal_is_told_whether_it_is_noted_or_not(run: RunDirectory):
    reseal(run)
    [told] = seal_problems(run)
    assert "has another seal now" in told
    note_seal(run)
    assert list(seal_problems(run)) == [told]


def test_another_run_of_the_cluster_says_nothing(run: RunDirectory):
    other = build_run(run.path.parents[2], Scenario(nodes=1), when=datetime(2026, 3, 5, tzinfo=UTC))
    note_seal(other)
    reseal(other)
    assert list(seal_problems(run)) == []


def test_a_damaged_list_is_no_clean_one(run: RunDirectory):
    path = run.path.parents[1] / SEALS
    path.write_text(path.read_text()[:-20])
    assert "damaged where it names this run, in line 1" in next(seal_problems(run))


def test_a_seal_noted_after_a_torn_line_is_a_line_of_its_own(run: RunDirectory):
    path = run.path.parents[1] / SEALS
    path.write_text(path.read_text()[:-20])
    other = build_run(run.path.parents[2], Scenario(nodes=1), when=datetime(2026, 3, 5, tzinfo=UTC))
    note_seal(other)
    note_seal(other)
    assert list(seal_problems(other)) == []
    assert len(path.read_text().splitlines()) == 2
    assert len(list(seal_problems(run))) == 1


def test_decisions_remember_the_seal_that_they_were_made_on(run: RunDirectory):
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    assert list(seal_problems(run)) == []
    (run.path.parents[1] / SEALS).unlink()
    reseal(run)
    [told] = seal_problems(run)
    assert told.startswith("ann decided on it under another seal")


def test_evidence_that_lay_open_is_told(run: RunDirectory):
    sealed = run.sealed_at()
    assert sealed is not None
    ends = [(sealed - timedelta(hours=hours)).isoformat() for hours in (50, 23)]
    assert list(seal_problems(run, [*ends, "yesterday"])) == []
    assert list(seal_problems(run, ends[:1])) == [
        "it lay open for 50 hours between its last launch and its seal"
    ]  # fmt: skip


def test_a_seal_without_a_time_zone_is_told(run: RunDirectory):
    run.path.parents[1].joinpath(SEALS).unlink()
    path = run.evidence / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sealed_at": "2026-03-01T03:00:00"}))
    assert list(seal_problems(run, ["2026-03-01T02:00:00Z"])) == [
        "its seal's time 2026-03-01T03:00:00 is of no time zone"
    ]  # fmt: skip


def test_verify_tells_a_second_seal(run: RunDirectory, capsys: pytest.CaptureFixture[str]):
    from plumbline.cli import main

    reseal(run)
    assert main(["verify", str(run.path)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"problem": "changed", "path": "evidence/manifest.json"} in lines
