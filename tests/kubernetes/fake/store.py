"""The objects of the fake cluster, their versions, and the history that watches read."""

from __future__ import annotations

import bisect
import copy
import itertools
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Key = tuple[str, str, str]
"""Resource, namespace ("" for none), name."""
KINDS = {
    "pods": ("v1", "Pod"), "nodes": ("v1", "Node"), "events": ("v1", "Event"), "namespaces": ("v1", "Namespace"),
    "jobs": ("batch/v1", "Job"), "leases": ("coordination.k8s.io/v1", "Lease"), "secrets": ("v1", "Secret"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"), "resourcequotas": ("v1", "ResourceQuota"),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass"), "serviceaccounts": ("v1", "ServiceAccount"),
    "configmaps": ("v1", "ConfigMap"), "services": ("v1", "Service"),
    "localqueues": ("kueue.x-k8s.io/v1beta1", "LocalQueue"),
    "roles": ("rbac.authorization.k8s.io/v1", "Role"), "rolebindings": ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    "resourceclaimtemplates": ("resource.k8s.io/v1", "ResourceClaimTemplate"),
}  # fmt: skip


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ConflictError(Exception):
    """The name is taken, or the object was changed since it was read."""


class Store:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.objects: dict[Key, dict[str, Any]] = {}
        self.history: list[tuple[int, str, Key, dict[str, Any]]] = []
        self.oldest = 0
        self._versions = itertools.count(100)
        self.version = 100

    def create(self, resource: str, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            body = copy.deepcopy(body)
            metadata = body.setdefault("metadata", {})
            if "name" not in metadata:
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            key = (resource, namespace, metadata["name"])
            if key in self.objects:
                raise ConflictError(f'{resource} "{metadata["name"]}" already exists')
            api_version, kind = KINDS[resource]
            body["apiVersion"], body["kind"] = api_version, kind
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
            if namespace:
                metadata["namespace"] = namespace
            self._put("ADDED", key, body)
            return copy.deepcopy(body)

    def change(self, key: Key, edit: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
        with self.lock:
            if key not in self.objects:
                return None
            body = copy.deepcopy(self.objects[key])
            edit(body)
            if body != self.objects[key]:
                self._put("MODIFIED", key, body)
            return copy.deepcopy(body)

    def replace(self, key: Key, body: dict[str, Any]) -> dict[str, Any] | None:
        with self.lock:
            if key not in self.objects:
                return None
            there = self.objects[key]["metadata"]
            asked = body["metadata"].get("resourceVersion")
            if asked and asked != there["resourceVersion"]:
                raise ConflictError("the object has been modified; please apply your changes to the latest version")
            body = copy.deepcopy(body)
            body["metadata"] = {**there, **body["metadata"]}
            self._put("MODIFIED", key, body)
            return copy.deepcopy(body)

    def remove(self, key: Key) -> dict[str, Any] | None:
        with self.lock:
            body = self.objects.pop(key, None)
            if body is not None:
                self._put("DELETED", key, body)
            return body

    def get(self, key: Key) -> dict[str, Any] | None:
        with self.lock:
            return copy.deepcopy(self.objects.get(key))

    def all(self, resource: str, namespace: str = "") -> list[dict[str, Any]]:
        """Give the objects of a resource; all namespaces' for ""."""
        return copy.deepcopy(self.see(resource, namespace))

    def see(self, resource: str, namespace: str = "") -> list[dict[str, Any]]:
        """Give them to look at only: what is stored is replaced, never changed, so a thousand need not be copied."""
        with self.lock:
            return [
                body for (kind, where, _), body in self.objects.items() if kind == resource and namespace in ("", where)
            ]

    def since(self, version: int) -> list[tuple[int, str, Key, dict[str, Any]]]:
        """Give what has happened after a version, in order."""
        with self.lock:
            return self.history[bisect.bisect_right(self.history, version, key=lambda entry: entry[0]) :]

    def forget_history(self) -> None:
        """Make every watch that goes on from before now meet 410."""
        with self.lock:
            self.oldest = self.version
            self.history.clear()
            self.changed.notify_all()

    def _put(self, kind: str, key: Key, body: dict[str, Any]) -> None:
        self.version = next(self._versions)
        body["metadata"]["resourceVersion"] = str(self.version)
        if kind != "DELETED":
            self.objects[key] = body
        self.history.append((self.version, kind, key, copy.deepcopy(body)))
        self.changed.notify_all()


def matches(body: dict[str, Any], labels: str, fields: str) -> bool:
    """Say whether an object matches a label selector and a field selector (equalities only)."""
    found = body["metadata"].get("labels") or {}
    return all(_holds(found.get, term) for term in labels.split(",") if term) and all(
        _holds(lambda path: _field(body, path), term) for term in fields.split(",") if term
    )


def _holds(value: Callable[[str], Any], term: str) -> bool:
    if "!=" in term:
        key, _, wanted = term.partition("!=")
        return value(key) != wanted
    if "=" in term:
        key, _, wanted = term.partition("=")
        return value(key) == wanted.lstrip("=")
    return (value(term[1:]) is None) if term.startswith("!") else value(term) is not None


def _field(body: dict[str, Any], path: str) -> Any:
    here: Any = body
    for part in path.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here
