"""One run per cluster at a time, across nightly, acceptance and command line: a lease in results/<cluster>/lock.json.

The lease names its holder for people. It ends when the run is sealed, when it expires, or, where the holder gave a
process, when that process is gone from this machine: a killed run doesn't block the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plumbline.errors import ClusterBusyError
from plumbline.execution.run_one import write_atomically


def acquire(folder: Path, run_id: str, holder: str, lease: timedelta, pid: int | None = None) -> str | None:
    """Take the lease, or renew one that this run holds; give the run that left one behind, if any.

    Raises ClusterBusyError naming holder and end.
    """
    now = datetime.now(UTC)
    with _guarded(folder):
        held = _read(folder)
        if held and held["run_id"] != run_id and not _void(held, now):
            raise _busy(folder, held)
        own = held is not None and held["run_id"] == run_id
        since = held["since"] if held and own and not _void(held, now) else _text(now)
        write_atomically(
            folder / "lock.json",
            json.dumps(
                {
                    "run_id": run_id,
                    "holder": holder,
                    "since": since,
                    "until": _text(now + lease),
                    "host": socket.gethostname(),
                    "machine": _machine(),
                    "pid": pid,
                    "pid_started": _process_start(pid) if pid else None,
                },
                indent=1,
            ),
        )

    return held["run_id"] if held and not own else None


def left_behind(folder: Path) -> str | None:
    """Give the run whose process is gone from this machine although its lease still runs, or None."""
    held, now = _read(folder), datetime.now(UTC)
    expired = held is not None and _void({**held, "pid": None}, now)
    return held["run_id"] if held and not expired and _void(held, now) else None


def put_back(folder: Path, run_id: str, before: str | None) -> None:
    """Undo taking the lease: leave what `peek` gave before, such as the lease of a run whose process is gone."""
    with _guarded(folder):
        held = _read(folder)
        if held and held["run_id"] == run_id:
            if before is None:
                (folder / "lock.json").unlink()
            else:
                write_atomically(folder / "lock.json", before)


def peek(folder: Path) -> str | None:
    """Give the lease as it is written, or None."""
    try:
        return (folder / "lock.json").read_text(encoding="utf-8")
    except OSError:
        return None


def release(folder: Path, run_id: str) -> None:
    """Give the lease back; nothing happens when this run doesn't hold it."""
    with _guarded(folder):
        held = _read(folder)
        if held and held["run_id"] == run_id:
            (folder / "lock.json").unlink()


def holder_of(folder: Path) -> dict[str, Any] | None:
    """Give the lease in force, or None."""
    if not folder.is_dir():
        return None
    with _guarded(folder):
        held = _read(folder)
    return held if held and not _void(held, datetime.now(UTC)) else None


def refuse_if_busy(folder: Path) -> None:
    """Raise the ClusterBusyError that `acquire` would raise now; for callers who would only learn it late."""
    if held := holder_of(folder):
        raise _busy(folder, held)


def _busy(folder: Path, held: Mapping[str, Any]) -> ClusterBusyError:
    pid = held.get("pid")
    how = f", or stop process {pid} on {held.get('host')}: the run then lets go" if pid else ""
    return ClusterBusyError(
        f"cluster {folder.name} is busy: run {held['run_id']} ({held['holder']}) holds it since {held['since']}, until "
        f"{held['until']} at the latest; wait for its end{how}"
    )


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Make read-and-write one step between processes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        data = json.loads((folder / "lock.json").read_text(encoding="utf-8"))
        return data if {"run_id", "holder", "since", "until"} <= data.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _void(held: dict[str, Any], now: datetime) -> bool:
    try:
        if datetime.fromisoformat(held["until"]) <= now:
            return True
    except ValueError:
        return True
    pid, machine = held.get("pid"), _machine()
    return isinstance(pid, int) and machine is not None and held.get("machine") == machine and _gone(pid, held)


def _gone(pid: int, held: Mapping[str, Any]) -> bool:
    """Say whether a process is certainly gone; one that can't be seen (another user's) counts as alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    started, then = _process_start(pid), held.get("pid_started")
    return started is not None and then is not None and started != then


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
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def own_process() -> int:
    """Give this process's id, for holders that live as long as the run."""
    return os.getpid()
