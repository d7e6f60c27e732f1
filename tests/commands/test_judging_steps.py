"""Judging a large cluster takes most of a minute: what is being done is said, on stderr, one line a step."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from tests.commands.command_line import run
from tests.simulated_run import simulate

from plumbline import stages


def test_judging_says_its_steps_on_stderr_and_in_json_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = simulate(tmp_path, "simulated-8", ["benchmarks=hpl_mxp"])
    log = logging.getLogger("plumbline.validation.judging")
    before = (log.level, log.propagate, list(log.handlers))
    _, out, err = run(capsys, "judge", str(made.path))
    steps = [line.partition(" s  ")[2] for line in err.splitlines()]
    assert steps[0] == "reading the output of 8 launches"
    assert [step.partition(" ")[0] for step in steps] == ["reading", "validating", "writing", "writing"]
    assert "reading the output" not in out and "the gate is" in out
    assert (log.level, log.propagate, list(log.handlers)) == before
    _, out, err = run(capsys, "judge", str(made.path), "--json")
    assert err == "" and json.loads(out)["run_id"] == made.run_id


def test_a_partial_run_tells_what_it_was_compared_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = simulate(tmp_path, "simulated-8", ["benchmarks=hpl_mxp"])
    found = json.loads(run(capsys, "judge", str(made.path), "--json")[1])
    counts = found["compared"]
    assert (counts["approved_runs"], counts["history"], counts["left_out"]) == (0, 0, [])
    kinds = ("history", "references", "nothing", "shown")
    assert sum(counts[name] for name in kinds) == found["coverage"]["rows_measured"] > 0
    stages.approve(made.path, by="test", comment="a test")
    later = simulate(tmp_path, "simulated-8", ["benchmarks=nccl_tests", "node_counts=1,2"])
    found = json.loads(run(capsys, "judge", str(later.path), "--json")[1])["compared"]
    assert (found["approved_runs"], found["history"]) == (1, 0)
    assert found["left_out"] == [{"benchmark": "hpl_mxp", "node_count": 1}]
