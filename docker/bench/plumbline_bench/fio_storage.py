"""The directory under test: is it there, what is it, and our own corner of it that leaves nothing behind.

Standard library only. A missing mount, a refused permission, a read-only or full file system and a hung server are told
apart here, so that none of them is ever taken for a slow one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

CORNER = "plumbline-fio"
"""The one directory that this program ever makes below the directory under test."""
STALE_S = 1800.0
"""A run of another machine whose heartbeat is older than this is dead; a live one beats every HEARTBEAT_S."""
HEARTBEAT_S = 5.0
PROBE_S = 20.0
"""A file system that does not answer a stat for this long hangs."""
BLOCK = 4096
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs")
_OWN_FILE = re.compile(r"client-\d+\.dat|owner\.json|probe")

KINDS = {
    "usage": 2, "fio_missing": 10, "directory_missing": 11, "permission": 12, "read_only": 13, "no_space": 14,
    "not_mounted": 15, "io_error": 16, "mount_hung": 17, "client_failed": 18, "too_slow": 19, "stalled": 20,
    "stopped": 143,
}  # fmt: skip
"""What can go wrong, and the exit code that says so."""
_KIND_OF_ERRNO = {
    errno.ENOENT: "directory_missing", errno.ENOTDIR: "directory_missing", errno.EACCES: "permission",
    errno.EPERM: "permission", errno.EROFS: "read_only", errno.ENOSPC: "no_space", errno.EDQUOT: "no_space",
    errno.ESTALE: "io_error", errno.EIO: "io_error", errno.ENOTCONN: "io_error", errno.ENXIO: "io_error",
    errno.ENODEV: "io_error", errno.EHOSTDOWN: "io_error", errno.ETIMEDOUT: "io_error", errno.EREMOTEIO: "io_error",
}  # fmt: skip


class StorageError(Exception):
    """The storage cannot be measured: `kind` is one of KINDS, `number` the errno where there is one."""

    def __init__(self, kind: str, message: str, number: int | None = None) -> None:
        """Hold what is written to the facts file."""
        super().__init__(message)
        self.kind = kind
        self.number = number

    def plain(self) -> dict[str, Any]:
        """Give the error as plain data."""
        name = errno.errorcode.get(self.number) if self.number else None
        return {"kind": self.kind, "message": str(self), "errno": name, "exit_code": KINDS[self.kind]}


def kind_of(number: int) -> str:
    """Give the kind of an errno."""
    return _KIND_OF_ERRNO.get(number, "io_error")


@contextlib.contextmanager
def explained(doing: str) -> Any:
    """Turn an OSError into a StorageError that says what was being done."""
    try:
        yield
    except OSError as error:
        raise StorageError(kind_of(error.errno or 0), f"{doing}: {error.strerror}", error.errno) from error


def check_directory(directory: Path, *, create: bool, require_mount: bool) -> None:
    """See that the directory is there and answers. Raises StorageError."""
    if create:
        with explained(f"cannot create {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
    _answers(directory)
    with explained(f"cannot use {directory}"):
        if not directory.is_dir():
            number = errno.ENOTDIR if directory.exists() else errno.ENOENT
            raise OSError(number, os.strerror(number))
        next(directory.iterdir(), None)
    if require_mount and mount_of(directory)["mount_point"] == "/":
        message = f"nothing is mounted at or above {directory}: it lies on the root file system"
        raise StorageError("not_mounted", message)


def _answers(directory: Path) -> None:
    """Ask for the directory from a child process: a hung network file system would hold this one for ever."""
    probe = subprocess.Popen(
        [
            sys.executable,
            "-S",
            "-c",
            "import os, sys; os.path.isdir(sys.argv[1]) and os.listdir(sys.argv[1])",
            directory,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        probe.wait(PROBE_S)
    except subprocess.TimeoutExpired:
        probe.kill()
        raise StorageError("mount_hung", f"{directory} does not answer within {PROBE_S:g} s") from None


def mount_of(directory: Path) -> dict[str, str]:
    """Give mount point, type and source of the file system that holds the directory."""
    real = os.path.realpath(directory)
    best = {"mount_point": "/", "type": "unknown", "source": "unknown"}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            left, _, right = line.partition(" - ")
            fields, about = left.split(), right.split()
            if len(fields) < 5 or len(about) < 2:
                continue
            point = re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), fields[4])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and (len(point) >= len(best["mount_point"]) or best["type"] == "unknown"):
                best = {"mount_point": point, "type": about[0], "source": about[1]}
    return best


def check_space(directory: Path, needed: int, *, limit: int | None = None) -> int:
    """Give the free bytes. Raises StorageError unless `needed` is at most nine tenths of them (or of `limit`)."""
    with explained(f"cannot ask for the free space of {directory}"):
        status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize if limit is None else limit
    if needed > free * 0.9:
        message = f"{needed} bytes are needed in {directory} and {free} are free (nine tenths of them may be used)"
        raise StorageError("no_space", message, errno.ENOSPC)
    return free


class Corner:
    """This run's own directory below the directory under test. Use as a context: it is removed whatever happens."""

    def __init__(self, directory: Path) -> None:
        """Name the place; nothing is made yet."""
        self.base = directory / CORNER
        self.path = self.base / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.removed_leftovers = 0
        self._beat = time.monotonic()

    def __enter__(self) -> Corner:
        """Make the directory, say whose it is, and remove what dead runs left."""
        if self.base.is_symlink():
            raise StorageError("permission", f"{self.base} is a link, not a directory of ours")
        try:
            self._make()
            self._sweep()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove this run's files, and the base when no other run is in it."""
        _remove_run(self.path)
        with contextlib.suppress(OSError):
            self.base.rmdir()

    def file(self, client: int) -> Path:
        """Give the file of one client."""
        return self.path / f"client-{client}.dat"

    def beat(self) -> None:
        """Show that this run lives."""
        if time.monotonic() - self._beat >= HEARTBEAT_S:
            self._beat = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self.path / "owner.json")

    def direct_io(self) -> bool:
        """Say whether the file system takes O_DIRECT. Raises StorageError when it cannot be written at all."""
        path = self.path / "probe"
        try:
            with explained(f"cannot write below {self.base.parent}"):
                path.write_bytes(b"\0" * BLOCK)
            return _takes_direct(path)
        finally:
            path.unlink(missing_ok=True)

    def _make(self) -> None:
        with explained(f"cannot write below {self.base.parent}"):
            for _ in range(5):  # another run may remove the empty base in between
                with contextlib.suppress(FileNotFoundError):
                    self.base.mkdir(exist_ok=True)
                    self.path.mkdir()
                    break
            (self.path / "owner.json").write_text(json.dumps(_identity()), encoding="utf-8")

    def _sweep(self) -> None:
        """Remove what dead runs left here: only directories of this program's making, only its own files."""
        with contextlib.suppress(OSError):
            now = (self.path / "owner.json").stat().st_mtime  # the file system's clock, not this machine's
            for entry in os.scandir(self.base):
                if entry.is_dir(follow_symlinks=False) and entry.path != str(self.path) and _is_dead(entry.path, now):
                    self.removed_leftovers += _remove_run(Path(entry.path))


def _takes_direct(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, BLOCK) as block:  # O_DIRECT wants aligned memory
            os.pwrite(handle, block, 0)
            return os.preadv(handle, [block], 0) == BLOCK
    except OSError:
        return False
    finally:
        os.close(handle)


def _identity() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": _link("/proc/self/ns/pid"),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _is_dead(path: str, now: float) -> bool:
    owner = Path(path) / "owner.json"
    try:
        age = now - owner.stat().st_mtime
        data = json.loads(owner.read_text(encoding="utf-8"))
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return now - Path(path).stat().st_mtime > STALE_S
        return False
    except (OSError, ValueError):
        return False
    mine = _identity()
    if isinstance(data, dict) and all(data.get(key) == mine[key] for key in ("host", "boot", "pid_namespace")):
        return _started(data.get("pid")) != data.get("started")
    return age > STALE_S


def _started(pid: Any) -> str | None:
    """Give the start time of a process in clock ticks: a process id alone may have been given out again."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else None


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(path).readlink())
    return ""


def _remove_run(path: Path) -> int:
    """Remove one run's own files and directory; give how many files went."""
    count = 0
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path)):
            if _OWN_FILE.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()
                    count += 1
        path.rmdir()
    return count


def find_fio(name: str) -> str:
    """Give the path of the program. Raises StorageError."""
    found = shutil.which(name)
    if found is None:
        raise StorageError("fio_missing", f"{name} is not installed on {socket.gethostname()}", errno.ENOENT)
    return found
