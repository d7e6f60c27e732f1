"""The Python with torch that runs the programs of the images, where there is one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-bench" / "bin" / "python"
PROGRAMS = str(ROOT / "docker" / "bench")
ENVIRONMENT = {**os.environ, "PYTHONPATH": PROGRAMS}
NEEDED = [pytest.mark.bench, pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-bench")]


def run_python(*arguments: str, env: Mapping[str, str] = ENVIRONMENT) -> subprocess.CompletedProcess[str]:
    """Run it with these arguments, whatever it ends with."""
    return subprocess.run([PYTHON, *arguments], env=env, capture_output=True, text=True, timeout=300, check=False)


def run_script(script: str) -> Any:
    """Run a script; give what it prints last, which is JSON."""
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
