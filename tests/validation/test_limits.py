"""Limits of a run: a cluster's history holds for the hardware that made it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.run_builder import build_run

from plumbline.validation.limits import collect_limits


def test_a_baseline_ends_with_the_hardware_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plumbline.validation.limits.load_references", lambda hardware: None)
    monkeypatch.setattr("plumbline.validation.limits.references_data", lambda references: {})
    old = build_run(tmp_path, cluster="local", when=datetime.now(UTC) - timedelta(days=1))
    old.add_decision({"kind": "approve_baseline", "by": "ann"})
    profile, suite = old.profile(), old.suite()
    before = collect_limits(profile, suite, tmp_path, "29991231T000000Z-000000")
    assert before["approved_runs"] == [old.run_id] and before["baseline"] and not before["left_out"]
    fabric = profile.fabric.model_copy(update={"name": "another"})
    after = collect_limits(profile.model_copy(update={"fabric": fabric}), suite, tmp_path, "29991231T000000Z-000000")
    assert after["approved_runs"] == after["baseline"] == []
    assert "with another" in after["left_out"][0]["reason"]
