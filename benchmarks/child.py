"""Run Python in a fresh process and say what it cost: wall seconds, CPU seconds, peak memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.section import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one process cost from its start to its end, imports included, and what it answered."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    answer: Any


def peak_mib() -> float:
    """Give this process's own peak resident memory: ru_maxrss would count what the parent held before exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel gives no VmHWM")


def answer(value: Any) -> None:
    """End a child's work: print what it found, with its peak memory, as the last line."""
    print(json.dumps({"answer": value, "peak_mib": peak_mib()}))


def in_child(
    module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None, owner_of: Path | None = None
) -> Cost:
    """Run `python -m module arguments`, which must end with `answer`, as the owner of `owner_of` where that is given.

    Raises RuntimeError with its last words.
    """
    found = owner_of.stat() if owner_of is not None else None
    who = ["setpriv", f"--reuid={found.st_uid}", f"--regid={found.st_gid}", "--clear-groups"] if found else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(
        [*who, sys.executable, "-m", module, *arguments], cwd=ROOT, env={**os.environ, **path(), **(env or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    data = json.loads(done.stdout.splitlines()[-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall_s=wall, cpu_s=cpu, peak_mib=data["peak_mib"], answer=data["answer"])


def path() -> dict[str, str]:
    """Give the variable that lets a child import Plumbline from this checkout."""
    return {"PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT / "plugins"), str(ROOT)])}


def apart(folder: Path) -> dict[str, str]:
    """Give the variables by which Plumbline finds profiles and suites/ in a folder, and keeps all results there."""
    return {
        "PLUMBLINE_PROFILES": str(folder),
        "PLUMBLINE_SUITES": str(folder / "suites"),
        "PLUMBLINE_RESULTS": str(folder / "results"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GX_ANALYTICS_ENABLED": "false",
    }
