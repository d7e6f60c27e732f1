"""Removes what finished runs left in a cluster: only the holder of the cluster's Lease has pods there.

A run holds the Lease from its preparation to its seal, so pods and Jobs of any other run are left over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from plumbline.clusters.profile import ClusterProfile
from plumbline.kubernetes import lease
from plumbline.kubernetes.access import settings_of
from plumbline.kubernetes.api import Api, ApiError

YOUNG = timedelta(minutes=2)
"""What is younger may belong to a run whose Lease was read just before it was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """One object that was removed, or could not be (`error`)."""

    kind: str
    name: str
    run_id: str
    node: str | None = None
    error: str | None = None

    def sentence(self) -> str:
        """Say it for people."""
        where = f" on node {self.node}" if self.node else ""
        return f"{self.kind} {self.name} of run {self.run_id}{where}: {self.error or 'removed'}"


def reap(api: Api, profile: ClusterProfile, now: datetime | None = None) -> list[Removed]:
    """Remove Jobs and pods of runs that don't hold the Lease; give them. Raises ApiError when none can be listed."""
    held = lease.current(api, profile)
    keep = held["run_id"] if held is not None else None
    before = (now or datetime.now(UTC)) - YOUNG
    return _remove(api, profile, lambda run_id, made: run_id != keep and made < before)


def reap_run(api: Api, profile: ClusterProfile, run_id: str) -> list[Removed]:
    """Remove what is left of one run, however young: it has ended. Raises ApiError when nothing can be listed."""
    return _remove(api, profile, lambda found, _: found == run_id)


def remains(api: Api, profile: ClusterProfile, run_id: str) -> bool:
    """Say whether pods of a run are there, such as those that are being removed. Raises ApiError."""
    query = {"labelSelector": f"app.kubernetes.io/name=plumbline,plumbline/run={run_id}"}
    return bool(api.list(f"/api/v1/namespaces/{settings_of(profile).namespace}/pods", query)[0])


def _remove(api: Api, profile: ClusterProfile, unwanted: Callable[[str, datetime], bool]) -> list[Removed]:
    namespace = settings_of(profile).namespace
    query = {"labelSelector": f"app.kubernetes.io/name=plumbline,plumbline/cluster={profile.name}"}
    removed = []
    for kind, folder in (("Job", f"/apis/batch/v1/namespaces/{namespace}/jobs"),
                         ("Pod", f"/api/v1/namespaces/{namespace}/pods")):  # fmt: skip
        for item in api.list(folder, query)[0]:
            metadata = item["metadata"]
            run_id = (metadata.get("labels") or {}).get("plumbline/run", "")
            if metadata.get("deletionTimestamp") or not unwanted(
                run_id, datetime.fromisoformat(metadata["creationTimestamp"])
            ):
                continue
            error = None
            try:
                api.delete(f"{folder}/{metadata['name']}")
            except ApiError as refused:
                error = str(refused)
            node = (item.get("spec") or {}).get("nodeName")
            removed.append(Removed(kind=kind, name=metadata["name"], run_id=run_id, node=node, error=error))
    return removed
