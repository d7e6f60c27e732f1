"""Every node is in the inventory; what can't be measured says why."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from plumbline.kubernetes.inventory import inventory_of
from plumbline.model import Code
from tests.kubernetes.profiles import profile

TODAY = date(2026, 1, 1)


def node(name: str = "n1", *, gpus: int = 8, capacity: int | None = None, **changes: Any) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"nvidia.com/gpu": str(gpus)}, "capacity": {"nvidia.com/gpu": str(capacity or gpus)},
        "nodeInfo": {"kernelVersion": "6.8.0", "kubeletVersion": "v1.36.2", "osImage": "Ubuntu 24.04"},
    }  # fmt: skip
    labels = changes.get("labels", {})
    return {
        "metadata": {"name": name, "labels": labels}, "spec": changes.get("spec", {}),
        "status": {**status, **changes.get("status", {})},
    }  # fmt: skip


def pod(where: str, gpus: int, *, phase: str = "Running", init: int = 0) -> dict[str, Any]:
    def container(count: int) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(count)}}}

    spec: dict[str, Any] = {"nodeName": where, "containers": [container(gpus)]}
    if init:
        spec["initContainers"] = [container(init)]
    return {"metadata": {"name": "train-0", "namespace": "team"}, "spec": spec, "status": {"phase": phase}}


def one(*args: Any, changes: Any = (), pods: Any = ()) -> tuple[Code | None, str]:
    [found] = inventory_of(profile(*changes), [node(*args[:1], **(args[1] if len(args) > 1 else {}))], pods, TODAY)
    return found.unusable, found.reason


def test_a_healthy_idle_node_can_be_measured() -> None:
    assert one("n1") == (None, "")


NOT_READY = {"conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}]}
TAINT = {"taints": [{"key": "reserved", "value": "x", "effect": "NoSchedule"}]}


@pytest.mark.parametrize(
    ("changes", "pods", "code", "words"),
    [
        ({"status": NOT_READY}, [], Code.NODE_NOT_READY, "Kubelet stopped"),
        ({"status": {"conditions": []}}, [], Code.NODE_NOT_READY, "reports nothing"),
        ({"spec": {"unschedulable": True}}, [], Code.UNSCHEDULABLE, "kubectl uncordon n1"),
        ({"spec": TAINT}, [], Code.UNSCHEDULABLE, "reserved=x:NoSchedule"),
        ({"gpus": 7, "capacity": 8}, [], Code.MISSING_GPU, "7 of 8 nvidia.com/gpu (the device plugin reports 8, 1 of"),
        ({"gpus": 0}, [], Code.MISSING_GPU, "0 of 8"),
        ({}, [pod("n1", 1)], Code.BUSY, "1 of 8 nvidia.com/gpu in use by team/train-0 (1)"),
        ({}, [pod("n1", 0, init=2)], Code.BUSY, "in use by team/train-0 (2)"),
        ({}, [pod("n1", 8, phase="Succeeded")], None, ""),
        ({}, [pod("n2", 8)], None, ""),
        ({"spec": {"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}}, [], None, ""),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], pods: list[Any], code: Code | None, words: str) -> None:
    found, reason = one("n1", changes, pods=pods)
    assert found is code
    assert words in reason


@pytest.mark.parametrize(
    ("toleration", "code"),
    [
        ({"key": "reserved"}, None),
        ({"key": "reserved", "operator": "Equal", "value": "x"}, None),
        ({"key": "reserved", "operator": "Equal", "value": "y"}, Code.UNSCHEDULABLE),
        ({"key": "reserved", "effect": "NoExecute"}, Code.UNSCHEDULABLE),
        ({}, None),
    ],
)
def test_tolerations_of_the_profile_count(toleration: dict[str, str], code: Code | None) -> None:
    assert one("n1", {"spec": TAINT}, changes=[{"kubernetes": {"tolerations": [toleration]}}])[0] is code


def test_an_exclusion_comes_before_everything_else() -> None:
    excluded = [{"node": "n1", "reason": "RMA", "owner": "ops", "until": "2026-02-01"}]
    code, reason = one("n1", {"status": NOT_READY}, changes=[{"exclusions": excluded}])
    assert (code, reason) == (Code.EXCLUDED, "RMA (owner ops, until 2026-02-01)")


def test_a_listed_node_that_is_gone_is_not_forgotten() -> None:
    listed = {"nodes": {"selector": None, "listed": [{"name": "n2", "rack": "r7"}, {"name": "n1"}]}}
    found = inventory_of(profile(listed), [node("n1"), node("n9")], [], TODAY)
    assert [(n.name, n.unusable, n.rack) for n in found] == [("n2", Code.NODE_LOST, "r7"), ("n1", None, None)]


def test_places_and_versions_come_from_labels_and_the_kubelet() -> None:
    labels = {
        "network.topology.nvidia.com/leaf": "leaf-3", "nvidia.com/gpu.clique": "d.1",
        "topology.kubernetes.io/rack": "r2",
        "nvidia.com/cuda.driver.major": "570", "nvidia.com/cuda.driver.minor": "86", "nvidia.com/cuda.driver.rev": "15",
    }  # fmt: skip
    [found] = inventory_of(profile(), [node("n1", labels=labels)], [], TODAY)
    assert (found.leaf, found.rack, found.nvlink_domain) == ("leaf-3", "r2", "d.1")
    assert found.software == {
        "kernel": "6.8.0", "os": "Ubuntu 24.04", "kubelet": "v1.36.2", "driver": "570.86.15"
    }  # fmt: skip


def test_a_cpu_cluster_needs_no_accelerator() -> None:
    cpu = {"accelerator": {"resource": None}, "device": "cpu"}
    assert one("n1", {"gpus": 0}, changes=[cpu]) == (None, "")
