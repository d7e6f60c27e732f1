"""API objects of the fake cluster: what is written into them as they change, and which pod fits which node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kubernetes.fake.kubelet import Container
from tests.kubernetes.fake.store import Key, now

GPU = "nvidia.com/gpu"
Body = dict[str, Any]


def key_of(body: Mapping[str, Any]) -> Key:
    resource = {"Pod": "pods", "Job": "jobs", "Node": "nodes"}[body["kind"]]
    return resource, body["metadata"].get("namespace", ""), body["metadata"]["name"]


def set_condition(body: Body, kind: str, status: str, reason: str, message: str) -> None:
    conditions = body.setdefault("status", {}).setdefault("conditions", [])
    kept = next((c for c in conditions if c["type"] == kind), None)
    fields = {"type": kind, "status": status, "reason": reason, "message": message}
    if kept is None:
        conditions.append({**fields, "lastTransitionTime": now()})
    else:
        kept.update(fields)


def place(body: Body, node: str) -> None:
    body["spec"]["nodeName"] = node
    set_condition(body, "PodScheduled", "True", "", "")


def set_container_state(body: Body, state: Body) -> None:
    container = body["spec"]["containers"][0]
    body["status"]["containerStatuses"] = [
        {"name": container["name"], "image": container["image"], "imageID": "", "ready": "running" in state,
         "restartCount": 0, "state": state}
    ]  # fmt: skip


def end(body: Body, container: Container) -> None:
    state = container.terminated()
    set_container_state(body, {"terminated": state})
    set_condition(body, "Ready", "False", "PodCompleted", "")
    if body["status"]["phase"] not in ("Failed", "Succeeded"):
        body["status"]["phase"] = "Failed" if state["exitCode"] else "Succeeded"


def _gpus(pod: Mapping[str, Any]) -> int:
    return int((pod["spec"]["containers"][0].get("resources") or {}).get("requests", {}).get(GPU, 0))


def unfit(pod: Body, node: Body, pods: list[Body]) -> str | None:
    """Say why a pod can't be on a node that holds `pods`, in the scheduler's words."""
    name, spec = node["metadata"]["name"], pod["spec"]
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required and not any(name in t["matchFields"][0]["values"] for t in required["nodeSelectorTerms"]):
        return "node(s) didn't match Pod's node affinity/selector"
    if not (spec.get("nodeSelector") or {}).items() <= node["metadata"]["labels"].items():
        return "node(s) didn't match Pod's node affinity/selector"
    if next(c for c in node["status"]["conditions"] if c["type"] == "Ready")["status"] != "True":
        return "node(s) had untolerated taint {node.kubernetes.io/unreachable: }"
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    here = [p for p in pods if p["status"]["phase"] in ("Pending", "Running")]
    if _gpus(pod) and sum(map(_gpus, here)) + _gpus(pod) > int(node["status"]["allocatable"][GPU]):
        return f"Insufficient {GPU}"
    for rule in (affinity.get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        wanted = rule["labelSelector"]["matchLabels"].items()
        if any(wanted <= (p["metadata"].get("labels") or {}).items() for p in here):
            return "node(s) didn't match pod anti-affinity rules"
    return None
