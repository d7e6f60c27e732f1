"""The gate's word is held against the evidence that it was said of, and against itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.run_builder import build_run, rewrite_json

from plumbline import stages
from plumbline.errors import OutputError
from plumbline.tracking.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return build_run(tmp_path, nodes=1)


def test_an_open_gate_needs_the_evidence_as_it_was_judged(run: RunDirectory):
    assert stages.gate(run.path).open
    raw = next((run.evidence / "raw").rglob("stdout"))
    text = raw.read_text()
    raw.write_text(text + "more\n")
    with pytest.raises(OutputError, match="changed since it was judged"):
        stages.gate(run.path)
    raw.unlink()
    with pytest.raises(OutputError, match="stdout is missing since it was judged"):
        stages.gate(run.path)
    raw.write_text(text)
    assert stages.gate(run.path).open
    next((run.evidence / "records").glob("*.json")).unlink()
    with pytest.raises(OutputError, match="missing since it was judged"):
        stages.gate(run.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "FAIL"},
        {"verdict": "GOOD"},
        {"gate": "Open"},
        {"gate": True},
        {"reasons": [{"verdict": "WARN", "code": "no_baseline", "blocks": True}]},
        {"reasons": [{"verdict": "WARN", "code": "no_baseline"}]},
        {"reasons": None},
    ],
)
def test_a_word_that_contradicts_itself_is_none(run: RunDirectory, changes: dict[str, object]):
    rewrite_json(run, "verdict.json", **changes)
    with pytest.raises(OutputError):
        stages.gate(run.path)
