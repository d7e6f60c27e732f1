"""Pods and Jobs as plain data, as the Kubernetes API takes them. Standard library only: launchers build workers.

Where a batch means one node, its pod is the GPU pod itself. Otherwise the pod is a launcher without GPUs, and every
launch of the batch is one Job of GPU pods (workers), pinned to the planned nodes, owned by the launcher's pod.
`profile` is evidence/profile.json: a ClusterProfile as plain data, with every default filled in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.execution.pod_placement import apart, off_gpu_nodes, on_nodes, tolerations
from plumbline.execution.strategic_merge import merged
from plumbline.model import Contends, LaunchSpec

Data = Mapping[str, Any]
CONTAINER = "base"
"""Name of the container that works: the one that KubernetesPodOperator follows."""
PREFIX = "plumbline/"
DEADLINE_MARGIN_S = 120
"""run_one ends a benchmark at its own limit, Kubernetes a pod so much later: a hang leaves a record first."""
LAUNCHER_CPU = "2"
LAUNCHER_MIB, GANG_MIB = 512, 3
"""Memory of a launcher, and for each group of several nodes that runs at the same time: mpirun, briefly ssh.

Source: measured, Open MPI 4.1.4: 28 MiB, and at 256 groups 2.9 MiB of proportional set size an mpirun, 3.2 MiB with
what the kernel holds for it; a single one has 6 MiB.
"""
_LONGEST_NAME = 52
"""Pods of a Job add an index and six characters to its name, and a label holds 63."""
_FIELDS = {
    "PLUMBLINE_POD": "metadata.name", "PLUMBLINE_POD_UID": "metadata.uid", "PLUMBLINE_POD_IP": "status.podIP",
    "PLUMBLINE_NODE": "spec.nodeName",
}  # fmt: skip


def object_name(run_id: str, *parts: str) -> str:
    """Give the name of an object of a run: the same for the same parts, at most 52 characters, a DNS label."""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(["pl", run_id[-6:], *parts]).lower()).strip("-")
    if len(text) <= _LONGEST_NAME:
        return text
    return f"{text[: _LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def labels(spec: LaunchSpec, component: str, **more: str) -> dict[str, str]:
    """Give the labels of an object: what it is, of which run, benchmark and rung; `more` such as batch and attempt."""
    return {
        "app.kubernetes.io/name": "plumbline",
        "app.kubernetes.io/component": component,
        PREFIX + "cluster": spec.cluster,
        PREFIX + "run": spec.run_id,
        PREFIX + "benchmark": spec.benchmark,
        PREFIX + "node-count": str(spec.node_count),
        **{PREFIX + key: value for key, value in more.items()},
    }


def selector(run_id: str, batch_id: str) -> str:
    """Give the label selector of everything that belongs to a batch."""
    return f"{PREFIX}run={run_id},{PREFIX}batch={batch_id}"


def on_one_node(specs: Sequence[LaunchSpec]) -> bool:
    """Say whether all launches are for the same single node: then the batch's pod is the GPU pod itself."""
    return all(spec.nodes == specs[0].nodes and len(spec.nodes) == 1 for spec in specs)


def rounds(specs: Sequence[LaunchSpec]) -> list[list[LaunchSpec]]:
    """Cut a batch into rounds that run one after the other: repeats and waves, and one group where storage is shared.

    Within a round no node is in two launches.
    """
    found: dict[Any, list[LaunchSpec]] = {}
    for spec in specs:
        alone = spec.group if spec.contends is Contends.STORAGE else None
        found.setdefault((spec.repeat, spec.wave, alone), []).append(spec)
    return list(found.values())


def batch_seconds(profile: Data, specs: Sequence[LaunchSpec]) -> int:
    """Give the most seconds that a batch's pod may run, retries and the start of workers included."""
    settings = profile["kubernetes"]
    idle = settings["idle"]["wait_s"]
    if on_one_node(specs):
        return int(sum(spec.timeout_s + idle for spec in specs)) + DEADLINE_MARGIN_S
    waits = settings["waits"]
    each = sum(
        max(spec.timeout_s for spec in group) + idle + waits["start_s"] + waits["grace_s"] for group in rounds(specs)
    )
    return int(each * (1 + settings["retries"])) + DEADLINE_MARGIN_S


# ---------------------------------------------------------------------------------------------------------------
# Objects


def batch_pod(profile: Data, batch_id: str, specs: Sequence[LaunchSpec], evidence: Path) -> dict[str, Any]:
    """Give the pod of a batch. `evidence` is the run's directory as pods see it."""
    single = on_one_node(specs)
    program = ["plumbline.kubernetes.node" if single else "plumbline.kubernetes.gang"]
    program += ["--evidence", str(evidence), "--batch", batch_id]
    component = "benchmark" if single else "launcher"
    spec = specs[0]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": object_name(spec.run_id, batch_id),
            "namespace": profile["kubernetes"]["namespace"],
            "labels": {**labels(spec, component, batch=batch_id), **_queue_labels(profile, single)},
            "annotations": _annotations(profile, single),
        },
        "spec": _pod_spec(profile, spec, program, gpus=single, token=not single),
    }
    pod["spec"]["activeDeadlineSeconds"] = batch_seconds(profile, specs)
    if not single:
        at_once = max(sum(len(one.nodes) > 1 for one in group) for group in rounds(specs))
        memory = f"{LAUNCHER_MIB + GANG_MIB * at_once}Mi"
        resources = {"requests": {"cpu": LAUNCHER_CPU, "memory": memory}, "limits": {"memory": memory}}
        pod["spec"]["containers"][0]["resources"] = resources
        if elsewhere := off_gpu_nodes(profile):
            pod["spec"]["affinity"] = {"nodeAffinity": elsewhere}
    else:
        pod["spec"]["affinity"] = {"nodeAffinity": on_nodes(spec.nodes)}
        pod = merged(pod, profile["kubernetes"]["pod_overrides"])
    return pod


def worker_job(
    profile: Data,
    batch_id: str,
    spec: LaunchSpec,
    attempt: int,
    evidence: Path,
    owner: tuple[str, str],
    public_key: str | None,
) -> dict[str, Any]:
    """Give the Job of one launch's workers, owned by the launcher's pod (name, uid).

    One node: the worker runs the benchmark itself. Several: workers run sshd for the holder of the private key.
    """
    several = len(spec.nodes) > 1
    program = ["plumbline.kubernetes.worker" if several else "plumbline.kubernetes.node"]
    program += ["--evidence", str(evidence), "--batch", batch_id, "--launch", spec.launch_id]
    program += ["--attempt", str(attempt)]
    waits = profile["kubernetes"]["waits"]
    run_s = int(spec.timeout_s) + profile["kubernetes"]["idle"]["wait_s"] + DEADLINE_MARGIN_S
    names = labels(spec, "worker", batch=batch_id, launch=spec.launch_id, attempt=str(attempt))
    name = object_name(spec.run_id, spec.launch_id, f"a{attempt}")
    pod: dict[str, Any] = {
        "metadata": {"labels": names, "annotations": _annotations(profile, gpus=True)},
        "spec": _pod_spec(profile, spec, program, gpus=True, token=False),
    }
    # A gang's workers live as long as the launcher waits for the last of them, and then for its benchmark.
    pod["spec"]["activeDeadlineSeconds"] = run_s + (waits["start_s"] if several else 0)
    same = {PREFIX + "run": spec.run_id, PREFIX + "launch": spec.launch_id, PREFIX + "attempt": str(attempt)}
    pod["spec"]["affinity"] = {"nodeAffinity": on_nodes(spec.nodes), "podAntiAffinity": apart(same)}
    pod["spec"]["containers"][0]["env"].insert(0, {"name": "PLUMBLINE_LAUNCHER", "value": owner[1]})
    if several:
        _serve_ssh(pod["spec"], profile["kubernetes"]["ssh_port"], public_key or "")
    pod = merged(pod, profile["kubernetes"]["pod_overrides"])
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": profile["kubernetes"]["namespace"],
            "labels": {**names, **_queue_labels(profile, gpus=True)},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": owner[0], "uid": owner[1], "blockOwnerDeletion": False}
            ],
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": len(spec.nodes),
            "parallelism": len(spec.nodes),
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": run_s + waits["start_s"],
            "ttlSecondsAfterFinished": 600,
            "template": pod,
        },
    }


# ---------------------------------------------------------------------------------------------------------------
# Parts


def _pod_spec(profile: Data, spec: LaunchSpec, program: Sequence[str], *, gpus: bool, token: bool) -> dict[str, Any]:
    settings = profile["kubernetes"]
    volumes, mounts = _volumes(settings, gpus=gpus)
    # A launcher of gangs runs the benchmark's mpirun and reaches workers by it: both must be of one image.
    image = spec.image if gpus or len(spec.nodes) > 1 else profile["images"].get("launcher", spec.image)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": mirrored(str(image), settings["image_mirror"]),
        "imagePullPolicy": "IfNotPresent",
        "command": [profile["python"], "-m", *program],
        "env": _environment(settings),
        "resources": _resources(profile) if gpus else {},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {
                "drop": ["ALL"],
                **({"add": added} if (added := _capabilities(settings, spec, gpus)) else {}),
            },
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    user = settings["run_as_user"]
    security: dict[str, Any] = {"runAsUser": user, "runAsGroup": user, "seccompProfile": {"type": "RuntimeDefault"}}
    security["runAsNonRoot"] = user != 0
    if settings["fs_group"] is not None:
        security |= {"fsGroup": settings["fs_group"], "fsGroupChangePolicy": "OnRootMismatch"}
    found: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": token,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings["waits"]["grace_s"],
        "securityContext": security,
        "tolerations": tolerations(settings),
        "containers": [container],
        "volumes": volumes,
    }
    if token:
        found["serviceAccountName"] = settings["service_account"]
    if gpus and profile["nodes"]["selector"]:
        found["nodeSelector"] = dict(profile["nodes"]["selector"])
    if settings["priority_class"]:
        found["priorityClassName"] = settings["priority_class"]
    if settings["image_pull_secrets"]:
        found["imagePullSecrets"] = [{"name": name} for name in settings["image_pull_secrets"]]
    if settings["queue"]["kind"] == "volcano":
        found["schedulerName"] = "volcano"
    if settings["host_network"]:
        found |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if gpus and settings["claims"]:
        found["resourceClaims"] = [
            {"name": c["name"], "resourceClaimTemplateName": c["template"]} for c in settings["claims"]
        ]
    return found


def _capabilities(settings: Data, spec: LaunchSpec, gpus: bool) -> list[str]:
    """Give what a pod may besides nothing: lock memory for RDMA, and what the sshd of root insists on."""
    found = ["IPC_LOCK"] if gpus and _rdma(settings) else []
    if gpus and len(spec.nodes) > 1 and settings["run_as_user"] == 0:
        found += ["SETGID", "SETUID", "SYS_CHROOT"]
    return found


def _environment(settings: Data) -> list[dict[str, Any]]:
    fixed = {"PYTHONPATH": settings["package"], "PYTHONUNBUFFERED": "1", "HOME": "/tmp"}  # noqa: S108 - any uid
    if interface := settings["socket_interface"]:
        fixed |= {
            "NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface,
            "OMPI_MCA_btl_tcp_if_include": interface, "OMPI_MCA_oob_tcp_if_include": interface,
        }  # fmt: skip
    if settings["rdma_devices"]:
        fixed["NCCL_IB_HCA"] = settings["rdma_devices"]
    fixed |= settings["environment"]
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in sorted(fixed.items())]
    return found + [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in _FIELDS.items()]


def _resources(profile: Data) -> dict[str, Any]:
    """Give requests and limits. GPUs and memory are asked for exactly; CPU has no limit, which would throttle."""
    settings = profile["kubernetes"]
    exact: dict[str, str] = dict(settings["hugepages"])
    if profile["accelerator"]["resource"]:
        exact[profile["accelerator"]["resource"]] = str(profile["accelerator"]["per_node"])
    if settings["rdma"] and settings["rdma"]["resource"]:
        exact[settings["rdma"]["resource"]] = str(settings["rdma"]["count"])
    if settings["memory"]:
        exact["memory"] = settings["memory"]
    requests = {**exact, **({"cpu": settings["cpu"]} if settings["cpu"] else {})}
    found: dict[str, Any] = {"requests": requests, "limits": exact}
    if settings["claims"]:
        found["claims"] = [{"name": claim["name"]} for claim in settings["claims"]]
    return found


def _volumes(settings: Data, *, gpus: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    names = ["results", *(("storage", "datasets") if gpus else ())]
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    for name in names:
        volume = settings[name]
        if volume is None:
            continue
        source: dict[str, Any] = (
            {"persistentVolumeClaim": {"claimName": volume["claim"]}}
            if volume["claim"]
            else {"hostPath": {"path": volume["host_path"], "type": "Directory"}}
        )
        volumes.append({"name": name, **source})
        mount = {"name": name, "mountPath": volume["mount"]}
        mount |= {"subPath": volume["sub_path"]} if volume["sub_path"] else {}
        mounts.append({**mount, **({"readOnly": True} if volume["read_only"] else {})})
    if gpus:
        size = settings["shared_memory"]
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108 - what NCCL uses
    for size in settings["hugepages"] if gpus else ():
        medium = "HugePages-" + size.removeprefix("hugepages-")
        volumes.append({"name": size.lower(), "emptyDir": {"medium": medium}})
        mounts.append({"name": size.lower(), "mountPath": f"/dev/{size.lower()}"})
    if not gpus:
        volumes.append({"name": "keys", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
        mounts.append({"name": "keys", "mountPath": "/run/plumbline"})
    return volumes, mounts


def _rdma(settings: Data) -> bool:
    return settings["rdma"] is not None or bool(settings["rdma_devices"])


def _annotations(profile: Data, gpus: bool) -> dict[str, str]:
    settings = profile["kubernetes"]
    found = {}
    if gpus and settings["networks"]:
        found["k8s.v1.cni.cncf.io/networks"] = settings["networks"]
    if gpus and settings["queue"]["kind"] == "volcano":
        found["scheduling.volcano.sh/queue-name"] = settings["queue"]["name"]
    return found


def _queue_labels(profile: Data, gpus: bool) -> dict[str, str]:
    queue = profile["kubernetes"]["queue"]
    return {"kueue.x-k8s.io/queue-name": queue["name"]} if gpus and queue["kind"] == "kueue" else {}


def _serve_ssh(pod_spec: dict[str, Any], port: int, public_key: str) -> None:
    container = pod_spec["containers"][0]
    container["env"] = [
        {"name": "PLUMBLINE_PUBLIC_KEY", "value": public_key},
        {"name": "PLUMBLINE_SSH_PORT", "value": str(port)},
        *container["env"],
    ]
    container["ports"] = [{"name": "ssh", "containerPort": port}]
    container["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 1}


def mirrored(image: str, mirror: Mapping[str, str]) -> str:
    """Give the image's name at the mirror: the longest prefix that matches is replaced."""
    prefix = max((known for known in mirror if image.startswith(known)), key=len, default="")
    return mirror[prefix] + image.removeprefix(prefix) if prefix else image
