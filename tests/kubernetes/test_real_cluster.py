"""The same on a real cluster, in a namespace of the test's own that is removed afterwards.

Runs where KUBECONFIG and two more variables are set:

    KUBERNETES_TEST_IMAGE     an image with Python 3.11, this package, ssh, sshd and mpirun
    KUBERNETES_TEST_RESULTS   a directory that is the same store here and, as hostPath, on every node

KUBERNETES_TEST_PYTHON, _PACKAGE and _PROGRAMS say where things are in the image (/usr/bin/python3,
/opt/plumbline/include, /opt/plumbline/bench). KUBERNETES_TEST_RESOURCE names GPUs, such as nvidia.com/gpu; each node
has KUBERNETES_TEST_COUNT of them. Without it, pods ask for none.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plumbline.clusters.profile import ClusterProfile
from plumbline.execution import kubernetes
from plumbline.kubernetes.access import connect
from plumbline.kubernetes.api import Api
from plumbline.kubernetes.doctor import LAUNCHER_VERBS, State, quick_checks
from plumbline.tracking.run_directory import RunDirectory
from plumbline_airflow.launch import LaunchOperator
from tests.kubernetes.profiles import profile
from tests.kubernetes.runs import launches, outcomes, prepare, records, wait_for

NEEDED = ("KUBECONFIG", "KUBERNETES_TEST_IMAGE", "KUBERNETES_TEST_RESULTS")
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(not all(name in os.environ for name in NEEDED), reason=f"needs {', '.join(NEEDED)}"),
]
GONE_S = 90


@dataclass
class Site:
    """A real cluster with a namespace of our own."""

    api: Api
    namespace: str
    nodes: Sequence[str]

    def changes(self, **kubernetes_section: Any) -> dict[str, Any]:
        python = os.environ.get("KUBERNETES_TEST_PYTHON", "/usr/bin/python3")
        resource = os.environ.get("KUBERNETES_TEST_RESOURCE")
        results = os.environ["KUBERNETES_TEST_RESULTS"]
        return {
            "device": "cpu", "python": python, "nodes": {"selector": {"gpu": None}},
            "accelerator": {"resource": resource, "per_node": int(os.environ.get("KUBERNETES_TEST_COUNT", "1"))},
            "images": {"nccl_tests": os.environ["KUBERNETES_TEST_IMAGE"]},
            "kubernetes": {
                "access": {"kubeconfig": os.environ["KUBECONFIG"]}, "namespace": self.namespace,
                "unpinned_images": True,
                "results": {"claim": None, "host_path": results, "mount": results}, "shared_memory": "64Mi",
                "package": os.environ.get("KUBERNETES_TEST_PACKAGE", "/opt/plumbline/include"),
                "waits": {"start_s": 120, "unschedulable_s": 20, "orphan_s": 20, "grace_s": 10}, "retries": 0,
                **kubernetes_section,
            },
        }  # fmt: skip

    def profile(self) -> ClusterProfile:
        return profile(self.changes())

    def prepare(self, groups: Sequence[Sequence[str]], script: str, **kubernetes_section: Any) -> RunDirectory:
        programs = os.environ.get("KUBERNETES_TEST_PROGRAMS", "/opt/plumbline/bench")
        changed = self.changes(**kubernetes_section)
        specs = launches(groups, script, 120.0, changed["python"], programs, image=os.environ["KUBERNETES_TEST_IMAGE"])
        return prepare(Path(os.environ["KUBERNETES_TEST_RESULTS"]), specs, changed)

    def pods(self) -> list[dict[str, Any]]:
        return self.api.list(f"/api/v1/namespaces/{self.namespace}/pods")[0]

    def nothing_is_left(self) -> None:
        jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        wait_for(lambda: not self.pods() and not self.api.list(jobs)[0], GONE_S)

    def delete(self, pod: dict[str, Any]) -> None:
        self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")


@pytest.fixture(scope="module", name="site")
def _site() -> Iterator[Site]:
    namespace = f"plumbline-test-{secrets.token_hex(3)}"
    site = Site(connect(profile({"kubernetes": {"access": {"kubeconfig": os.environ["KUBECONFIG"]}}})), namespace, [])
    site.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    try:
        _launcher_account(site)
        found = kubernetes.read_inventory(site.api, site.profile(), date.today())
        site.nodes = [node.name for node in found if node.unusable is None]
        assert len(site.nodes) >= 2, found
        yield site
    finally:
        site.api.delete(f"/api/v1/namespaces/{namespace}")


def _launcher_account(site: Site) -> None:
    name, space = "plumbline-launcher", f"namespaces/{site.namespace}"
    site.api.create(f"/api/v1/{space}/serviceaccounts", {"metadata": {"name": name}})
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}
        for group, resource, verbs in LAUNCHER_VERBS
    ]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/{space}"
    site.api.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": site.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    site.api.create(f"{rbac}/rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": role})


def test_the_doctor_finds_nothing_that_a_run_needs(site: Site) -> None:
    wrong = [c for c in quick_checks(site.api, site.profile(), date.today()) if c.state is State.FAIL]
    assert wrong == []


def run(site: Site, prepared: RunDirectory) -> None:
    kubernetes.launch(prepared.profile(), prepared.plan().launches, prepared.evidence, print)


def test_one_node(site: Site) -> None:
    prepared = site.prepare([site.nodes[:1]], "echo on $PLUMBLINE_NODE")
    run(site, prepared)
    [record] = records(prepared).values()
    assert (record["outcome"], record["hosts"]) == ("exited", [site.nodes[0]]), record
    site.nothing_is_left()


def test_groups_of_one_node(site: Site) -> None:
    prepared = site.prepare([[node] for node in site.nodes], "echo on $PLUMBLINE_NODE")
    run(site, prepared)
    assert sorted(r["hosts"][0] for r in records(prepared).values() if r["outcome"] == "exited") == sorted(site.nodes)
    site.nothing_is_left()


def test_a_gang_of_all_nodes(site: Site) -> None:
    prepared = site.prepare([site.nodes], "echo rank $OMPI_COMM_WORLD_RANK on $PLUMBLINE_NODE")
    run(site, prepared)
    [record] = records(prepared).values()
    said = (prepared.evidence / record["raw_dir"] / "stdout").read_text()
    assert (record["outcome"], record["exit_code"]) == ("exited", 0), (record["reason"], said)
    assert {line.split()[-1] for line in said.splitlines() if line.startswith("rank")} == set(site.nodes)
    site.nothing_is_left()


@pytest.mark.parametrize("whose", ["worker", "launcher"])
def test_a_gang_that_loses_a_pod(site: Site, whose: str) -> None:
    prepared = site.prepare([site.nodes[:2]], "touch ../../../began-$PLUMBLINE_NODE; sleep 60")
    thread = threading.Thread(target=run, args=(site, prepared), daemon=True)
    thread.start()
    wait_for(lambda: len(list(prepared.path.glob("began-*"))) == 2, 180)
    parts = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod for pod in site.pods()}
    site.delete(parts[whose])
    thread.join(120)
    assert not thread.is_alive()
    assert set(outcomes(prepared).values()) <= {"infrastructure:infrastructure", "stopped:stopped"}
    assert outcomes(prepared)
    site.nothing_is_left()


def test_an_image_that_does_not_exist(site: Site) -> None:
    image = os.environ["KUBERNETES_TEST_IMAGE"]
    prepared = site.prepare([site.nodes[:1]], "true", image_mirror={image: "registry.invalid/none"})
    run(site, prepared)
    assert list(outcomes(prepared).values()) == ["infrastructure:image_pull"]
    site.nothing_is_left()


def test_the_operator(site: Site) -> None:
    prepared = site.prepare([site.nodes[:2]], "true")
    ti = SimpleNamespace(
        dag_id="d", task_id="launch", map_index=0, try_number=1, max_tries=0, xcom_push=lambda key, value: None
    )
    batch = prepared.plan().batches[0].batch_id
    launch = LaunchOperator(task_id="launch", run_dir=str(prepared.path), batch_id=batch)
    launch.execute({"ti": ti, "run_id": "manual__1", "dag": None})  # type: ignore[typeddict-item]
    assert list(outcomes(prepared).values()) == ["exited"]
    site.nothing_is_left()
