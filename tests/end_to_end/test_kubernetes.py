"""The nightly DAG on the fake Kubernetes cluster: inventory, pods, real fio inside them, verdict; and nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.end_to_end.conftest import FIO, Cluster, needs_fio
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import IMAGE
from tests.kubernetes.runs import PYTHON, ROOT, WAITS

from plumbline.kubernetes import batch_pod


@needs_fio
@pytest.mark.parametrize(
    ("nodes", "counts"), [(["n1"], [1]), (["n1", "n2", "n3"], [2, 4])], ids=["single-node", "gang"]
)
def test_a_night_on_kubernetes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[str], counts: list[int]
) -> None:
    monkeypatch.setattr(batch_pod, "POLL_S", 0.2)
    results, storage = cluster.root / "results", tmp_path / "storage"
    for folder in (results, storage):
        folder.mkdir(exist_ok=True)
    with FakeCluster(tmp_path / "kubernetes", nodes=nodes, gpus=0) as fake:
        fake.add_node("cordoned", 0, unschedulable=True)
        cluster.profile |= {
            "launcher": "kubernetes", "nodes": {"selector": {"gpu": "h100"}}, "python": PYTHON,
            "programs": str(ROOT / "docker" / "bench"), "storage": {"directory": str(storage)},
            "images": {"fio": IMAGE},
            "kubernetes": {
                "access": {"kubeconfig": str(fake.kubeconfig())}, "package": str(ROOT / "include"),
                "waits": WAITS,
                "results": {"host_path": str(results), "mount": str(results)}, "idle": {"wait_s": 0},
            },
        }  # fmt: skip
        cluster.suite["node_counts"] = counts
        # Clients of several nodes begin together within a second, on a busy machine within more: half of it must do.
        cluster.benchmarks(("fio", {**FIO, "runtime_s": 1.0 if len(nodes) == 1 else 6.0}))
        result = cluster.measure()
        assert {r["outcome"] for r in result.records.values()} == {"exited"}, result.records
        assert fake.store.all("pods") == []
        assert fake.store.all("jobs") == []
        assert fake.store.all("leases") == []
    reasons = {(reason["code"], reason["place"]) for reason in result.verdict["reasons"]}
    assert ("unschedulable", "node cordoned") in reasons
    assert {code for code, _ in reasons} <= {"no_baseline", "page_cache", "unschedulable", "unreachable_scale"}
    assert sorted(r["hosts"] for r in result.records.values()) == ([["n1"]] if len(nodes) == 1 else _both_waves(result))
    assert [place for code, place in reasons if code == "unreachable_scale"] == (
        [] if len(nodes) == 1 else ["fio at 4 nodes"]
    )
    assert result.state("launch[0]") == "success"
    assert list(result.run.problems()) == []


def _both_waves(result: object) -> list[list[str]]:
    """Three nodes in groups of two: every node is in a group, one of them in two."""
    hosts = sorted(r["hosts"] for r in result.records.values())  # type: ignore[attr-defined]
    assert {host for group in hosts for host in group} == {"n1", "n2", "n3"}
    assert [len(group) for group in hosts] == [2, 2]
    return hosts
