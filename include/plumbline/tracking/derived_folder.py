"""How derived/ of a run changes: by one process at a time, and for whoever reads it at once or not at all.

Beside it lie `.derived.lock`, empty, locked by whoever changes derived/, and `.derived.*.tmp`, where new files wait.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copyfile, rmtree

_ASIDE, _LOCK = ".derived.{}.tmp", ".derived.lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What a file system without locks answers, as NFS mounted without its lock service."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""Source: linux/fcntl.h and linux/fs.h."""


@contextmanager
def locked(run: Path) -> Iterator[bool]:
    """Let nobody else change derived/ in the block: the next one waits, also in another process or on another host.

    Gives whether the lock is held: a file system may have none, and then the block goes on without. It is not
    reentrant. Raises OSError when the lock file cannot be opened.
    """
    handle = _open_lock(run / _LOCK)
    try:
        held = _lock(handle)
        try:
            yield held
        finally:
            if held:
                fcntl.flock(handle, fcntl.LOCK_UN)  # closing it is not enough where a forked child has it open too
    finally:
        os.close(handle)


@contextmanager
def replaced(
    run: Path, derived: Path, kept: Collection[str] = (), stands: Callable[[], bool] = lambda: False
) -> Iterator[Path]:
    """Give an empty folder beside the run's `derived`, which it replaces when the block ends well.

    Until then everybody reads the old results, complete and sealed; a process that is killed leaves either them or
    the new ones, and a hidden folder that nobody reads and the next call sweeps away. Whatever else ends the block,
    or hinders its beginning, takes the old results away, and so does not leave their word standing as the outcome:
    an error, a time limit, a person; but not when `stands` then says that they can't be computed again. `kept` names
    files that are taken over. derived/ is locked all the while.
    """
    aside = run / _ASIDE.format(secrets.token_hex(4))
    with ExitStack() as lock:
        try:
            if lock.enter_context(locked(run)):
                _sweep(run)
            aside.mkdir()
            for name in kept:
                if (derived / name).is_file():
                    copyfile(derived / name, aside / name)
            yield aside
            _sync(aside)
            swap(aside, derived)
        except BaseException:
            if not stands():
                _forget(derived, kept)
            raise
        finally:
            rmtree(aside, ignore_errors=True)


def finished_files(folder: Path) -> Iterator[Path]:
    """Give every file below, in order, without temporary files of an unfinished write."""
    for path in sorted(folder.rglob("*")):
        unfinished = path.name.startswith(".") and path.name.endswith(".tmp")
        if path.is_file() and not unfinished:
            yield path


def swap(new: Path, old: Path) -> None:
    """Give folder `new` the name `old` and, where there is an old one, that the other's. Raises OSError.

    Linux does this in one step on local file systems (renameat2). Elsewhere, as on NFS, it takes two, and a process
    that is killed just between them leaves no folder of the name: a run without results, never with wrong ones.
    """
    if not old.is_dir():
        new.rename(old)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        if libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0:
            return
        if (code := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            raise OSError(code, os.strerror(code), str(new))
    elsewhere = new.with_name(f"{new.name}.tmp")
    old.rename(elsewhere)
    new.rename(old)
    elsewhere.rename(new)


def _open_lock(path: Path) -> int:
    """Open a lock file, made where there is none; another user's can be locked as well."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY)


def _lock(handle: int) -> bool:
    """Wait for the lock on an open file; give False where the file system has none. Raises OSError."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _sweep(run: Path) -> None:
    """Remove what killed judges left; only for who holds the lock, or it may be what another one is writing."""
    for debris in run.glob(_ASIDE.format("*")):
        rmtree(debris, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Have the files of a folder on disk before its name says that they are."""
    for path in (*finished_files(folder), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _forget(derived: Path, kept: Collection[str]) -> None:
    """Remove what was derived, the word of the gate first: without it nothing else is read as a result."""
    for path in sorted(derived.glob("*"), key=lambda path: path.name != "verdict.json"):
        if path.is_file() and path.name not in kept:
            path.unlink(missing_ok=True)
