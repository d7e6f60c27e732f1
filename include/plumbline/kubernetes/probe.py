"""Says, from inside a pod, what `plumbline doctor` asks of an image and a node. Standard library only.

    python -m plumbline.kubernetes.probe --results DIR --token TEXT [--storage DIR] [--programs NAME,NAME]

Prints one JSON line, and leaves the same as <results>/.doctor/<token>.json: whether the other side sees that file, and
this side the one that the other left, is half of the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plumbline.execution.environment import snapshot, software_environment
from plumbline.execution.run_one import write_atomically

FOLDER = ".doctor"
MARK = "PLUMBLINE_PROBE "


def look(results: Path, token: str, storage: Path | None, programs: Sequence[str]) -> dict[str, Any]:
    """Look around; what fails is told in words and fails nothing else."""
    where = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    asked = results / FOLDER / f"{token}.ask"
    return {
        "node": os.environ.get("PLUMBLINE_NODE"),
        "user": _user(),
        "sees_results": asked.is_file(),
        "writes_storage": None if storage is None else _writes(storage),
        "missing": [name for name in programs if shutil.which(name, path=where) is None],
        "gpus": len(snapshot().get("gpus") or ()) if shutil.which("nvidia-smi") else None,
        "rdma_devices": sorted(path.name for path in Path("/dev/infiniband").glob("uverbs*")),
        "shared_memory_bytes": _size(Path("/dev/shm")),  # noqa: S108 - what NCCL uses
        "python": ".".join(map(str, sys.version_info[:3])),
        "software": software_environment(),
    }


def _user() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _writes(folder: Path) -> str | None:
    """Give why a directory takes no files; None when it does."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".plumbline-doctor-"):
            return None
    except OSError as error:
        return str(error)


def _size(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_frsize * found.f_blocks


def main(arguments: Sequence[str] | None = None) -> int:
    """Look, print, and leave the answer. Always 0: what is wrong is in the answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--results", type=Path, required=True, help="the results volume")
    parser.add_argument("--token", required=True, help="names the question and the answer")
    parser.add_argument("--storage", type=Path, help="the file system under test")
    parser.add_argument("--programs", default="", help="comma-separated: what the image must have")
    options = parser.parse_args(arguments)
    found = look(options.results, options.token, options.storage, [n for n in options.programs.split(",") if n])
    try:
        write_atomically(options.results / FOLDER / f"{options.token}.json", json.dumps(found))
        found["writes_results"] = None
    except OSError as error:
        found["writes_results"] = str(error)
    print(MARK + json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
