"""One run per cluster at a time, for everybody who reaches its API: a Lease that names its holder.

The file lock beside the results knows only those who share its file system. There is one Lease in a namespace, whatever
the profile's name: parts of a cluster that may be measured at the same time belong in namespaces of their own. It ends
when it is given back or when it expires.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ClusterBusyError
from plumbline.kubernetes.access import settings_of
from plumbline.kubernetes.api import Api, ApiError

_RUN = "plumbline/run"
NAME = "plumbline"
_MICROSECONDS = "%Y-%m-%dT%H:%M:%S.%fZ"


def acquire(api: Api, profile: ClusterProfile, run_id: str, holder: str, lease: timedelta) -> None:
    """Take the cluster's Lease, or renew one that this run holds. Raises ClusterBusyError, ApiError."""
    folder, name = _place(profile)
    for _ in range(3):
        found = _read(api, f"{folder}/{name}")
        held = holder_of(found)
        if held is not None and held["run_id"] != run_id:
            raise ClusterBusyError(
                f"cluster {profile.name} is busy: Lease {name}: run {held['holder']} holds it since "
                f"{held['since']}, until {held['until']} at the latest"
            )
        own = held is not None
        body = _body(profile, run_id, holder, lease, since=str(held["since"]) if held else None)
        try:
            if found is None:
                api.create(folder, body)
            else:
                version = found["metadata"].get("resourceVersion")
                api.replace(f"{folder}/{name}", {**body, "metadata": {**body["metadata"], "resourceVersion": version}})
        except ApiError as error:
            if error.status == 409 and not own:
                continue  # somebody was faster: look who
            raise
        return
    raise ClusterBusyError(f"cluster {profile.name} is busy: Lease {name} changes hands again and again")


def release(api: Api, profile: ClusterProfile, run_id: str) -> None:
    """Give the Lease back; nothing happens when this run doesn't hold it. Raises ApiError."""
    folder, name = _place(profile)
    held = holder_of(_read(api, f"{folder}/{name}"))
    if held is not None and held["run_id"] == run_id:
        api.delete(f"{folder}/{name}")


def current(api: Api, profile: ClusterProfile) -> Mapping[str, Any] | None:
    """Give run_id, holder, since and until of the Lease in force, or None. Raises ApiError."""
    folder, name = _place(profile)
    return holder_of(_read(api, f"{folder}/{name}"))


def holder_of(lease: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Read a Lease object; None for one that is absent, void or expired."""
    try:
        spec = (lease or {})["spec"]
        renewed = datetime.fromisoformat(spec["renewTime"])
        until = renewed + timedelta(seconds=int(spec["leaseDurationSeconds"]))
        run_id = (lease or {})["metadata"]["labels"][_RUN]
        if until <= datetime.now(UTC):
            return None
        return {"run_id": run_id, "holder": spec["holderIdentity"], "since": spec["acquireTime"],
                "until": until.isoformat(timespec="seconds")}  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def _place(profile: ClusterProfile) -> tuple[str, str]:
    namespace = settings_of(profile).namespace
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", NAME


def _read(api: Api, path: str) -> dict[str, Any] | None:
    try:
        return api.get(path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _body(profile: ClusterProfile, run_id: str, holder: str, lease: timedelta, *, since: str | None) -> dict[str, Any]:
    now = datetime.now(UTC).strftime(_MICROSECONDS)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": NAME,
            "labels": {"app.kubernetes.io/name": "plumbline", "plumbline/cluster": profile.name, _RUN: run_id},
        },
        "spec": {
            "holderIdentity": f"{run_id} ({holder}) on {socket.gethostname()}",
            "leaseDurationSeconds": int(lease.total_seconds()),
            "acquireTime": since or now,
            "renewTime": now,
        },
    }
