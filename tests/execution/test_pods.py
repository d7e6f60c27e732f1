"""Manifests: golden YAML, valid for the three newest Kubernetes versions, and what an operator of clusters expects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.version import Version
from tests.kubernetes.profiles import EVERYTHING, plain, spec

from plumbline.execution import pods
from plumbline.execution.pod_placement import PINNED_BY_NAME
from plumbline.execution.strategic_merge import merged
from plumbline.model import Contends

GOLDEN = Path(__file__).parents[1] / "data" / "pods"
EVIDENCE = Path("/mnt/results/lab/nightly/20260101T000000Z-abcdef/evidence")
NEWEST = sorted({Version(v) for v in kubernetes_validate.utils.all_versions() if not v.endswith("strict")})[-3:]


def worker(nodes: list[str], *changes: Any, **spec_changes: Any) -> dict[str, Any]:
    one = spec(nodes, **spec_changes)
    return pods.worker_job(
        plain(*changes), "nccl_tests-n4", one, 2, EVIDENCE, ("pl-launcher", "uid-1"), "ssh-ed25519 A"
    )


MANIFESTS = {
    "single": lambda: pods.batch_pod(plain(), "nccl_tests-n1", [spec(["n1"]), spec(["n1"], repeat=2)], EVIDENCE),
    "launcher": lambda: pods.batch_pod(plain(), "nccl_tests-n2", [spec(["n1", "n2"]), spec(["n3", "n4"], group=1)],
                                       EVIDENCE),
    "worker-of-one": lambda: worker(["n1"]),
    "workers-of-two": lambda: worker(["n1", "n2"]),
    "single-everything": lambda: pods.batch_pod(plain(EVERYTHING), "nccl_tests-n1", [spec(["n1"])], EVIDENCE),
    "launcher-everything": lambda: pods.batch_pod(plain(EVERYTHING), "nccl_tests-n2", [spec(["n1", "n2"])], EVIDENCE),
    "workers-everything": lambda: worker(["n1", "n2"], EVERYTHING),
    "amd-volcano": lambda: worker(
        ["n1", "n2"],
        {"accelerator": {"resource": "amd.com/gpu"}, "kubernetes": {"queue": {"kind": "volcano", "name": "night"}}},
    ),
    "cpu": lambda: worker(["n1", "n2"], {"accelerator": {"resource": None, "per_node": 1}, "device": "cpu"}),
}  # fmt: skip


@pytest.fixture(params=sorted(MANIFESTS), name="manifest")
def _manifest(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param, MANIFESTS[request.param]()


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"] if manifest["kind"] == "Job" else manifest


def test_a_manifest_is_as_it_was(manifest: tuple[str, dict[str, Any]]) -> None:
    """UPDATE_GOLDEN=1 writes them anew: read the difference before it is committed."""
    name, data = manifest
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(data, sort_keys=False, width=120))
    assert data == yaml.safe_load(path.read_text())


def test_three_versions_are_checked() -> None:
    assert len(NEWEST) == 3


@pytest.mark.parametrize("version", [str(version) for version in NEWEST])
def test_a_manifest_is_valid(manifest: tuple[str, dict[str, Any]], version: str) -> None:
    kubernetes_validate.validate(manifest[1], version, strict=True)


def test_a_wrong_manifest_would_be_seen() -> None:
    data = MANIFESTS["single"]()
    data["spec"]["tolerationz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(data, str(NEWEST[-1]), strict=True)


def test_what_operators_of_clusters_expect(manifest: tuple[str, dict[str, Any]]) -> None:
    name, data = manifest
    spec_of_pod = pod_of(data)["spec"]
    [container] = spec_of_pod["containers"]
    launcher = name.startswith("launcher")
    assert spec_of_pod["automountServiceAccountToken"] is launcher
    assert ("serviceAccountName" in spec_of_pod) is launcher
    assert spec_of_pod["activeDeadlineSeconds"] > 900
    assert 0 < spec_of_pod["terminationGracePeriodSeconds"] <= 60
    assert spec_of_pod["restartPolicy"] == "Never"
    assert spec_of_pod["securityContext"]["runAsNonRoot"] is True
    assert spec_of_pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "privileged" not in container["securityContext"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    added = container["securityContext"]["capabilities"].get("add", [])
    assert added == (["IPC_LOCK"] if name.endswith("everything") and not launcher else [])
    for resource, amount in container["resources"]["limits"].items():
        assert container["resources"]["requests"][resource] == amount
    lost = [t for t in spec_of_pod["tolerations"] if t.get("tolerationSeconds") == 60]
    assert {t["key"] for t in lost} == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    wanted = {"run", "benchmark", "node-count", "batch", "cluster"}
    found = pod_of(data)["metadata"]["labels"]
    assert {pods.PREFIX + key for key in wanted} <= found.keys()
    assert all(len(value) <= 63 for value in found.values())


def test_only_pods_with_gpus_ask_for_them_and_for_shared_memory(manifest: tuple[str, dict[str, Any]]) -> None:
    name, data = manifest
    spec_of_pod = pod_of(data)["spec"]
    limits = spec_of_pod["containers"][0]["resources"]["limits"]
    gpus = [amount for resource, amount in limits.items() if resource.endswith("/gpu")]
    assert gpus == ([] if name.startswith("launcher") or name == "cpu" else ["8"])
    mounts = [mount["mountPath"] for mount in spec_of_pod["containers"][0]["volumeMounts"]]
    assert ("/dev/shm" in mounts) is not name.startswith("launcher")
    assert "/mnt/results" in mounts


def test_workers_are_on_their_planned_nodes_and_apart() -> None:
    affinity = pod_of(worker(["n1", "n2"]))["spec"]["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["n1"], ["n2"]]
    [apart] = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"].items() <= pod_of(worker(["n1", "n2"]))["metadata"]["labels"].items()


def test_large_groups_are_pinned_in_one_term() -> None:
    nodes = [f"n{i}" for i in range(PINNED_BY_NAME + 1)]
    affinity = pod_of(worker(nodes))["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}
    kubernetes_validate.validate(worker(nodes), str(NEWEST[-1]), strict=True)


def test_a_job_never_tries_by_itself_and_goes_with_its_launcher() -> None:
    job = worker(["n1", "n2"])
    assert (job["spec"]["backoffLimit"], job["spec"]["completions"], job["spec"]["parallelism"]) == (0, 2, 2)
    assert job["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert job["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] is False


def test_time_limits_nest() -> None:
    one = spec(["n1"])
    single = MANIFESTS["single"]()["spec"]["activeDeadlineSeconds"]
    assert single >= 2 * one.timeout_s + pods.DEADLINE_MARGIN_S
    job = worker(["n1", "n2"])
    launcher = MANIFESTS["launcher"]()["spec"]["activeDeadlineSeconds"]
    assert one.timeout_s + 120 <= pod_of(job)["spec"]["activeDeadlineSeconds"] <= job["spec"]["activeDeadlineSeconds"]
    assert job["spec"]["activeDeadlineSeconds"] < launcher


def test_a_round_has_no_node_twice() -> None:
    specs = [
        spec(nodes, group=group, wave=wave, repeat=repeat)
        for repeat in (1, 2)
        for group, (wave, nodes) in enumerate([(1, ["a", "b"]), (1, ["c", "d"]), (2, ["e", "a"])])
    ]
    cut = pods.rounds(specs)
    assert [len(group) for group in cut] == [2, 1, 2, 1]
    for group in cut:
        nodes = [node for one in group for node in one.nodes]
        assert len(nodes) == len(set(nodes))
    shared = [spec([n], group=g, contends=Contends.STORAGE) for g, n in enumerate("abc")]
    assert [len(group) for group in pods.rounds(shared)] == [1, 1, 1]


@pytest.mark.parametrize("parts", [("fio-n1",), ("mlperf_gpt3-n1024-g511-r50", "a12"), ("x" * 80,), ("x" * 80, "a1")])
def test_names_are_labels_of_dns(parts: tuple[str, ...]) -> None:
    import re

    name = pods.object_name("20260101T000000Z-abcdef", *parts)
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", name)
    assert name == pods.object_name("20260101T000000Z-abcdef", *parts)
    assert name != pods.object_name("20260101T000000Z-abcdee", *parts)
    assert name != pods.object_name("20260101T000000Z-abcdef", *parts, "b")


def test_overrides_merge_as_kubernetes_does() -> None:
    base = {
        "spec": {
            "containers": [{"name": "base", "image": "a", "env": [{"name": "X", "value": "1"}],
                            "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}],
            "tolerations": [{"key": "a"}], "hostNetwork": True,
        }
    }  # fmt: skip
    over = {
        "spec": {
            "containers": [{"name": "base", "env": [{"name": "Y", "value": "2"}],
                            "volumeMounts": [{"mountPath": "/b", "readOnly": True}]}, {"name": "sidecar"}],
            "tolerations": [{"key": "b"}], "hostNetwork": None,
        }
    }  # fmt: skip
    assert merged(base, over) == {
        "spec": {
            "containers": [{"name": "base", "image": "a", "env": [{"name": "X", "value": "1"},
                                                                   {"name": "Y", "value": "2"}],
                            "volumeMounts": [{"name": "v", "mountPath": "/a"},
                                             {"name": "v", "mountPath": "/b", "readOnly": True}]}, {"name": "sidecar"}],
            "tolerations": [{"key": "b"}],
        }
    }  # fmt: skip
    assert base["spec"]["hostNetwork"] is True


def test_the_longest_mirror_prefix_wins() -> None:
    mirror = {"nvcr.io/": "m/", "nvcr.io/nvidia/": "n/"}
    assert pods.mirrored("nvcr.io/nvidia/x@sha256:1", mirror) == "n/x@sha256:1"
    assert pods.mirrored("nvcr.io/y", mirror) == "m/y"
    assert pods.mirrored("quay.io/y", mirror) == "quay.io/y"


def test_a_launchers_memory_grows_with_the_gangs_that_it_runs_at_once() -> None:
    def memory(groups: int, nodes: int) -> str:
        specs = [spec([f"n{group}-{i}" for i in range(nodes)], group=group) for group in range(groups)]
        launcher = pods.batch_pod(plain(), "b", specs, EVIDENCE)
        return launcher["spec"]["containers"][0]["resources"]["limits"]["memory"]

    assert [memory(2, 1), memory(1, 2), memory(512, 2)] == ["512Mi", "515Mi", "2048Mi"]


def test_the_sshd_of_root_gets_what_it_insists_on_and_nobody_else_does() -> None:
    def added(user: int, nodes: Sequence[str]) -> list[str]:
        chosen = plain({"kubernetes": {"run_as_user": user}})
        job = pods.worker_job(chosen, "b", spec(nodes), 1, EVIDENCE, ("launcher", "uid"), "key")
        context = job["spec"]["template"]["spec"]["containers"][0]["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        return context["capabilities"].get("add", [])

    assert added(0, ["n1", "n2"]) == ["SETGID", "SETUID", "SYS_CHROOT"]
    assert added(0, ["n1"]) == added(1000, ["n1", "n2"]) == []


def test_a_launcher_prefers_nodes_that_are_not_measured_but_not_another_architecture() -> None:
    selector = {"kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "gpu": "h100"}
    launcher = pods.batch_pod(plain({"nodes": {"selector": selector}}), "b", [spec(["n1", "n2"])], EVIDENCE)
    [term] = launcher["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"] == [{"key": "gpu", "operator": "NotIn", "values": ["h100"]}]
