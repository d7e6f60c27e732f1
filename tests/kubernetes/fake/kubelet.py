"""Runs a pod's container as a local process, as a kubelet would: image, environment, readiness, deadline, end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from tests.kubernetes.fake.store import now

Script = Callable[[Mapping[str, Any], bool], int | None]
BIN = Path(__file__).resolve().parents[1] / "bin"


class Container:
    """One started container. `spec` is the pod as it was scheduled."""

    def __init__(self, pod: Mapping[str, Any], address: str, folder: Path, service: Mapping[str, str]) -> None:
        self.pod, self.address = pod, address
        self.container = pod["spec"]["containers"][0]
        self.lines: list[tuple[str, str]] = []
        self.started, self.started_at = time.monotonic(), now()
        self.oom = False
        self.ready = False
        self._asked: float | None = None
        folder.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8", **self._environment()}
        if pod["spec"].get("automountServiceAccountToken"):
            environment |= service
        self.error = ""
        command = [*self.container.get("command", ()), *self.container.get("args", ())]
        try:
            self.process: subprocess.Popen[str] | None = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.process, self.error = None, str(error)
            return
        self._pump = threading.Thread(target=self._read, daemon=True)
        self._pump.start()

    def _environment(self) -> dict[str, str]:
        fields = {
            "metadata.name": self.pod["metadata"]["name"], "metadata.uid": self.pod["metadata"]["uid"],
            "status.podIP": self.address, "spec.nodeName": self.pod["spec"]["nodeName"],
        }  # fmt: skip
        return {
            item["name"]: item["value"] if "value" in item else fields[item["valueFrom"]["fieldRef"]["fieldPath"]]
            for item in self.container.get("env") or ()
        }

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            self.lines.append((stamp, line.rstrip("\n")))

    def check_ready(self) -> bool:
        probe = self.container.get("readinessProbe")
        if probe is None:
            self.ready = True
        else:
            try:
                socket.create_connection((self.address, probe["tcpSocket"]["port"]), timeout=0.2).close()
                self.ready = True
            except OSError:
                self.ready = False
        return self.ready

    def ask_to_end(self, grace_s: float) -> None:
        """SIGTERM once, SIGKILL when the grace period is over."""
        if self.process is None:
            return
        if self._asked is None:
            self._asked = time.monotonic()
            self.process.send_signal(signal.SIGTERM)
        elif time.monotonic() - self._asked > grace_s:
            self.kill()

    def kill(self) -> None:
        """End every process of the container at once, as the end of its PID namespace does."""
        if self.process is None:
            return
        for one in [*_descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)

    def exit_code(self) -> int | None:
        if self.process is None:
            return 128
        status = self.process.poll()
        if status is None:
            self._children = _descendants(self.process.pid)
            return None
        for one in getattr(self, "_children", ()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self._pump.join(timeout=2)
        return status if status >= 0 else 128 - status

    def terminated(self) -> dict[str, Any]:
        code = self.exit_code()
        reason = "OOMKilled" if self.oom else "StartError" if self.process is None else "Error" if code else "Completed"
        state: dict[str, Any] = {"exitCode": code, "reason": reason, "startedAt": self.started_at, "finishedAt": now()}
        if self.error:
            state["message"] = self.error
        elif code and self.container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            state["message"] = "\n".join(line for _, line in self.lines[-80:])[-2048:]
        return state


class ScriptedContainer:
    """A container without a process, for more pods than a machine can run: ready at once, ended by its script.

    `script(pod, asked)` is asked again and again, with whether the pod was told to end; it gives the exit code, or None
    for as long as the container runs.
    """

    def __init__(self, pod: Mapping[str, Any], address: str, script: Script) -> None:
        self.pod, self.address, self.script = pod, address, script
        self.lines: list[tuple[str, str]] = []
        self.started, self.started_at = time.monotonic(), now()
        self.oom = False
        self.ready = True
        self._asked = False
        self._code: int | None = None

    def check_ready(self) -> bool:
        return True

    def ask_to_end(self, grace_s: float) -> None:
        self._asked = True

    def kill(self) -> None:
        if self._code is None:
            self._code = 128 + signal.SIGKILL

    def exit_code(self) -> int | None:
        if self._code is None:
            self._code = self.script(self.pod, self._asked)
        return self._code

    def terminated(self) -> dict[str, Any]:
        code = self.exit_code()
        reason = "OOMKilled" if self.oom else "Error" if code else "Completed"
        return {"exitCode": code, "reason": reason, "startedAt": self.started_at, "finishedAt": now()}


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
