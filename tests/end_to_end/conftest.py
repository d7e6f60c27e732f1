"""A cluster of the tests' own: profile, suite, results and MLflow below tmp_path, run through the real DAG."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployment.run_dag import Finished, run_once

from plumbline.tracking.run_directory import RunDirectory
from plumbline_airflow.progress import STOP

ROOT = Path(__file__).resolve().parents[2]
BENCH_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
FIO = {"runtime_s": 1.0, "ramp_s": 0.0, "size": "8M", "jobs": "seq_read", "clients": 1, "layout_limit_s": 120.0}
NCCL = {
    "operations": "all_reduce",
    "min_bytes": "8K",
    "max_bytes": "64K",
    "warmup": 1,
    "iterations": 2,
    "timeout_s": 120.0,
}


@dataclass(frozen=True, slots=True)
class Result:
    """What a DAG run left."""

    finished: Finished

    @property
    def run(self) -> RunDirectory:
        assert self.finished.run_dir is not None, self.finished.tasks
        return RunDirectory.open(self.finished.run_dir)

    @property
    def verdict(self) -> dict[str, Any]:
        return self.run.read_derived("verdict.json")

    @property
    def codes(self) -> set[str]:
        return {reason["code"] for reason in self.verdict["reasons"]}

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        return {p.stem: json.loads(p.read_text()) for p in (self.run.evidence / "records").glob("*.json")}

    def state(self, task_id: str) -> str:
        return self.finished.tasks[task_id]


@dataclass(slots=True)
class Cluster:
    """One emulated cluster."""

    root: Path
    profile: dict[str, Any] = field(default_factory=dict)
    suite: dict[str, Any] = field(default_factory=dict)

    def program(self, text: str) -> None:
        """Put a shell script in the place of the benchmarks' interpreter."""
        path = self.root / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        self.profile["python"] = str(path)

    def benchmarks(self, *entries: tuple[str, Mapping[str, Any]]) -> None:
        self.suite["benchmarks"] = [{"benchmark": name, "params": dict(params)} for name, params in entries]

    def write(self) -> None:
        for kind, data in (("profiles", self.profile), ("suites", self.suite)):
            folder = self.root / kind
            folder.mkdir(exist_ok=True)
            (folder / "tiny.yaml").write_text(yaml.safe_dump(data))

    def measure(self, dag_id: str = "nightly_baseline", skip: str | None = None, **conf: Any) -> Result:
        """Run the DAG to its end, in this process."""
        self.write()
        return Result(run_once(dag_id, {"cluster": "tiny", "suite": "tiny", **conf}, skip))


@pytest.fixture
def cluster(tmp_path: Path, airflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Give a healthy cluster with a suite that takes a few seconds."""
    (tmp_path / "storage").mkdir()
    for variable, value in {
        "PLUMBLINE_PROFILES": tmp_path / "profiles",
        "PLUMBLINE_SUITES": tmp_path / "suites",
        "PLUMBLINE_RESULTS": tmp_path / "results",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}",
    }.items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.delenv(STOP, raising=False)
    found = Cluster(tmp_path)
    found.profile = {
        "name": "tiny",
        "title": "A cluster of the tests",
        "launcher": "local",
        "device": "cpu",
        "accelerator": {"model": "cpu", "per_node": 1},
        "fabric": {"name": "loopback"},
        "hardware": "local-cpu",
        "nodes": {"emulated": 1},
        "storage": {"directory": str(tmp_path / "storage"), "name": "test disk"},
        "python": sys.executable,
        "limits": {"minutes": 10},
    }
    found.suite = {
        "name": "tiny",
        "title": "Tiny",
        "kind": "nightly",
        "gate": {"blocks": ["FAIL", "INVALID", "NOT_RUN", "STALE"], "coverage_gaps_allowed": True},
        "node_counts": [1],
    }
    found.benchmarks(("fio", FIO))
    return found


needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
