"""Profiles and launch specs of the Kubernetes tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.configuration import parse
from plumbline.execution.strategic_merge import merged
from plumbline.model import Device, LaunchSpec
from tests.test_model import a_spec

RUN_ID = "20260101T000000Z-abcdef"
IMAGE = "registry.example/plumbline/nccl-tests@sha256:" + "a" * 64
GOOD: dict[str, Any] = {
    "name": "lab", "title": "Lab", "launcher": "kubernetes", "device": "gpu",
    "accelerator": {"model": "H100-SXM5-80GB", "per_node": 8, "resource": "nvidia.com/gpu"},
    "fabric": {"name": "ndr-8x400g"}, "nodes": {"selector": {"gpu": "h100"}},
    "storage": {"directory": "/mnt/data"}, "python": "/usr/bin/python3", "programs": "/opt/plumbline/bench",
    "images": {"nccl_tests": IMAGE}, "kubernetes": {"results": {"claim": "results", "mount": "/mnt/results"}},
}  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "images": {"launcher": "nvcr.io/base@sha256:" + "b" * 64},
    "kubernetes": {
        "storage": {"host_path": "/mnt/data", "mount": "/mnt/data"},
        "datasets": {"claim": "datasets", "mount": "/mnt/datasets", "sub_path": "c4", "read_only": True},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}],
        "rdma": {"resource": "rdma/hca", "count": 8}, "host_network": True, "networks": "rail-0,rail-1",
        "socket_interface": "eth0", "rdma_devices": "=mlx5_0", "environment": {"NCCL_ALGO": "Ring"},
        "cpu": "64", "memory": "512Gi", "hugepages": {"hugepages-2Mi": "1Gi"},
        "claims": [{"name": "imex", "template": "imex-channel"}], "priority_class": "nightly",
        "queue": {"kind": "kueue", "name": "tests"}, "image_pull_secrets": ["registry"],
        "image_mirror": {"nvcr.io/": "mirror.example/nvcr/", "registry.example/": "mirror.example/"},
        "fs_group": 1000,
        "pod_overrides": {
            "metadata": {"annotations": {"team": "sre"}},
            "spec": {"runtimeClassName": "nvidia", "containers": [{"name": "base", "workingDir": "/tmp"}]},
        },
    },
}  # fmt: skip


def profile(*changes: Mapping[str, Any]) -> ClusterProfile:
    """Give the good profile with changes merged into it."""
    data: Any = GOOD
    for change in changes:
        data = merged(data, change)
    return parse(ClusterProfile, data, "lab.yaml")


def plain(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """Give the profile as evidence/profile.json holds it."""
    return json.loads(json.dumps(profile(*changes).model_dump(mode="json")))


def spec(nodes: Sequence[str], **changes: Any) -> LaunchSpec:
    """Give a launch of nccl_tests on named nodes."""
    fields: dict[str, Any] = {
        "launch_id": f"nccl_tests-n{len(nodes)}-g{changes.get('group', 0)}-r{changes.get('repeat', 1)}",
        "run_id": RUN_ID, "cluster": "lab", "benchmark": "nccl_tests", "node_count": len(nodes), "nodes": tuple(nodes),
        "accelerators_per_node": 8, "device": Device.GPU, "image": IMAGE, "timeout_s": 900.0,
        "argv": ("/usr/bin/python3", "-m", "plumbline_bench.nccl_sweep", "--hosts", ",".join(nodes)),
    }  # fmt: skip
    return a_spec(**{**fields, **changes})
