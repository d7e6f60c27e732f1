"""Why the scheduler found too few GPUs: a FAIL only where a node offers fewer than it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plumbline.kubernetes.diagnosis import explain_pod
from plumbline.model import Code
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.runs import api_of

GPU = "nvidia.com/gpu"


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path / "cluster", nodes=["n1", "n2"]) as cluster:
        yield cluster


def a_pod(attempt: str = "1", node: str | None = None, gpus: int = 8, space: str = "plumbline") -> dict[str, Any]:
    labels = (
        {"plumbline/run": "r", "plumbline/launch": "l", "plumbline/attempt": attempt} if space == "plumbline" else {}
    )
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"containers": [{"name": "base", "resources": resources}], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": f"pod-{attempt}-{node}", "labels": labels}, "spec": spec,
            "status": {"phase": "Running" if node else "Pending", "conditions": []}}  # fmt: skip


def pending(
    message: str = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu.", attempt: str = "2"
) -> dict[str, Any]:
    pod = a_pod(attempt)
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pod["status"]["conditions"] = [told]
    return pod


def held(cluster: FakeCluster, pod: dict[str, Any], space: str = "plumbline") -> None:
    cluster.store.create("pods", space, pod)


def change(cluster: FakeCluster, act: Callable[[dict[str, Any]], Any]) -> None:
    cluster.store.change(("nodes", "", "n2"), act)


def fewer(cluster: FakeCluster) -> None:
    change(cluster, lambda node: node["status"]["allocatable"].update({GPU: "7"}))


def not_ready(cluster: FakeCluster) -> None:
    change(
        cluster, lambda node: [c.update(status="False") for c in node["status"]["conditions"] if c["type"] == "Ready"]
    )


def cordoned(cluster: FakeCluster) -> None:
    change(cluster, lambda node: node["spec"].update(unschedulable=True))


CASES: dict[str, tuple[Callable[[FakeCluster], Any], Code, str]] = {
    "fewer than there should be": (fewer, Code.MISSING_GPU, "node n2 offers 7 of 8 nvidia.com/gpu"),
    "fewer, and a node gone": (
        lambda c: (fewer(c), c.store.remove(("nodes", "", "n1"))), Code.MISSING_GPU, "node n2 offers 7"
    ),
    "node gone": (lambda c: c.store.remove(("nodes", "", "n2")), Code.NODE_LOST, "node n2 isn't in the cluster"),
    "node not ready": (not_ready, Code.NODE_NOT_READY, "node n2 isn't ready"),
    "node cordoned": (cordoned, Code.UNSCHEDULABLE, "node n2 is cordoned"),
    "our own earlier worker": (lambda c: held(c, a_pod("1", "n2")), Code.INFRASTRUCTURE, "pod pod-1-n2 of ours"),
    "a worker of the same attempt elsewhere": (lambda c: held(c, a_pod("2", "n1")), Code.BUSY, "GPUs of n2"),
    "somebody else": (lambda c: held(c, a_pod("", "n2", 1, "training"), "training"), Code.BUSY, "GPUs of n1, n2"),
    "no right to look": (
        lambda c: c.api.fail("GET", "/api/v1/nodes", 403, times=9, reason="Forbidden"), Code.UNSCHEDULABLE, "told apart"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_too_few_gpus(cluster: FakeCluster, case: str) -> None:
    act, code, words = CASES[case]
    act(cluster)
    found, reason = explain_pod(api_of(cluster), "plumbline", pending(), ["n1", "n2"])
    assert (found, words in reason) == (code, True), reason


def test_claims_that_can_not_be_allocated_prove_nothing(cluster: FakeCluster) -> None:
    pod = pending("0/2 nodes are available: 2 cannot allocate all claims.")
    pod["spec"]["containers"][0]["resources"] = {}
    assert explain_pod(api_of(cluster), "plumbline", pod, ["n1", "n2"])[0] is Code.UNSCHEDULABLE
