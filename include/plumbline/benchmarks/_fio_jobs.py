"""The four jobs of the storage benchmark, and the coordinates of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from plumbline.errors import ConfigError, near_match
from plumbline.model import LaunchSpec, Params, Scalar

JOBS: Mapping[str, tuple[str, str]] = {
    "seq_write": ("write", "write"),
    "seq_read": ("read", "read"),
    "rand_read": ("randread", "read"),
    "rand_write": ("randwrite", "write"),
}
"""Job → (fio's rw, direction), in the order in which they run."""


def chosen_jobs(params: Params) -> list[str]:
    """Give the jobs asked for in their order. Raises ConfigError."""
    names = [name.strip() for name in str(params["jobs"]).split(",") if name.strip()]
    for name in names:
        if name not in JOBS:
            raise ConfigError(f"fio.jobs: no job {name!r}{near_match(name, JOBS)}")
    if not names:
        raise ConfigError(f"fio.jobs names no job; known: {', '.join(JOBS)}")
    return [name for name in JOBS if name in names]


def client_count(spec: LaunchSpec) -> int:
    """Give how many clients run at once, on all nodes."""
    return int(str(spec.params["clients"])) * len(spec.nodes)


def planned_directory(spec: LaunchSpec) -> str:
    """Give the directory under test as the clients' program is told it, written as that program writes it."""
    return str(Path(spec.argv[spec.argv.index("--directory") + 1]))


def block_size(spec: LaunchSpec, job: str) -> Scalar:
    """Give the block size of a job as it was written."""
    return spec.params["sequential_bs" if job.startswith("seq") else "random_bs"]


def row_params(spec: LaunchSpec, job: str) -> Params:
    """Give the coordinates of a job's rows: what makes two numbers comparable."""
    return {
        "bs": block_size(spec, job),
        "clients": client_count(spec),
        "iodepth": spec.params["iodepth"],
        "size": spec.params["size"],
    }
