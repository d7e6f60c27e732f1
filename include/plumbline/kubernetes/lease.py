"""One run per cluster at a time, for everybody who reaches its API: a Lease that names its holder.

The file lock beside the results knows only those who share its file system. There is one Lease in a namespace, whatever
the profile's name: parts of a cluster that may be measured at the same time belong in namespaces of their own. It ends
when it is given back or when it expires; where its holder gave a process, no other takes that run's Lease, and on the
machine of that process it doesn't expire before the process ends.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ClusterBusyError
from plumbline.execution import lock
from plumbline.kubernetes.access import settings_of
from plumbline.kubernetes.api import Api, ApiError

_RUN = "plumbline/run"
_PROCESS = "plumbline/process"
NAME = "plumbline"
_MICROSECONDS = "%Y-%m-%dT%H:%M:%S.%fZ"


def acquire(
    api: Api, profile: ClusterProfile, run_id: str, holder: str, lease: timedelta, pid: int | None = None
) -> None:
    """Take the cluster's Lease for the process `pid`, or renew the one that this holder has.

    Raises ClusterBusyError, also while another living process of the same run holds it, and ApiError.
    """
    folder, name = _place(profile)
    for _ in range(3):
        found = _read(api, f"{folder}/{name}")
        held = holder_of(found)
        if held is not None and not _may_take(held, run_id, pid):
            raise ClusterBusyError(
                f"cluster {profile.name} is busy: Lease {name}: run {held['holder']} holds it since "
                f"{held['since']}, until {held['until']} at the latest"
            )
        body = _body(profile, run_id, holder, lease, pid, since=str(held["since"]) if held else None)
        try:
            if found is None:
                api.create(folder, body)
            else:
                version = found["metadata"].get("resourceVersion")
                api.replace(f"{folder}/{name}", {**body, "metadata": {**body["metadata"], "resourceVersion": version}})
        except ApiError as error:
            if error.status == 409:
                continue  # somebody was faster: look who
            raise
        return
    raise ClusterBusyError(f"cluster {profile.name} is busy: Lease {name} changes hands again and again")


def release(api: Api, profile: ClusterProfile, run_id: str) -> None:
    """Give the Lease back; nothing happens when this run doesn't hold it, or another living process of it does.

    Raises ApiError.
    """
    folder, name = _place(profile)
    held = holder_of(_read(api, f"{folder}/{name}"))
    if held is not None and held["run_id"] == run_id and lock.may_end(held["process"]):
        api.delete(f"{folder}/{name}")


def current(api: Api, profile: ClusterProfile) -> Mapping[str, Any] | None:
    """Give run_id, holder, since, until and process of the Lease in force, or None. Raises ApiError."""
    folder, name = _place(profile)
    return holder_of(_read(api, f"{folder}/{name}"))


def holder_of(lease: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Read a Lease object; None for one that is absent, void or expired.

    `process` is what the holder's process is known by (`lock.process_of`); empty where the holder gave none.
    """
    try:
        spec = (lease or {})["spec"]
        renewed = datetime.fromisoformat(spec["renewTime"])
        until = renewed + timedelta(seconds=int(spec["leaseDurationSeconds"]))
        metadata = (lease or {})["metadata"]
        run_id, process = metadata["labels"][_RUN], _process(metadata)
        if until <= datetime.now(UTC) and not lock.lives(process):
            return None
        return {"run_id": run_id, "holder": spec["holderIdentity"], "since": spec["acquireTime"],
                "until": until.isoformat(timespec="seconds"), "process": process}  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def _may_take(held: Mapping[str, Any], run_id: str, pid: int | None) -> bool:
    """Say whether a Lease in force is the asker's own, or of a process of the same run that is gone."""
    process = held["process"]
    return held["run_id"] == run_id and (lock.lives(process) is False or lock.same_holder(process, pid))


def _process(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the holder's process; one that can't be read counts as one that nobody can ask for."""
    text = (metadata.get("annotations") or {}).get(_PROCESS)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        found = None
    return found if isinstance(found, dict) and found.get("pid") is not None else {"pid": str(text)}


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


def _body(
    profile: ClusterProfile, run_id: str, holder: str, lease: timedelta, pid: int | None, *, since: str | None
) -> dict[str, Any]:
    now = datetime.now(UTC).strftime(_MICROSECONDS)
    process = "" if pid is None else f", process {pid}"
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": NAME,
            "labels": {"app.kubernetes.io/name": "plumbline", "plumbline/cluster": profile.name, _RUN: run_id},
            **({"annotations": {_PROCESS: json.dumps(lock.process_of(pid))}} if pid is not None else {}),
        },
        "spec": {
            "holderIdentity": f"{run_id} ({holder}) on {socket.gethostname()}{process}",
            "leaseDurationSeconds": int(lease.total_seconds()),
            "acquireTime": since or now,
            "renewTime": now,
        },
    }
