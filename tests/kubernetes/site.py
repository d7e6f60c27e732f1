"""A real cluster, told by the environment, with a namespace of one's own that is removed afterwards.

KUBECONFIG and two more variables must be set:

    KUBERNETES_TEST_IMAGE     an image with Python 3.11, this package, ssh, sshd and mpirun
    KUBERNETES_TEST_RESULTS   a directory that is the same store here and, as hostPath, on every node

KUBERNETES_TEST_PYTHON, _PACKAGE and _PROGRAMS say where things are in the image (/usr/bin/python3,
/opt/plumbline/include, /opt/plumbline/bench). KUBERNETES_TEST_RESOURCE names GPUs, such as nvidia.com/gpu; each node
has KUBERNETES_TEST_COUNT of them. Without it, pods ask for none.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.execution import kubernetes
from plumbline.kubernetes.access import connect
from plumbline.kubernetes.api import Api
from plumbline.kubernetes.doctor import LAUNCHER_VERBS
from plumbline.tracking.run_directory import RunDirectory
from tests.kubernetes.profiles import profile
from tests.kubernetes.runs import launches, prepare, wait_for

NEEDED = ("KUBECONFIG", "KUBERNETES_TEST_IMAGE", "KUBERNETES_TEST_RESULTS")
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
                "run_as_user": os.geteuid(),
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


@contextmanager
def real_site() -> Iterator[Site]:
    """Give the cluster of the environment, with the namespace and the launcher's account made."""
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
