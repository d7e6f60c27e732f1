"""Which nodes of a Kubernetes cluster can be measured now, and why the others not: a pure reading of API objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from plumbline.amounts import node_list
from plumbline.clusters.inventory import Inventory, InventoryNode, exclusions_in_force
from plumbline.clusters.kubernetes import Kubernetes
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError
from plumbline.kubernetes.access import settings_of
from plumbline.kubernetes.api import Api, ApiError
from plumbline.model import Code

_DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "amd.com/gpu.driver-version")
_OLD_DRIVER_LABELS = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
_SOFTWARE = {
    "kernel": "kernelVersion", "os": "osImage", "kubelet": "kubeletVersion", "runtime": "containerRuntimeVersion",
}  # fmt: skip
Object = Mapping[str, Any]


def read_inventory(api: Api, profile: ClusterProfile, today: date) -> Inventory:
    """Ask the API for nodes and for the pods that use their GPUs. Raises ApiError, ConfigError."""
    selector = profile.nodes.selector
    query = {"labelSelector": ",".join(f"{k}={v}" for k, v in selector.items())} if selector else {}
    nodes, _ = api.list("/api/v1/nodes", query)
    if not nodes:
        raise ConfigError(f"profile {profile.name}: no node matches nodes.selector {dict(selector or {})}")
    return inventory_of(profile, nodes, _pods(api, profile), today)


def _pods(api: Api, profile: ClusterProfile) -> list[dict[str, Any]]:
    """List pods that may hold GPUs: of all namespaces, or of the own one where no more may be seen."""
    alive = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    try:
        return api.list("/api/v1/pods", alive)[0]
    except ApiError as error:
        if error.status != 403:
            raise
    return api.list(f"/api/v1/namespaces/{settings_of(profile).namespace}/pods", alive)[0]


def inventory_of(profile: ClusterProfile, nodes: Iterable[Object], pods: Iterable[Object], today: date) -> Inventory:
    """Give the inventory in order of node names (in the profile's order where it lists them).

    A listed node that the API doesn't know is in it too, and so is every node that can't be measured now.
    """
    found = {node["metadata"]["name"]: node for node in nodes}
    listed = {node.name: node for node in profile.nodes.listed or ()}
    held = _held(pods, profile.accelerator.resource)
    excluded = exclusions_in_force(profile, today)
    settings = settings_of(profile)
    inventory = []
    for name in listed or sorted(found):
        node = found.get(name)
        labels = _part(node, "metadata", "labels")
        given = listed.get(name)
        code, reason = _unusable(profile, settings, name, node, held.get(name, {}), excluded)
        places = {
            place: getattr(given, place, None) or labels.get(getattr(settings.topology, place))
            for place in ("leaf", "rack", "nvlink_domain")
        }
        inventory.append(
            InventoryNode(name=name, **places, unusable=code, reason=reason, software=_software(node, labels))
        )
    return tuple(inventory)


def _held(pods: Iterable[Object], resource: str | None) -> dict[str, dict[str, int]]:
    """Give the accelerators in use: node → pod → count."""
    held: dict[str, dict[str, int]] = defaultdict(dict)
    for pod in pods:
        spec = pod.get("spec") or {}
        if not resource or not spec.get("nodeName") or _part(pod, "status").get("phase") in ("Succeeded", "Failed"):
            continue
        counts = [_count(_part(c, "resources", "requests"), resource) for c in spec.get("containers") or ()]
        first = [_count(_part(c, "resources", "requests"), resource) for c in spec.get("initContainers") or ()]
        if count := max(sum(counts), *first, 0):
            held[spec["nodeName"]][f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"] = count
    return held


def _unusable(
    profile: ClusterProfile,
    settings: Kubernetes,
    name: str,
    node: Object | None,
    held: Mapping[str, int],
    excluded: Mapping[str, str],
) -> tuple[Code | None, str]:
    """Say why a node can't be measured; (None, "") where it can."""
    if name in excluded:
        return Code.EXCLUDED, excluded[name]
    if node is None:
        return Code.NODE_LOST, "the cluster has no node of this name"
    conditions = {c.get("type"): c for c in _part(node, "status").get("conditions") or ()}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True":
        return Code.NODE_NOT_READY, str(ready.get("message") or ready.get("reason") or "the node reports nothing")
    if _part(node, "spec").get("unschedulable"):
        return Code.UNSCHEDULABLE, f"cordoned; kubectl uncordon {name}, or exclude it with an owner and an end date"
    for taint in _part(node, "spec").get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, settings):
            text = f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            return Code.UNSCHEDULABLE, f"taint {text}, which kubernetes.tolerations doesn't name"
    return _lacking(profile, node, held)


def _lacking(profile: ClusterProfile, node: Object, held: Mapping[str, int]) -> tuple[Code | None, str]:
    """Say which accelerators a node lacks, or who uses them."""
    resource, wanted = profile.accelerator.resource, profile.accelerator.per_node
    if resource is None:
        return None, ""
    allocatable = _count(_part(node, "status", "allocatable"), resource)
    if allocatable < wanted:
        capacity = _count(_part(node, "status", "capacity"), resource)
        ill = f", {capacity - allocatable} of them not healthy" if capacity > allocatable else ""
        return Code.MISSING_GPU, f"{allocatable} of {wanted} {resource} (the device plugin reports {capacity}{ill})"
    used = sum(held.values())
    if allocatable - used < wanted:
        who = node_list((f"{pod} ({count})" for pod, count in sorted(held.items())), 3)
        return Code.BUSY, f"{used} of {allocatable} {resource} in use by {who}"
    return None, ""


def _tolerated(taint: Mapping[str, Any], settings: Kubernetes) -> bool:
    return any(
        (t.effect is None or t.effect == taint.get("effect"))
        and (t.key is None or t.key == taint.get("key"))
        and (t.operator == "Exists" or (t.value or "") == (taint.get("value") or ""))
        for t in settings.tolerations
    )


def _software(node: Object | None, labels: Mapping[str, str]) -> dict[str, str]:
    info = _part(node, "status", "nodeInfo")
    found = {name: str(info[key]) for name, key in _SOFTWARE.items() if info.get(key)}
    driver = next((labels[label] for label in _DRIVER_LABELS if labels.get(label)), None)
    if driver is None and all(label in labels for label in _OLD_DRIVER_LABELS):
        driver = ".".join(labels[label] for label in _OLD_DRIVER_LABELS)
    return {**found, "driver": driver} if driver else found


def _count(amounts: Mapping[str, Any], resource: str) -> int:
    text = str(amounts.get(resource, "0"))
    return int(text) if text.isascii() and text.isdigit() else 0


def _part(data: Object | None, *keys: str) -> Mapping[str, Any]:
    """Walk into nested mappings; absent and null are empty."""
    here: Any = data
    for key in keys:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else {}
