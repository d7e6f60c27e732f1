"""Ask whether derived/ of a run is locked; nothing waits for long there, so it is tried and not timed."""

from __future__ import annotations

import fcntl

from plumbline.tracking.run_directory import RunDirectory


def locked(run: RunDirectory) -> bool:
    """Say whether somebody changes derived/ of a run just now, in this process or another."""
    with (run.path / ".derived.lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
