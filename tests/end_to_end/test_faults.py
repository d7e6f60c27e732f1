"""What goes wrong in a night, one thing at a time: the right verdict or error, and nothing measured is lost.

A benchmark that crashes is in test_nightly.py, where every place that tells a verdict is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import psutil
import pytest
from deployment.run_dag import conclude
from tests.end_to_end.conftest import FIO, NCCL, ROOT, Cluster, needs_fio

from plumbline import stages
from plumbline.errors import ExitCode
from plumbline.execution import lock

CLOSED = {"gate": "failed", "stage_failed": "skipped"}


def assert_closed_by(result, code: str) -> None:
    """Hold that the cluster, not the measuring, closed the gate, and that the evidence is whole."""
    assert code in result.codes, result.verdict["reasons"]
    assert result.verdict["gate"] == "closed"
    assert {name: result.state(name) for name in CLOSED} == CLOSED
    assert result.finished.state == "failed"
    assert list(result.run.problems()) == []
    assert conclude(result.finished) == ExitCode.CLOSED


def test_a_benchmark_that_hangs_is_stopped_and_is_a_fail(cluster: Cluster) -> None:
    cluster.program("echo begun; sleep 600 & echo $! >child; wait")
    cluster.benchmarks(("nccl_tests", {**NCCL, "timeout_s": 5.0}))
    result = cluster.measure()
    assert_closed_by(result, "timeout")
    [record] = result.records.values()
    raw = result.run.evidence / record["raw_dir"]
    assert record["outcome"] == "timeout"
    assert (raw / "stdout").read_text() == "begun\n"  # what it said until then is kept
    assert not psutil.pid_exists(int((raw / "child").read_text()))


def test_garbage_is_invalid_and_no_number(cluster: Cluster) -> None:
    cluster.program("head -c 4096 /dev/urandom; echo; echo '{\"jobs\": [1e999'")
    result = cluster.measure()
    assert result.verdict["gate"] == "closed"
    assert {r["verdict"] for r in result.verdict["reasons"]} & {"INVALID"}
    import pandas as pd

    assert len(pd.read_parquet(result.run.derived / "measurements.parquet")) == 0


@needs_fio
def test_a_missing_directory_is_told_apart_from_a_slow_one(cluster: Cluster) -> None:
    cluster.profile["storage"]["directory"] = "/nonexistent/plumbline"
    assert_closed_by(cluster.measure(), "storage_unavailable")


@needs_fio
def test_one_benchmark_that_fails_costs_only_its_own_numbers(cluster: Cluster) -> None:
    import pandas as pd

    cluster.program(f'case "$*" in *fio_clients*) exec "{sys.executable}" "$@";; esac; exit 7')
    cluster.benchmarks(("nccl_tests", NCCL), ("fio", FIO))
    result = cluster.measure()
    assert_closed_by(result, "benchmark_failed")
    rows = pd.read_parquet(result.run.derived / "measurements.parquet")
    assert "read_bandwidth" in set(rows.indicator[rows.benchmark == "fio"])
    assert "nccl_tests" not in set(rows.benchmark)


def test_results_that_cannot_be_written_fail_before_anything_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_RESULTS", "/proc/plumbline")  # refuses root, too
    result = cluster.measure()
    assert result.state("prepare") == "failed"
    assert {name: result.state(name) for name in ("seal", "judge", "gate", "stage_failed")} == {
        "seal": "skipped", "judge": "skipped", "gate": "failed", "stage_failed": "failed",
    }  # fmt: skip
    assert conclude(result.finished) == ExitCode.INFRASTRUCTURE


def test_a_results_volume_that_turns_read_only_keeps_the_raw_output(cluster: Cluster) -> None:
    """The record is refused when the benchmark ends; what it printed stays, and its absence is NOT_RUN."""
    cluster.program("echo measured; rm -r ../../records; echo full >../../records")
    result = cluster.measure()
    assert result.state("launch[0]") == "failed"
    assert result.state("stage_failed") == "failed"
    assert result.verdict["gate"] == "closed"
    assert result.codes & {"no_record", "evidence_changed", "schema"}, result.verdict["reasons"]
    raw = sorted((result.run.evidence / "raw").iterdir())
    assert [(folder / "stdout").read_text() for folder in raw] == ["measured\n"] * len(raw)
    assert conclude(result.finished) == ExitCode.CLOSED


@needs_fio
def test_mlflow_being_down_is_no_verdict_on_the_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    up = os.environ["MLFLOW_TRACKING_URI"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    result = cluster.measure()
    assert {name: result.state(name) for name in ("track", "stage_failed", "gate", "notify")} == {
        "track": "failed", "stage_failed": "failed", "gate": "success", "notify": "success",
    }  # fmt: skip
    assert result.verdict["gate"] == "open"
    assert conclude(result.finished) == ExitCode.INFRASTRUCTURE
    monkeypatch.setenv("MLFLOW_TRACKING_URI", up)
    assert stages.track(result.run.path) == result.verdict["mlflow_run_id"]  # nothing was lost: it is logged later
    assert list(result.run.problems()) == []


def test_a_second_run_at_the_same_time_is_refused(cluster: Cluster) -> None:
    folder = cluster.root / "results" / "tiny"
    lock.acquire(folder, "20260101T000000Z-abcdef", "nightly elsewhere", timedelta(hours=1), os.getpid())
    result = cluster.measure()
    assert result.state("prepare") == "failed"
    assert result.finished.run_dir is None
    assert conclude(result.finished) == ExitCode.INFRASTRUCTURE
    held = lock.holder_of(folder)
    assert held is not None
    assert held["run_id"] == "20260101T000000Z-abcdef"


@needs_fio
def test_a_run_that_was_killed_half_way_keeps_its_records_and_lets_the_next_one_in(cluster: Cluster) -> None:
    # The first launch ends, the second hangs, and then the whole process is killed as a machine's OOM killer would.
    cluster.program(f'case "$*" in *fio_clients*) exec "{sys.executable}" "$@";; esac; echo $$ >pid; sleep 600')
    cluster.benchmarks(("fio", FIO), ("nccl_tests", NCCL))
    cluster.write()
    path = os.pathsep.join([str(ROOT), str(ROOT / "include"), str(ROOT / "plugins")])
    command = [sys.executable, "-m", "deployment.run_dag", "nightly_baseline", "--cluster", "tiny", "--suite", "tiny"]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )
    folder = cluster.root / "results" / "tiny" / "tiny"
    wait_for(lambda: list(folder.glob("*/evidence/raw/nccl_tests-*/pid")), process)
    [pid_file] = folder.glob("*/evidence/raw/nccl_tests-*/pid")
    benchmark = int(pid_file.read_text())
    assert lock.holder_of(folder.parent) is not None
    process.kill()
    process.communicate()
    wait_for(lambda: not alive(benchmark))
    killed = pid_file.parents[3]
    assert [p.name for p in (killed / "evidence" / "records").glob("*.json")] == ["fio-n1-g0-r1.a1.json"]

    cluster.profile["python"] = sys.executable
    cluster.benchmarks(("fio", FIO))
    result = cluster.measure()
    assert result.finished.state == "success", result.verdict["reasons"]
    assert result.run.path != killed
    assert json.loads((killed / "evidence" / "records" / "fio-n1-g0-r1.a1.json").read_text())["outcome"] == "exited"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition, process: subprocess.Popen | None = None, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "never happened"
        time.sleep(0.2)
