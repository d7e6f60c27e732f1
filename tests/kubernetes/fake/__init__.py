"""A Kubernetes cluster for tests: a real HTTP API, a scheduler, a Job controller, and kubelets that run processes.

    with FakeCluster(tmp_path, nodes=["n1", "n2"], gpus=8) as cluster: …

Faults are methods of the cluster and of `cluster.api`. What it knows of Kubernetes is what Plumbline's pods use.
"""

from tests.kubernetes.fake.cluster import FakeCluster

__all__ = ["FakeCluster"]
