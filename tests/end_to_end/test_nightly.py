"""The nightly DAG, run to its end without a daemon: real fio, real collectives, and one verdict everywhere."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from deployment.run_dag import conclude
from tests.end_to_end.conftest import BENCH_PYTHON, FIO, NCCL, Cluster, Result, needs_fio

from plumbline.errors import ExitCode
from plumbline.model import Outcome

SUCCESS = dict.fromkeys(("prepare", "seal", "judge", "report", "track", "notify"), "success")


def told(result: Result) -> dict[str, Any]:
    """Give the verdict and gate of every place that tells them."""
    from mlflow import MlflowClient

    from plumbline.notification import compose

    run, verdict = result.run, result.verdict
    tags = MlflowClient().get_run(verdict["mlflow_run_id"]).data.tags
    message = compose(run)
    return {
        "verdict.json": (verdict["verdict"], verdict["gate"]),
        "mlflow": (tags["plumbline.verdict"], tags["plumbline.gate"]),
        "message": (message.verdict, message.gate),
        "exit code": (verdict["verdict"], "open" if conclude(result.finished) == ExitCode.OK else "closed"),
        "gate task": (verdict["verdict"], "open" if result.state("gate") == "success" else "closed"),
        "dag run": (verdict["verdict"], "open" if result.finished.state == "success" else "closed"),
    }


@pytest.mark.bench
@needs_fio
@pytest.mark.skipif(not BENCH_PYTHON.exists(), reason="no .venv-bench")
def test_a_first_night_measures_judges_remembers_and_opens_the_gate(cluster: Cluster) -> None:
    cluster.profile["python"] = str(BENCH_PYTHON)
    cluster.profile["nodes"] = {"emulated": 2}
    cluster.suite["node_counts"] = [1, 2]
    cluster.benchmarks(("fio", FIO), ("nccl_tests", NCCL))
    cluster.suite["benchmarks"][0]["node_counts"] = [1]
    result = cluster.measure()
    assert result.finished.tasks == {
        **SUCCESS, "launch[0]": "success", "launch[1]": "success", "launch[2]": "success", "gate": "success",
        "stage_failed": "skipped",
    }, result.verdict["reasons"]  # fmt: skip
    assert {r["outcome"] for r in result.records.values()} == {Outcome.EXITED}
    order = sorted(result.records.values(), key=lambda r: r["started_at"])
    assert [r["launch_id"].split("-g")[0] for r in order] == ["fio-n1", "nccl_tests-n1", "nccl_tests-n2"]
    assert all(a["ended_at"] <= b["started_at"] for a, b in itertools.pairwise(order))
    assert result.codes <= {"no_baseline", "page_cache"}
    assert set(told(result).values()) == {(result.verdict["verdict"], "open")}
    assert list(result.run.problems()) == []
    assert (result.run.derived / "report.html").stat().st_size > 10_000
    assert result.run.read_evidence("environment")["tags"]["airflow_dag_id"] == "nightly_baseline"


def test_a_bad_night_is_closed_everywhere(cluster: Cluster) -> None:
    cluster.program("echo 'the disk is gone' >&2; exit 3")
    result = cluster.measure()
    assert result.verdict["verdict"] == "FAIL"
    assert "benchmark_failed" in result.codes
    [record] = result.records.values()
    assert (record["outcome"], record["exit_code"]) == ("exited", 3)
    assert (result.run.evidence / record["raw_dir"] / "stderr").read_text() == "the disk is gone\n"
    assert set(told(result).values()) == {("FAIL", "closed")}
    assert result.state("stage_failed") == "skipped"  # the measuring went well; the cluster did not
    page = (result.run.derived / "report.html").read_text()
    assert "FAIL" in page


def test_an_unknown_key_is_refused_before_anything_runs(cluster: Cluster) -> None:
    result = cluster.measure(node_count=[1])
    assert result.state("prepare") == "failed"
    assert result.finished.run_dir is None
    assert not (cluster.root / "results").exists()
    assert (result.state("gate"), result.state("stage_failed"), result.finished.state) == ("failed",) * 3
    assert conclude(result.finished) == ExitCode.INFRASTRUCTURE


def test_a_suite_that_does_not_exist_is_refused_before_anything_runs(cluster: Cluster) -> None:
    result = cluster.measure(suite="tinny")
    assert result.state("prepare") == "failed"
    assert not (cluster.root / "results").exists()
