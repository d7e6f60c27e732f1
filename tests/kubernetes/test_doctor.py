"""plumbline doctor: a good cluster passes; each defect is found, named and mended in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from plumbline import cli
from plumbline.clusters.profile import ClusterProfile
from plumbline.configuration import parse
from plumbline.errors import ConfigError
from plumbline.execution import kubernetes
from plumbline.execution.strategic_merge import merged
from plumbline.kubernetes import lease, probe, probing
from plumbline.kubernetes.doctor import Check, State, quick_checks
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import GOOD
from tests.kubernetes.runs import PYTHON, ROOT, api_of

TODAY = date(2026, 1, 1)


@dataclass
class Patient:
    """A fake cluster and a profile that fits it."""

    cluster: FakeCluster
    results: Path
    data: dict[str, Any] = field(default_factory=dict)

    def change(self, change: Mapping[str, Any]) -> None:
        self.data = merged(self.data, change)

    @property
    def profile(self) -> ClusterProfile:
        return parse(ClusterProfile, self.data, "lab.yaml")

    def quick(self) -> dict[str, Check]:
        return {check.name: check for check in quick_checks(api_of(self.cluster), self.profile, TODAY)}

    def probes(self) -> list[Check]:
        return list(probing.probe_checks(api_of(self.cluster), self.profile, self.results, TODAY))

    def make(self, resource: str, name: str, namespace: str = "plumbline", **body: Any) -> None:
        self.cluster.store.create(resource, namespace, {"metadata": {"name": name}, **body})


@pytest.fixture(name="patient")
def _patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patient]:
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(results))
    with FakeCluster(tmp_path / "cluster", nodes=["n1", "n2"]) as cluster:
        patient = Patient(cluster, results, GOOD)
        patient.change({
            "python": PYTHON, "storage": {"directory": str(tmp_path)},
            "kubernetes": {
                "access": {"kubeconfig": str(cluster.kubeconfig())}, "package": str(ROOT / "include"),
                "results": {"claim": None, "host_path": str(results), "mount": str(results)},
                "storage": {"host_path": str(tmp_path), "mount": str(tmp_path)},
            },
        })  # fmt: skip
        yield patient


def test_a_good_cluster_is_well(patient: Patient) -> None:
    found = patient.quick()
    assert {check.state for check in found.values()} == {State.OK}
    assert found["api"].found.endswith("answers: v1.36.2")
    assert found["nodes"].found == "2 of 2 can be measured now, 8 nvidia.com/gpu each"
    assert patient.cluster.store.all("pods") == []
    assert patient.cluster.store.all("jobs") == []


def deny(verb: str, resource: str) -> Callable[[Patient], Any]:
    return lambda patient: patient.cluster.api.denied.add((verb, resource))


def deny_launchers(verb: str, resource: str) -> Callable[[Patient], Any]:
    return lambda patient: patient.cluster.api.denied_to_launchers.add((verb, resource))


def a_claim(**body: Any) -> Callable[[Patient], Any]:
    def act(patient: Patient) -> None:
        patient.change({"kubernetes": {"datasets": {"claim": "data", "mount": "/data"}}})
        if body:
            patient.make("persistentvolumeclaims", "data", **body)

    return act


def settings(**changes: Any) -> Callable[[Patient], Any]:
    return lambda patient: patient.change({"kubernetes": changes})


def high_priority(patient: Patient) -> None:
    patient.make("priorityclasses", "high", namespace="", value=1000)
    patient.change({"kubernetes": {"priority_class": "high"}})


def full_quota(patient: Patient) -> None:
    amounts = {"hard": {"requests.nvidia.com/gpu": "8"}, "used": {"requests.nvidia.com/gpu": "1"}}
    patient.make("resourcequotas", "gpus", status=amounts)


def seven_gpus(patient: Patient) -> None:
    key = ("nodes", "", "n1")
    patient.cluster.store.change(key, lambda node: node["status"]["allocatable"].update({"nvidia.com/gpu": "7"}))


DEFECTS: dict[str, tuple[Callable[[Patient], Any], str, State, str, str]] = {
    "API down": (lambda p: p.cluster.api.outage(True), "api", State.FAIL, "does not answer", "kubectl version"),
    "no namespace": (lambda p: p.cluster.store.remove(("namespaces", "", "plumbline")), "namespace", State.FAIL,
                     "NotFound", "kubectl create namespace plumbline"),
    "may not create pods": (deny("create", "pods"), "rights: pods in plumbline", State.FAIL, "may not create",
                            "kubectl create role NAME -n plumbline --verb=create --resource=pods"),
    "may not read logs": (deny("get", "pods/log"), "rights: pods/log in plumbline", State.FAIL, "may not get",
                          "pods/log"),
    "may not hold the lease": (deny("update", "leases"), "rights: leases in plumbline", State.FAIL, "may not update",
                               "--resource=leases.coordination.k8s.io"),
    "may not list nodes": (deny("list", "nodes"), "rights: nodes in the cluster", State.FAIL, "may not list",
                           "kubectl create clusterrole"),
    "launcher may not create jobs": (deny_launchers("create", "jobs"), "launcher's rights: jobs", State.FAIL,
                                     "plumbline-launcher may not create", "service account plumbline-launcher"),
    "no service account": (lambda p: p.cluster.store.remove(("serviceaccounts", "plumbline", "plumbline-launcher")),
                           "service account", State.FAIL, "NotFound", "kubectl create serviceaccount"),
    "no pull secret": (settings(image_pull_secrets=["registry"]), "pull secret", State.FAIL, "NotFound",
                       "docker-registry registry"),
    "no priority class": (settings(priority_class="nightly"), "priority class", State.FAIL, "NotFound",
                          "--preemption-policy=Never"),
    "a priority that pushes others out": (high_priority, "priority class", State.WARN, "pushes out pods",
                                           "--value=-100"),
    "no queue": (settings(queue={"kind": "kueue", "name": "tests"}), "queue", State.FAIL, "NotFound", "install Kueue"),
    "no device claim": (settings(claims=[{"name": "imex", "template": "imex"}]), "device claim", State.FAIL, "NotFound",
                        "DRA driver"),
    "no Multus": (settings(networks="rail-0"), "network", State.FAIL, "could not find", "install Multus"),
    "no volume claim": (a_claim(), "volume: datasets", State.FAIL, "NotFound", "kubernetes.datasets.claim"),
    "a claim for one node": (
        a_claim(spec={"accessModes": ["ReadWriteOnce"]}, status={"phase": "Bound"}), "volume: datasets", State.FAIL,
        "ReadWriteOnce", "needs ReadWriteMany",
    ),
    "a quota that is too small": (full_quota, "quota", State.FAIL, "7 of 8 nvidia.com/gpu free", "ResourceQuota gpus"),
    "7 of 8 GPUs": (seven_gpus, "node n1", State.WARN, "missing_gpu: 7 of 8", "kubectl describe node n1"),
    "no RDMA devices": (settings(rdma={"resource": "rdma/hca", "count": 8}), "rdma", State.FAIL,
                        "fewer than 8 rdma/hca on n1 (0), n2 (0)", "device plugin"),
    "a policy that refuses Jobs": (
        lambda p: p.cluster.api.fail("POST", "/jobs.*dryRun", 403, message="violates PodSecurity", reason="Forbidden"),
        "admission: Job of workers", State.FAIL, "violates PodSecurity", "pod_overrides",
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_and_mended_in_a_sentence(patient: Patient, defect: str) -> None:
    act, name, state, found, mend = DEFECTS[defect]
    act(patient)
    check = patient.quick()[name]
    assert check.state is state
    assert found in check.found
    assert mend in check.mend


def test_nodes_whose_label_is_another_name_are_named_where_it_matters(patient: Patient) -> None:
    for number in range(3, 40):
        patient.cluster.add_node(f"n{number}", 8)
    assert patient.quick()["host names"].state is State.OK
    key = ("nodes", "", "n7")
    patient.cluster.store.change(key, lambda node: node["metadata"]["labels"].update({"kubernetes.io/hostname": "x"}))
    check = patient.quick()["host names"]
    assert (check.state, check.found.endswith("is not the name of n7")) == (State.WARN, True)


def test_results_that_can_not_be_written_here(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    (patient.results / "file").write_text("")
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(patient.results / "file" / "below"))
    check = patient.quick()["results on this side"]
    assert (check.state, "mount the results store" in check.mend) == (State.FAIL, True)


def test_a_run_is_not_prepared_on_a_cluster_that_lacks_something(patient: Patient) -> None:
    assert len(kubernetes.inventory(patient.profile, TODAY)) == 2
    patient.cluster.api.denied_to_launchers.add(("create", "jobs"))
    with pytest.raises(ConfigError, match="the cluster lacks what a run needs:\n  launcher's rights: jobs"):
        kubernetes.inventory(patient.profile, TODAY)


# -- probes --------------------------------------------------------------------------------------------------------


def test_a_good_image_answers_and_leaves_nothing(patient: Patient) -> None:
    [check] = patient.probes()
    assert (check.name, check.state) == ("image nccl_tests on n1", State.OK), check
    assert patient.cluster.store.all("pods") == []
    assert list((patient.results / probe.FOLDER).iterdir()) == []


def bad_image(patient: Patient) -> None:
    patient.cluster.bad_images["nccl-tests"] = None


def two_stores(patient: Patient) -> None:
    other = patient.results.parent / "other"
    other.mkdir()
    patient.change({"kubernetes": {"results": {"host_path": str(other), "mount": str(other)}}})


def no_package(patient: Patient) -> None:
    patient.change({"kubernetes": {"package": "/nowhere"}})


def no_storage(patient: Patient) -> None:
    patient.change({"storage": {"directory": "/nowhere"}})


def another_image(patient: Patient) -> None:
    bare = patient.results.parent / "bare"
    bare.mkdir()
    patient.change(
        {"kubernetes": {"environment": {"PATH": str(bare)}}, "images": {"fio": GOOD["images"]["nccl_tests"]}}
    )


PROBLEMS: dict[str, tuple[Callable[[Patient], Any], State, str, str]] = {
    "image pull": (bad_image, State.FAIL, "not found", "image_mirror"),
    "two different stores": (two_stores, State.FAIL, "does not see what this side wrote", "must be one store"),
    "image without this package": (no_package, State.FAIL, "No module named", "this package at /nowhere"),
    "no storage": (no_storage, State.FAIL, "storage under test: ", "mount it at or above /nowhere"),
    "no fio": (another_image, State.FAIL, "the image lacks fio, ", "add them to the image"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_only_a_pod_can_tell(patient: Patient, problem: str) -> None:
    act, state, found, mend = PROBLEMS[problem]
    act(patient)
    checks = patient.probes()
    assert any(c.state is state and found in c.found and mend in c.mend for c in checks), checks
    assert patient.cluster.store.all("pods") == []


def test_what_a_pod_says_is_judged(patient: Patient) -> None:
    patient.change({"kubernetes": {"rdma": {"resource": "rdma/hca", "count": 8}}})
    said = {
        "node": "n1", "user": None, "sees_results": True, "writes_results": None, "writes_storage": None, "missing": [],
        "gpus": 7, "rdma_devices": [], "shared_memory_bytes": 64 << 20, "python": "3.11.7",
    }  # fmt: skip
    found = {check.found.split(" ")[0]: check for check in probing._judge(patient.profile, "nccl_tests", said, True)}
    assert found["7"].found == "7 of 8 GPUs answer in the pod"
    assert {"uid", "no", "shared"} <= found.keys()
    good = {**said, "user": "x", "gpus": 8, "rdma_devices": ["uverbs0"], "shared_memory_bytes": 1 << 35}
    [well] = probing._judge(patient.profile, "nccl_tests", good, True)
    assert well.state is State.OK
    [unseen] = probing._judge(patient.profile, "nccl_tests", good, False)
    assert unseen.found == "results volume: this side does not see it"


def test_no_pod_is_started_beside_a_run(patient: Patient) -> None:
    lease.acquire(api_of(patient.cluster), patient.profile, "run-1", "nightly", timedelta(hours=1))
    [check] = patient.probes()
    assert (check.state, "run run-1 holds the cluster" in check.found) == (State.WARN, True)


def test_the_command_says_it_all(patient: Patient, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump(patient.data))
    assert cli.main(["doctor", str(path)]) == 0
    told = capsys.readouterr().out
    assert "ok    nodes: 2 of 2 can be measured now" in told
    assert "ok    image nccl_tests on n1: runs" in told
    patient.cluster.api.denied.add(("create", "pods"))
    assert cli.main(["doctor", str(path)]) == 1
    told = capsys.readouterr().out
    assert "fail  rights: pods in plumbline: this account may not create\n      → kubectl create role" in told
    assert "no pod was started" in told
    assert cli.main(["doctor", str(path), "--quick", "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines if line["state"] == "fail"] == ["rights: pods in plumbline"]
    assert cli.main(["doctor", "local"]) == 2
