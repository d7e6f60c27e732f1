"""The `kubernetes` section of a cluster profile: how the API is reached, and what pods look like on this cluster."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from plumbline.configuration import Document

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
Seconds = Annotated[int, Field(ge=1, le=86400)]


class Access(Document):
    """How the API is reached. With no form given: the pod's own service account, else KUBECONFIG or ~/.kube/config."""

    in_cluster: bool = False
    kubeconfig: str | None = None
    """A kubeconfig file; relative to the project root."""
    context: str | None = None
    connection: str | None = None
    """An Airflow connection of type kubernetes. Only Airflow knows it: not for the command line."""

    @model_validator(mode="after")
    def _at_most_one(self) -> Access:
        given = [name for name in ("in_cluster", "kubeconfig", "connection") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"at most one of in_cluster, kubeconfig, connection, not {given}")
        return self


class Volume(Document):
    """A volume that every node reaches: exactly one of `claim` (PersistentVolumeClaim) and `host_path`."""

    mount: Annotated[str, Field(pattern=r"^/")]
    """Where pods see it."""
    claim: Name | None = None
    host_path: Annotated[str, Field(pattern=r"^/")] | None = None
    sub_path: str | None = None
    read_only: bool = False

    @model_validator(mode="after")
    def _exactly_one(self) -> Volume:
        if (self.claim is None) == (self.host_path is None):
            raise ValueError("exactly one of claim and host_path")
        return self


class Topology(Document):
    """Node labels that say where a node is. A label that a node lacks leaves its place unknown."""

    leaf: str = "network.topology.nvidia.com/leaf"
    rack: str = "topology.kubernetes.io/rack"
    nvlink_domain: str = "nvidia.com/gpu.clique"


class Rdma(Document):
    """How pods get at RDMA: a device plugin's resource, or the host's network. Either brings IPC_LOCK."""

    resource: str | None = None
    """Such as rdma/hca or nvidia.com/mlnxnics."""
    count: Annotated[int, Field(ge=1, le=64)] = 1


class Queue(Document):
    """What admits pods beside the scheduler."""

    kind: Literal["none", "kueue", "volcano"] = "none"
    name: str | None = None

    @model_validator(mode="after")
    def _named(self) -> Queue:
        if (self.kind == "none") != (self.name is None):
            raise ValueError(f"a queue of kind {self.kind} {'has no' if self.kind == 'none' else 'needs a'} name")
        return self


class Toleration(Document):
    """A taint that pods of this project tolerate."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Claim(Document):
    """A device claim (DRA), such as an IMEX channel: the name of a ResourceClaimTemplate in the namespace."""

    name: Name
    template: Name


class Waits(Document):
    """How long a launch may wait before it is given up, in seconds. Waiting pods may hold other nodes' GPUs."""

    start_s: Seconds = 600
    """From creating the workers until all of them are ready, pulling the image included."""
    unschedulable_s: Seconds = 60
    """While the scheduler says that a worker fits nowhere."""
    orphan_s: Seconds = 90
    """After which workers end by themselves when their launcher says nothing more."""
    node_lost_s: Seconds = 60
    """How long pods stay bound to a node that doesn't answer (tolerationSeconds)."""
    grace_s: Seconds = 30
    outage_s: Seconds = 600
    """How long an API server that doesn't answer is waited for while a launch runs."""


class Idle(Document):
    """When a node's GPUs are idle and cool enough to be measured; where they never get so, the launch is NOT_RUN."""

    utilization_percent: Annotated[float, Field(ge=0, le=100)] = 5
    temperature_degc: Annotated[float, Field(gt=0)] | None = None
    wait_s: Annotated[int, Field(ge=0, le=3600)] = 120


class Kubernetes(Document):
    """How benchmarks run on one Kubernetes cluster."""

    namespace: Name = "plumbline"
    access: Access = Access()
    service_account: Name = "plumbline-launcher"
    """Of launcher pods. Pods that hold GPUs have no token."""
    results: Volume
    """The results store as pods mount it; the profile's `results` is the same store as Airflow mounts it."""
    storage: Volume | None = None
    """The file system under test, mounted where the profile's `storage.directory` lies."""
    datasets: Volume | None = None
    package: Annotated[str, Field(pattern=r"^/")] = "/opt/plumbline/include"
    """Where the images hold this package."""
    topology: Topology = Topology()
    tolerations: tuple[Toleration, ...] = ()
    rdma: Rdma | None = None
    host_network: bool = False
    networks: str | None = None
    """Multus: value of the annotation k8s.v1.cni.cncf.io/networks."""
    socket_interface: str | None = None
    """Interface of NCCL's, gloo's and MPI's TCP traffic."""
    rdma_devices: str | None = None
    """NCCL_IB_HCA, such as '=mlx5_0,mlx5_1'."""
    environment: dict[str, str] = {}
    """Variables of every pod; never secrets, since manifests are evidence."""
    cpu: Quantity | None = None
    memory: Quantity | None = None
    """CPUs and memory of a GPU pod: requests; memory is the limit too."""
    shared_memory: Quantity = "32Gi"
    """Size of /dev/shm, in memory: NCCL and torch need far more than the 64 MiB that containers get."""
    hugepages: dict[Annotated[str, Field(pattern=r"^hugepages-")], Quantity] = {}
    claims: tuple[Claim, ...] = ()
    priority_class: Name | None = None
    queue: Queue = Queue()
    image_pull_secrets: tuple[Name, ...] = ()
    image_mirror: dict[str, str] = {}
    """Prefixes of image names and what takes their place: {'nvcr.io/': 'registry.example/nvcr/'}."""
    unpinned_images: bool = False
    """Whether images may be named without a digest. Then two nights may measure two programs under one name."""
    run_as_user: Annotated[int, Field(ge=0)] = 1000
    fs_group: Annotated[int, Field(ge=0)] | None = None
    ssh_port: Annotated[int, Field(ge=1024, le=65535)] = 2222
    retries: Annotated[int, Field(ge=0, le=3)] = 1
    """How often a launch that infrastructure stopped is tried again. Never one that gave an answer."""
    waits: Waits = Waits()
    idle: Idle = Idle()
    pod_overrides: dict[Literal["metadata", "spec"], Any] = {}
    """Strategic merge over every pod that holds GPUs ({spec: {…}, metadata: {…}}): what no other key can say."""
