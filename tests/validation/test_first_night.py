"""What one fault does to a first night, and what only approved history can see (docs/decisions/0008). SIMULATED."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.validation.mutant_night import PROFILE

from plumbline import stages
from plumbline.tracking.run_directory import RunDirectory

FIRST = datetime(2026, 11, 1, 2, tzinfo=UTC)
DISKS = {
    "name": "disks", "title": "Storage only", "kind": "nightly", "gate": {"coverage_gaps_allowed": True},
    "node_counts": [1], "benchmarks": [{"benchmark": "fio"}],
}  # fmt: skip


def night(folder: Path, number: int, *faults: Mapping[str, Any]) -> tuple[RunDirectory, dict[str, Any]]:
    """Measure and judge one night with such faults."""
    documents = {
        "mutant": {**PROFILE, "nodes": {"simulated": 32}},
        "disks": DISKS,
        "faults": {"seed": 3, "faults": list(faults)},
    }
    for name, data in documents.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
    run = stages.prepare(
        str(folder / "mutant.yaml"), str(folder / "disks.yaml"), {"faults": str(folder / "faults.yaml")},
        trigger="test", now=FIRST + timedelta(days=number),
    )  # fmt: skip
    for batch_id in stages.batch_ids(run):
        stages.launch_batch(run.path, batch_id, lambda _: None)
    stages.seal(run.path)
    return run, stages.judge(run.path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "results"))
    return tmp_path


def test_memory_that_waits_to_be_remapped_closes_and_is_named(folder: Path):
    _, verdict = night(folder, 0, {"kind": "retired_memory", "node": "n0017", "gpu": 3, "severity": 0.05})
    closing = [reason for reason in verdict["reasons"] if reason["blocks"]]
    assert {(item["code"], item["node"]) for item in closing} == {("diagnostic_failed", "n0017")}
    assert all("node n0017" in item["place"] and "GPU 3: memory rows" in item["message"] for item in closing)


def test_a_slow_storage_server_shows_against_history_and_never_on_a_first_night(folder: Path):
    lost = [{"kind": "slow_storage_server", "server": server, "severity": 1.0} for server in (1, 2)]
    _, verdict = night(folder, 0, *lost)
    assert verdict["gate"] == "open" and verdict["verdict"] == "WARN"
    figures = {item["indicator"] for item in verdict["reasons"] if item["code"] == "no_baseline"}
    assert {"read_bandwidth", "write_bandwidth", "aggregate_read_bandwidth"} <= figures
    healthy, verdict = night(folder, 1)
    assert verdict["gate"] == "open"
    stages.approve(healthy.path, by="test", comment="SIMULATED")
    _, verdict = night(folder, 2, {**lost[0], "severity": 0.3})
    assert verdict["gate"] == "open"  # 3.75 % of the store: clients scatter by more
    _, verdict = night(folder, 3, *lost)
    closing = [item for item in verdict["reasons"] if item["blocks"]]
    assert verdict["gate"] == "closed" and {item["code"] for item in closing} == {"worse_than_baseline"}
    assert len({item["node"] for item in closing}) > 8  # it is nobody's own fault
