"""One run per cluster at a time, across nightly, acceptance and command line: a lease in results/<cluster>/lock.json.

The lease names its holder for people. It ends when the run is sealed. Where the holder gave a process, and that process
can be asked for from here, it ends with the process, and neither before nor after: a killed run doesn't block the next
one, and no clock takes the cluster from a run that still measures. Otherwise it ends when it expires.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plumbline.errors import ClusterBusyError
from plumbline.execution.run_one import write_atomically

FILE = "lock.json"
_ENDED = "ended"
"""Stands for the start time of a process that has ended, and that its parent has not asked about yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What there was when a lease was taken: its text, and the other run whose lease was void by then."""

    before: str | None
    abandoned: str | None


def acquire(folder: Path, run_id: str, holder: str, lease: timedelta, pid: int | None = None) -> Taken:
    """Take the lease for the process `pid`, or renew the one that this holder has.

    A run that is taken up again is refused like any other while the process that holds it lives.
    Raises ClusterBusyError naming holder and end, also when lock.json doesn't say who holds the cluster.
    """
    now = datetime.now(UTC)
    with _guarded(folder):
        held = _read(folder)
        in_force = held is not None and not _void(held, now)
        own = held is not None and held["run_id"] == run_id
        if held and in_force and not (own and same_holder(held, pid)):
            raise _busy(folder, held)
        before = (folder / FILE).read_text(encoding="utf-8") if held else None
        since = held["since"] if held and in_force else _text(now)
        lasting = {"run_id": run_id, "holder": holder, "since": since, "until": _text(now + lease)}
        data = {**lasting, "host": socket.gethostname(), **process_of(pid)}
        write_atomically(folder / FILE, json.dumps(data, indent=1))
    return Taken(before=before, abandoned=held["run_id"] if held and not own else None)


def left_behind(folder: Path) -> str | None:
    """Give the run whose process is gone from this machine although its lease still runs, or None.

    Raises ClusterBusyError when lock.json doesn't say who holds the cluster.
    """
    held = _read(folder)
    return held["run_id"] if held and lives(held) is False and not _expired(held, datetime.now(UTC)) else None


def put_back(folder: Path, run_id: str, before: str | None) -> None:
    """Undo taking the lease: leave what there was before, such as the lease of a run whose process is gone."""
    with _guarded(folder):
        if _ours(folder, run_id):
            if before is None:
                (folder / FILE).unlink()
            else:
                write_atomically(folder / FILE, before)


def release(folder: Path, run_id: str) -> None:
    """Give the lease back; nothing happens when this run doesn't hold it, or another living process of it does."""
    with _guarded(folder):
        if _ours(folder, run_id):
            (folder / FILE).unlink()


def holder_of(folder: Path) -> dict[str, Any] | None:
    """Give the lease in force, or None. Raises ClusterBusyError when lock.json doesn't say who holds the cluster."""
    if not folder.is_dir():
        return None
    with _guarded(folder):
        held = _read(folder)
    return held if held and not _void(held, datetime.now(UTC)) else None


def refuse_if_busy(folder: Path, run_id: str | None = None) -> None:
    """Raise ClusterBusyError while somebody holds the cluster; for `run_id`, while somebody beside that run does.

    Somebody is another run, or another process that took this run up. Nobody holding it is no reason.
    """
    held = holder_of(folder)
    if held and not (held["run_id"] == run_id and may_end(held)):
        raise _busy(folder, held)


def _busy(folder: Path, held: Mapping[str, Any]) -> ClusterBusyError:
    who = f"cluster {folder.name} is busy: run {held['run_id']} ({held['holder']}) holds it since {held['since']}"
    process = f"process {held.get('pid')} on {held.get('host')}"
    if lives(held):
        return ClusterBusyError(f"{who}; wait for its end, or stop {process}: the run then lets go")
    certain = "nothing of it runs any more" if held.get("pid") is None else f"{process} is gone"
    return ClusterBusyError(
        f"{who}, until {held['until']} at the latest; wait for its end, or, when {certain} for certain, "
        f"delete {folder / FILE}"
    )


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Make read-and-write one step between processes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _read(folder: Path) -> dict[str, Any] | None:
    """Give the lease as it is written, void or not. Raises ClusterBusyError for one that doesn't say whose it is."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(data[key], str) for key in ("run_id", "holder")):
            raise TypeError("run_id or holder is no text")
        for key in ("since", "until"):
            if datetime.fromisoformat(data[key]).tzinfo is None:
                raise ValueError(f"{key} has no time zone")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ClusterBusyError(
            f"cluster {folder.name} counts as busy: {path} doesn't say which run holds it "
            f"({type(error).__name__}: {error}); when it is certain that none measures there, delete the file"
        ) from error
    found: dict[str, Any] = data
    return found


def _ours(folder: Path, run_id: str) -> bool:
    """Say whether it is this process's to end a run's lease: a damaged one is nobody's."""
    try:
        held = _read(folder)
    except ClusterBusyError:
        return False
    return held is not None and held["run_id"] == run_id and may_end(held)


def _void(held: Mapping[str, Any], now: datetime) -> bool:
    alive = lives(held)
    return _expired(held, now) if alive is None else not alive


def _expired(held: Mapping[str, Any], now: datetime) -> bool:
    return datetime.fromisoformat(held["until"]) <= now


def same_holder(held: Mapping[str, Any], pid: int | None) -> bool:
    """Say whether who asks in the name of `pid` is who holds a run's lease already.

    Tasks of one DAG run have no process in common, so they give none: holder and asker are then told by the run alone.
    """
    if held.get("pid") is None:
        return pid is None
    return any(_identity(held) == process_of(one) for one in (pid, os.getpid()) if one is not None)


def may_end(held: Mapping[str, Any]) -> bool:
    """Say whether this process may give back a run's lease: its own, one without a process, or of a process gone."""
    return held.get("pid") is None or lives(held) is False or _identity(held) == process_of(os.getpid())


def process_of(pid: int | None) -> dict[str, Any]:
    """Give what a process is known by wherever it can be asked for: `machine`, `pid` and `pid_started`."""
    return {"machine": _machine(), "pid": pid, "pid_started": _process_start(pid) if pid is not None else None}


def _identity(held: Mapping[str, Any]) -> dict[str, Any]:
    return {key: held.get(key) for key in ("machine", "pid", "pid_started")}


def lives(held: Mapping[str, Any]) -> bool | None:
    """Say whether the process that holds a lease lives; None when it gave none, or it can't be asked for from here.

    From another machine or container it can't, nor one of another user where /proc is hidden.
    """
    pid, machine, then = held.get("pid"), held.get("machine"), held.get("pid_started")
    if not isinstance(pid, int) or pid <= 0 or machine is None or machine != _machine():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    started = _process_start(pid)
    if started is None or then is None:
        return None
    return bool(started == then != _ENDED)


def _machine() -> str | None:
    """Name this boot of this kernel and its process namespace: only within it do process ids mean anything."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _process_start(pid: int) -> str | None:
    """Give the start time of a process in clock ticks since boot: a reused pid has another."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return _ENDED if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
