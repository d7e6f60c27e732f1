"""What a run may take at most."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.runs import launches, outcomes, prepare

from plumbline.errors import ClusterBusyError
from plumbline.execution import budget, lock
from plumbline.execution.run_one import write_record
from plumbline.kubernetes import files
from plumbline.model import Code, Outcome
from plumbline.tracking.run_directory import RunDirectory, run_time


def a_run(tmp_path: Path, **limits: float) -> RunDirectory:
    return prepare(tmp_path, launches([["n1", "n2"], ["n3", "n4"]], "true"), {"limits": limits})


def hold(run: RunDirectory, seconds: float, **changes: Any) -> None:
    """Leave a record of the first launch that held its nodes for so long."""
    first = run.plan().launches[0]
    raw = run.evidence / "raw" / f"{first.launch_id}.a1"
    raw.mkdir(parents=True)
    record = files.fault_record(first, 1, Code.EVICTED, "evicted", started_at=None, duration_s=seconds, raw_dir=raw)
    write_record(replace(record, **changes), run.evidence)


def test_a_batch_starts_within_the_limits(tmp_path: Path) -> None:
    run = a_run(tmp_path, minutes=240, gpu_hours=16)
    hold(run, 3599)
    assert not budget.refused(run, run.plan().launches, print)
    assert len(outcomes(run)) == 1


def test_gpu_hours_count_every_attempt_on_every_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path, gpu_hours=16)
    hold(run, 3600)  # 2 nodes of 8 GPUs for an hour
    assert budget.refused(run, run.plan().launches, print)
    assert outcomes(run)["nccl_tests-n2-g1-r1.a1"] == "infrastructure:budget"
    assert "16.0 GPU-hours are used; limits.gpu_hours of profile lab is 16" in capsys.readouterr().out


def test_minutes_count_from_when_the_run_was_made(tmp_path: Path) -> None:
    run = a_run(tmp_path, minutes=30)
    made = run_time(run.run_id)
    assert budget.spent(run, made + timedelta(minutes=29)) is None
    assert (
        budget.spent(run, made + timedelta(minutes=31)) == "31 minutes have passed; limits.minutes of profile lab is 30"
    )


def test_the_suites_budget_holds_as_well(tmp_path: Path) -> None:
    run = a_run(tmp_path, gpu_hours=100)
    run.write_evidence("suite", {**run.read_evidence("suite"), "gpu_hours": 4})
    hold(run, 1000)
    assert budget.spent(run, datetime.now(UTC)) == "4.4 GPU-hours are used; gpu_hours of suite tiny is 4"


def test_what_has_an_answer_keeps_it(tmp_path: Path) -> None:
    run = a_run(tmp_path, gpu_hours=1)
    hold(run, 3600, outcome=Outcome.EXITED, exit_code=0, code=None)
    assert budget.refused(run, run.plan().launches, print)
    assert list(outcomes(run).values()) == ["exited", "infrastructure:budget"]


def test_a_batch_that_has_begun_goes_on(tmp_path: Path) -> None:
    run = a_run(tmp_path, gpu_hours=1)
    hold(run, 3600)
    files.claim(run.evidence, run.plan().launches[1], 1)
    assert not budget.refused(run, run.plan().launches, print)
    assert len(outcomes(run)) == 1


def test_minutes_of_a_run_that_was_taken_up_again_count_from_then(tmp_path: Path) -> None:
    run = a_run(tmp_path, minutes=30)
    lock.acquire(run.path.parents[1], run.run_id, "cli resumed", timedelta(hours=1))
    path = run.path.parents[1] / "lock.json"
    since = run_time(run.run_id) + timedelta(hours=10)
    path.write_text(json.dumps({**json.loads(path.read_text()), "since": since.isoformat()}))
    assert budget.spent(run, since + timedelta(minutes=29)) is None
    assert budget.spent(run, since + timedelta(minutes=31)) is not None


def test_a_run_that_has_lost_the_cluster_starts_nothing_any_more(tmp_path: Path) -> None:
    run = a_run(tmp_path, minutes=30)
    lock.acquire(run.path.parents[1], "another", "cli nightly", timedelta(hours=1))
    with pytest.raises(ClusterBusyError, match=r"run another \(cli nightly\) holds it"):
        budget.refused(run, run.plan().launches, print)
    assert outcomes(run) == {}


def test_one_that_another_process_has_taken_up_starts_nothing_either(tmp_path: Path) -> None:
    run = a_run(tmp_path, minutes=30)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lock.acquire(run.path.parents[1], run.run_id, "cli resumed", timedelta(hours=1), other.pid)
        with pytest.raises(ClusterBusyError, match=f"process {other.pid}"):
            budget.refused(run, run.plan().launches, print)
    assert not budget.refused(run, run.plan().launches, print)
