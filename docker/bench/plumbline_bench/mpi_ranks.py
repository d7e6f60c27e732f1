"""Starts one MPI program with one process an accelerator, on one host or several, and becomes it.

    python -m plumbline_bench.mpi_ranks --hosts a,b --per-node 8 -- /workspace/hpl-mxp.sh --n 380000 …

One process alone is started without mpirun. Standard library only. Where the pods that answer for the hosts have other
names, PLUMBLINE_HOSTS names them in order; PLUMBLINE_MPIRUN_ARGS holds what this cluster's mpirun needs besides.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

PASSED_ON = ("NCCL_", "UCX_", "FI_", "OMPI_MCA_", "CUDA_", "RDMAV_", "HPL_", "OMP_")
PASSED_ON_NAMES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH")


def mpirun_argv(hosts: Sequence[str], per_node: int, environment: Mapping[str, str], root: bool) -> list[str]:
    """Give mpirun and its options; the program's own command follows. Nothing for a single process."""
    ranks = len(hosts) * per_node
    if ranks == 1:
        return []
    argv = ["mpirun", "-np", str(ranks), "--bind-to", "none"]
    if len(hosts) > 1:
        argv += ["--map-by", f"ppr:{per_node}:node", "--host", ",".join(f"{host}:{per_node}" for host in hosts)]
        for name in sorted(environment):
            if name.startswith(PASSED_ON) or name in PASSED_ON_NAMES:
                argv += ["-x", name]
    if root:
        argv.append("--allow-run-as-root")
    return argv + shlex.split(environment.get("PLUMBLINE_MPIRUN_ARGS", ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process by the program. Gives 127 when it cannot be started."""
    parser = argparse.ArgumentParser(prog="plumbline_bench.mpi_ranks", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--hosts", required=True, help="comma-separated; PLUMBLINE_HOSTS replaces them")
    parser.add_argument("--per-node", type=int, required=True, help="processes of each host")
    parser.add_argument("program", nargs="+", help="the program and its arguments, after --")
    options = parser.parse_args(arguments)
    asked = options.hosts.split(",")
    hosts = os.environ.get("PLUMBLINE_HOSTS", options.hosts).split(",")
    if len(hosts) != len(asked):
        parser.error(f"PLUMBLINE_HOSTS names {len(hosts)} hosts, --hosts {len(asked)}")
    if options.per_node < 1:
        parser.error(f"--per-node must be at least 1, not {options.per_node}")
    argv = mpirun_argv(hosts, options.per_node, os.environ, os.geteuid() == 0) + options.program
    print(f"# plumbline mpi_ranks: {shlex.join(argv)}", flush=True)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - becoming the program is the purpose
    except OSError as error:
        print(f"plumbline: error: {argv[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main())
