"""Under what circumstances figures were measured: without them a figure says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.section import ROOT


def circumstances(command: str) -> dict[str, Any]:
    """Give command, date, machine, load before, and the code's commit."""
    return {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "commit": commit(),
    }


def cpu_model() -> str:
    """Give the processor's name as the kernel has it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def commit() -> str:
    """Give the commit, marked when the measured code differs from it."""
    folders = ["include", "plugins", "docker", "benchmarks", "deployment"]
    found = _git("rev-parse", "--short=12", "HEAD")
    return f"{found} with changes" if found and _git("status", "--porcelain", "--", *folders) else found or "unknown"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
