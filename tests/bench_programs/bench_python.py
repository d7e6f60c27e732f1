"""The Python with torch that runs the programs of the images, where there is one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-bench" / "bin" / "python"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "docker" / "bench")}
NEEDED = [pytest.mark.bench, pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-bench")]


def run_script(script: str) -> Any:
    """Run a script; give what it prints last, which is JSON."""
    argv = [str(PYTHON), "-c", script]
    done = subprocess.run(argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
