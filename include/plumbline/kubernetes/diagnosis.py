"""What a worker that did not start, or did not finish, means: a code, and a sentence that a person understands.

Standard library only.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.amounts import node_list
from plumbline.execution.pods import PREFIX
from plumbline.kubernetes.api import Api, ApiError
from plumbline.kubernetes.files import record_fault
from plumbline.model import Code, LaunchSpec, RunRecord
from plumbline.readers._kube_reasons import GPU_RESOURCE
from plumbline.readers.kubernetes import explain

Finding = tuple[Code, str]
Pod = Mapping[str, Any]

BUSY_EXIT = 75
_HOPELESS = ("InvalidImageName", "ErrImageNeverPull", "ImagePullBackOff", "CreateContainerConfigError")
"""What a container waits for that waiting does not bring."""
_MESSAGE_LENGTH = 600
DISRUPTIONS = frozenset({Code.PREEMPTED, Code.EVICTED, Code.NODE_LOST})
"""The cluster's reasons for asking a pod to end."""
TRANSIENT = frozenset({Code.NODE_LOST, Code.NODE_NOT_READY, Code.EVICTED, Code.IMAGE_PULL, Code.INFRASTRUCTURE})
"""What may be gone at the next try. Not: preemption and quota (others need the GPUs), memory, missing GPUs."""


def phase(pod: Pod) -> str:
    """Give the pod's phase; Pending where none is told."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def ended(pod: Pod) -> bool:
    """Say whether the pod will not run any more."""
    return phase(pod) in ("Succeeded", "Failed")


def ready(pod: Pod) -> bool:
    """Say whether the pod runs, has an address and answers its readiness probe."""
    status = pod.get("status") or {}
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    leaving = (pod.get("metadata") or {}).get("deletionTimestamp")
    return phase(pod) == "Running" and bool(status.get("podIP")) and conditions.get("Ready") == "True" and not leaving


def node_of(pod: Pod) -> str | None:
    """Give the node that the pod was placed on."""
    name = (pod.get("spec") or {}).get("nodeName")
    return str(name) if name else None


def removed_by_others(pod: Pod) -> bool:
    """Say whether a pod was asked to go for no fault of its own: a Job removes the rest when one pod has failed."""
    return bool(pod["metadata"].get("deletionTimestamp")) and not _disrupted(pod)


def _disrupted(pod: Pod) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "DisruptionTarget" and c.get("status") == "True" for c in conditions)


def unschedulable(pod: Pod) -> bool:
    """Say whether the scheduler looked and found no place."""
    return any(
        c.get("type") == "PodScheduled" and c.get("status") == "False" and c.get("reason") == "Unschedulable"
        for c in (pod.get("status") or {}).get("conditions") or ()
    )


def hopeless(pod: Pod) -> bool:
    """Say whether a container waits for what will not come by waiting, such as an image that does not exist."""
    status = pod.get("status") or {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return any(((s.get("state") or {}).get("waiting") or {}).get("reason") in _HOPELESS for s in statuses)


def explain_pod(api: Api, namespace: str, pod: Pod, nodes: Sequence[str] = ()) -> Finding:
    """Say why a pod did not do its work. Its events are asked for; without them its own status must do.

    `nodes` are those that the pod may go to, where it is known.
    """
    name = pod["metadata"]["name"]
    found = explain(_not_succeeded(pod), _events(api, namespace, name))
    place = f"node {found.node}" if found.node else f"pod {name}"
    if found.exit_code == BUSY_EXIT and found.category in (None, Code.BENCHMARK_FAILED):
        return Code.BUSY, f"{place}: {_short(found.message)}"
    code = found.category
    if code in (None, Code.OK, Code.BENCHMARK_FAILED):
        code = Code.INFRASTRUCTURE
    if code is Code.MISSING_GPU and found.node is None:
        code, why = _who_lacks_gpus(api, namespace, pod, nodes)
        return code, f"{why}: {_short(found.message)}"
    over = "deleted" if pod["metadata"].get("deletionTimestamp") or ended(pod) else "vanished or gave nothing"
    words = [place, found.reason or f"{over} (last seen {phase(pod)})"]
    if found.exit_code is not None and f"{found.exit_code}" not in found.message:
        words.append(f"exit code {found.exit_code}")
    told = found.message if found.reason else ""  # without a reason it is the last warning, of whatever kind
    return code, ": ".join([*words, _short(told)] if told else words)


def _who_lacks_gpus(api: Api, namespace: str, pod: Pod, planned: Sequence[str]) -> Finding:
    """Say why the scheduler found too few GPUs: a node offers less than it should, is gone, or others hold them.

    Only the first is the cluster's fault by what is seen here, and only the last is another's. What can't be told apart
    is neither.
    """
    asked = _gpus_asked(pod)
    try:
        there = {node["metadata"]["name"]: node for node in api.list("/api/v1/nodes", patience_s=0)[0]}
        own = [one for one in api.list(f"/api/v1/namespaces/{namespace}/pods", patience_s=0)[0] if not ended(one)]
    except ApiError as error:
        return Code.UNSCHEDULABLE, f"GPUs are missing or held by others, which can't be told apart here ({error})"
    siblings = {node_of(one) for one in own if _same_attempt(one, pod)}
    waited_for = [name for name in planned if name not in siblings]
    if not asked or not waited_for:
        return Code.UNSCHEDULABLE, "GPUs are missing or held by others, which can't be told apart here"
    return next(_lacking(waited_for, there, asked), None) or _held_by(waited_for, own)


def _lacking(
    names: Sequence[str], there: Mapping[str, Mapping[str, Any]], asked: Mapping[str, int]
) -> Iterator[Finding]:
    """Give what nodes lack: GPUs first, since those are a fault of the cluster."""
    for name in names:
        allocatable = (there.get(name, {}).get("status") or {}).get("allocatable") or {}
        for resource, count in asked.items():
            offered = str(allocatable.get(resource, "0"))
            if name in there and offered.isdigit() and int(offered) < count:
                yield Code.MISSING_GPU, f"node {name} offers {offered} of {count} {resource}"
    for name in names:
        if name not in there:
            yield Code.NODE_LOST, f"node {name} isn't in the cluster any more"
        elif (trouble := _not_usable(there[name])) is not None:
            yield trouble[0], f"node {name} {trouble[1]}"


def _held_by(names: Sequence[str], own: Sequence[Pod]) -> Finding:
    for one in own:
        if node_of(one) in names and _gpus_asked(one):
            return Code.INFRASTRUCTURE, f"pod {one['metadata']['name']} of ours still holds GPUs of {node_of(one)}"
    return Code.BUSY, f"others hold GPUs of {node_list(names, 3)}"


def _same_attempt(one: Pod, other: Pod) -> bool:
    keys = (PREFIX + "run", PREFIX + "launch", PREFIX + "attempt")
    names, others = ((pod["metadata"].get("labels") or {}) for pod in (one, other))
    return PREFIX + "launch" in names and all(names.get(key) == others.get(key) for key in keys)


def _not_usable(node: Mapping[str, Any]) -> Finding | None:
    conditions = (node.get("status") or {}).get("conditions") or ()
    if not any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
        return Code.NODE_NOT_READY, "isn't ready"
    if (node.get("spec") or {}).get("unschedulable"):
        return Code.UNSCHEDULABLE, "is cordoned"
    return None


def _gpus_asked(pod: Pod) -> dict[str, int]:
    """Give the extended resources that a pod asks for, such as {'nvidia.com/gpu': 8}."""
    asked: dict[str, int] = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        for name, count in ((container.get("resources") or {}).get("limits") or {}).items():
            if GPU_RESOURCE.fullmatch(name) and str(count).isdigit():
                asked[name] = asked.get(name, 0) + int(count)
    return asked


def record_disruption(api: Api, namespace: str, pod: Pod, spec: LaunchSpec, evidence: Path) -> RunRecord | None:
    """Write down why the cluster stopped a pod whose own record only says that it was stopped; None if it didn't.

    The worker's record stays; this one, under the next number, says whose doing it was (preempted, evicted …).
    """
    code, reason = explain_pod(api, namespace, pod)
    return record_fault(spec, evidence, code, reason) if code in DISRUPTIONS else None


def _not_succeeded(pod: Pod) -> Pod:
    """Give a pod that others removed as failed: programs that end well when asked to leave no other trace of it."""
    if not _disrupted(pod):
        return pod
    return {**pod, "status": {**pod["status"], "phase": "Failed"}}


def explain_job(api: Api, namespace: str, name: str) -> Finding | None:
    """Say why a Job could not make its pods, from its events; None when nothing is said."""
    found = explain({}, _events(api, namespace, name))
    if found.category is None or not found.reason:
        return None
    return found.category, f"{found.reason}: {_short(found.message)}"


def explain_waiting_job(api: Api, namespace: str, name: str) -> Finding:
    """Say why a Job still has no pods: refused, not admitted by its queue, or nobody knows."""
    if (refused := explain_job(api, namespace, name)) is not None:
        return refused
    try:
        job = api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", patience_s=0)
    except ApiError as error:
        return Code.INFRASTRUCTURE, str(error)
    if (job.get("spec") or {}).get("suspend"):
        return Code.QUOTA, f"Job {name} is suspended: its queue has not admitted it"
    return Code.INFRASTRUCTURE, f"Job {name} made no pods"


def _events(api: Api, namespace: str, name: str) -> Sequence[Mapping[str, Any]]:
    query = {"fieldSelector": f"involvedObject.name={name}"}
    try:
        return api.list(f"/api/v1/namespaces/{namespace}/events", query, patience_s=0)[0]
    except ApiError:
        return ()


def _short(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= _MESSAGE_LENGTH else text[: _MESSAGE_LENGTH - 1] + "…"


def unreachable(address: str, port: int, *, limit_s: float = 3.0) -> str | None:
    """Try to connect; give why that failed, or None."""
    try:
        socket.create_connection((address, port), timeout=limit_s).close()
    except OSError as error:
        return str(error)
    return None
