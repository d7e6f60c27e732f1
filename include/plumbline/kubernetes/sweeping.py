"""Clean-up and heartbeat beside the launcher's own work: neither may wait for it, nor make it wait.

Standard library only.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from plumbline.kubernetes import files
from plumbline.kubernetes.api import Api, ApiError

_AGAIN_S = 2.0


class Sweeper:
    """Deletes what it is given, again and again until the API has done it. Outcomes never depend on it."""

    def __init__(self, api: Api) -> None:
        """Begin with nothing to do, in a thread of its own."""
        self._api = api
        self._paths: dict[str, None] = {}
        self._done: set[str] = set()
        self._changed = threading.Condition()
        threading.Thread(target=self._sweep, daemon=True, name="sweeper").start()

    def add(self, path: str) -> None:
        """Have an object deleted, with what it owns; once, however often it is asked for."""
        with self._changed:
            if path not in self._done:
                self._paths[path] = None
                self._changed.notify_all()

    def drain(self, limit_s: float) -> list[str]:
        """Wait until everything is deleted, at most so long; give what is not."""
        with self._changed:
            self._changed.wait_for(lambda: not self._paths, timeout=limit_s)
            return list(self._paths)

    def _sweep(self) -> None:
        told: set[str] = set()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._paths))
                paths = list(self._paths)
            failed = False
            for path in paths:
                try:
                    self._api.delete(path, patience_s=0)
                except ApiError as error:
                    failed = True
                    if path not in told:
                        told.add(path)
                        print(f"not deleted yet: {error}", flush=True)
                    if error.outage:
                        break  # the others would meet the same
                else:
                    with self._changed:
                        self._paths.pop(path, None)
                        self._done.add(path)
                        self._changed.notify_all()
            if failed:
                time.sleep(_AGAIN_S)


def keep_beating(evidence: Path, launcher_uid: str, orphan_s: float) -> None:
    """Beat for the workers for as long as this process lives, from a thread of its own."""

    def beat() -> None:
        while True:
            try:
                files.beat(evidence, launcher_uid)
            except OSError as error:
                print(f"the results volume does not take the heartbeat: {error}", flush=True)
            time.sleep(files.beat_s(orphan_s))

    threading.Thread(target=beat, daemon=True, name="heartbeat").start()
