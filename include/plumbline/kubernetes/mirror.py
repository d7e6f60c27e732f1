"""A live copy of the objects that a selector matches, kept by one list and one watch. Standard library only."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from plumbline.kubernetes.api import Api, ApiError

_WATCH_S = 60
_PAUSE_S = (0.5, 10.0)


class Mirror:
    """Follows one kind of object. A watch that is closed goes on where it was; one that is too old lists anew.

    While the API does not answer the copy stays as it was, and `outage` says so: nothing is concluded from silence.
    """

    def __init__(self, api: Api, path: str, selector: str) -> None:
        """Prepare; `start` begins."""
        self._api, self._path, self._query = api, path, {"labelSelector": selector}
        self._lock = threading.Lock()
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._gone: dict[str, Mapping[str, Any]] = {}
        self._outage = False
        self._stop = threading.Event()
        self._listed = threading.Event()

    def start(self) -> None:
        """Follow from a thread of its own until `stop`."""
        threading.Thread(target=self._follow, daemon=True, name="mirror").start()

    def stop(self) -> None:
        """End the thread at its next change."""
        self._stop.set()

    def wait_listed(self, limit_s: float) -> bool:
        """Wait for the first whole list; say whether it came."""
        return self._listed.wait(limit_s)

    def objects(self) -> list[Mapping[str, Any]]:
        """Give the objects there are, in no order."""
        with self._lock:
            return list(self._objects.values())

    def gone(self) -> list[Mapping[str, Any]]:
        """Give the last state of objects that were there and are not any more."""
        with self._lock:
            return list(self._gone.values())

    @property
    def outage(self) -> bool:
        """Whether the API has not answered since it last failed."""
        return self._outage

    def _follow(self) -> None:
        version, pause = "", _PAUSE_S[0]
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list()
                version = self._watch(version)
                pause = _PAUSE_S[0]
            except (ApiError, ValueError, KeyError, TypeError) as error:
                # Too old (410), refused for now, down, or no Kubernetes that answers: begin anew with a list.
                version = ""
                self._outage = not isinstance(error, ApiError) or error.outage
                self._stop.wait(pause)
                pause = min(pause * 2, _PAUSE_S[1])

    def _list(self) -> str:
        items, version = self._api.list(self._path, self._query)
        with self._lock:
            found: dict[str, Mapping[str, Any]] = {item["metadata"]["uid"]: _lean(item) for item in items}
            self._gone |= {uid: item for uid, item in self._objects.items() if uid not in found}
            self._objects = found
        self._outage = False
        self._listed.set()
        return version

    def _watch(self, version: str) -> str:
        began = time.monotonic()
        for kind, item in self._api.watch(self._path, self._query, version, seconds=_WATCH_S):
            version = item["metadata"].get("resourceVersion", version)
            if kind == "BOOKMARK":
                continue
            with self._lock:
                uid = item["metadata"]["uid"]
                if kind == "DELETED":
                    self._objects.pop(uid, None)
                    self._gone[uid] = _lean(item)
                else:
                    self._objects[uid] = _lean(item)
            if self._stop.is_set():
                return version
        if time.monotonic() - began < 1:  # a server that closes at once must not be asked without pause
            self._stop.wait(_PAUSE_S[0])
        return version


def _lean(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a pod without what a launcher never reads: a thousand copies of the rest of its spec are many megabytes."""
    spec = pod.get("spec") or {}
    containers = [{"name": c.get("name"), "resources": c.get("resources")} for c in spec.get("containers") or ()]
    metadata = {key: value for key, value in pod["metadata"].items() if key not in ("managedFields", "annotations")}
    return {**pod, "metadata": metadata, "spec": {"nodeName": spec.get("nodeName"), "containers": containers}}
