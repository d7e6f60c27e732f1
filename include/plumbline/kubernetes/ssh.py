"""The way from a launcher into its workers: a key pair for this launcher alone, and what mpirun needs to use it.

Standard library only.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.model import LaunchSpec

_IN_MEMORY = Path("/run/plumbline")
_START_LEAD_S = 20.0
"""From starting a command on every node to the moment when all of them begin together."""


class NoKeysError(Exception):
    """This image lacks what a launcher of gangs needs."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A key pair; the private half never leaves this pod."""

    private: Path
    public: str


def make_keys() -> Keys:
    """Make a key pair in memory. Raises NoKeysError where ssh or ssh-keygen is missing."""
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            raise NoKeysError(f"no {program} in the launcher's image")
    folder = Path(tempfile.mkdtemp(prefix="keys-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None))
    private = folder / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "plumbline", "-f", str(private)], check=True)
    return Keys(private, private.with_suffix(".pub").read_text().strip())


def command_of(spec: LaunchSpec) -> tuple[str, ...]:
    """Give what the launcher runs: the spec's own command, or, where that knows no hosts, one of it on each node."""
    if "--hosts" in spec.argv:
        return spec.argv
    return (
        spec.argv[0], "-m", "plumbline_bench.mpi_ranks", "--hosts", ",".join(spec.nodes), "--per-node", "1",
        "--", *spec.argv,
    )  # fmt: skip


_LEAN = {"HWLOC_PLUGINS_PATH": "/nonexistent", "MALLOC_ARENA_MAX": "1"}
"""For mpirun itself, which needs no plugin of hwloc: 2.9 in place of 3.3 MiB each. Not passed on to ranks.

Source: measured, Open MPI 4.1.4, 256 at once.
"""


def environment_of(spec: LaunchSpec, addresses: Sequence[str], keys: Keys, port: int) -> dict[str, str]:
    """Give the variables that lead mpirun (Open MPI 4 and 5) over ssh to the workers, in the order of spec.nodes.

    A link that is cut is noticed after about 25 s; the default would take hours.
    """
    agent = shlex.join([
        "ssh", "-i", str(keys.private), "-p", str(port), "-o", "StrictHostKeyChecking=no",
        "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
        "-o", "ServerAliveInterval=10", "-o", "LogLevel=ERROR",
    ])  # fmt: skip
    found = {
        **spec.env,
        "PLUMBLINE_HOSTS": ",".join(addresses),
        **_LEAN,
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        "OMPI_MCA_oob_tcp_keepalive_time": "10",
        "OMPI_MCA_oob_tcp_keepalive_intvl": "5",
        "OMPI_MCA_oob_tcp_keepalive_probes": "3",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    }
    if "--hosts" not in spec.argv:
        found["PLUMBLINE_START_AT"] = f"{time.time() + _START_LEAD_S:.3f}"
        found["PLUMBLINE_MPIRUN_ARGS"] = "-x PLUMBLINE_START_AT -x PYTHONPATH"
    return found
