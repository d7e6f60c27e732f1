"""Kubernetes' strategic merge, by which a profile's pod_overrides change manifests. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MERGE_KEYS = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes", "imagePullSecrets", "resourceClaims"), "name"),
    "volumeMounts": "mountPath", "ports": "containerPort", "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}  # fmt: skip
"""Lists whose items are merged by a key. Source: patchMergeKey in k8s.io/api/core/v1; other lists are replaced."""


def merged(base: Any, over: Any, field: str = "") -> Any:
    """Merge as Kubernetes' strategic merge does: mappings by key, some lists by their items' key, null removes.

    Other lists and plain values are replaced. Neither argument is changed.
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        result = dict(base)
        for key, value in over.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = merged(base[key], value, key) if key in base else value
        return result
    if isinstance(base, list) and isinstance(over, list) and field in _MERGE_KEYS:
        key = _MERGE_KEYS[field]
        items = {item.get(key): item for item in base}
        for item in over:
            items[item.get(key)] = merged(items.get(item.get(key), {}), item)
        return list(items.values())
    return over
