"""Where Kubernetes may put pods: the planned nodes, other nodes than those, and for how long on a lost one.

Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Data = Mapping[str, Any]
HOSTNAME = "kubernetes.io/hostname"
PINNED_BY_NAME = 32
"""Larger groups are pinned by the label HOSTNAME."""
_WHAT_IMAGES_NEED = re.compile(r"(beta\.)?kubernetes\.io/(arch|os)")


def on_nodes(nodes: Sequence[str]) -> dict[str, Any]:
    """Pin pods to nodes: by name, whatever their labels are; large groups by the label that holds the name.

    By name each node is a term of its own, in every pod: a thousand pods of a thousand terms are 100 MB in the API.
    Where a label differs from its node's name, the launcher sees it in where the pods are, and gives up.
    """
    terms: list[dict[str, Any]] = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes
    ]
    if len(nodes) > PINNED_BY_NAME:
        terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def off_gpu_nodes(profile: Data) -> dict[str, Any]:
    """Prefer other nodes for a launcher: on one that it measures it takes CPU, and is lost when that node is."""
    terms = [
        {"weight": 100, "preference": {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]}}
        for key, value in sorted((profile["nodes"]["selector"] or {}).items())
        if not _WHAT_IMAGES_NEED.fullmatch(key)
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms} if terms else {}


def apart(same: Mapping[str, str]) -> dict[str, Any]:
    """Keep pods that have all these labels on nodes of their own."""
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": dict(same)}, "topologyKey": HOSTNAME}
        ]
    }


def tolerations(settings: Data) -> list[dict[str, Any]]:
    """Give the tolerations that a profile asks for, and how long a pod stays bound to a node that is lost."""
    chosen = [{key: value for key, value in item.items() if value is not None} for item in settings["tolerations"]]
    lost = settings["waits"]["node_lost_s"]
    return chosen + [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": lost}
        for state in ("not-ready", "unreachable")
    ]
