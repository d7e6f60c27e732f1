"""Starts the trainer on several hosts through mpirun, and becomes it.

    python -m plumbline_bench.trainer.hosts --hosts a,b --per-node 8 -- --benchmark gpt3 --nodes 2 …

Rank 0 is on the first host; the others meet it there. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from plumbline_bench.mpi_ranks import mpirun_argv

_MEETING_PORT = "29500"
_NEEDED = ("MASTER_ADDR", "MASTER_PORT", "PYTHONPATH")


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process by mpirun. Gives 127 when it can't be started."""
    parser = argparse.ArgumentParser(prog="plumbline_bench.trainer.hosts", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--hosts", required=True, help="comma-separated; PLUMBLINE_HOSTS replaces them")
    parser.add_argument("--per-node", type=int, required=True, help="processes of each host")
    parser.add_argument("trainer", nargs="+", help="arguments of the trainer, after --")
    options = parser.parse_args(arguments)
    hosts = os.environ.get("PLUMBLINE_HOSTS", options.hosts).split(",")
    if len(hosts) != len(options.hosts.split(",")):
        parser.error(f"PLUMBLINE_HOSTS names {len(hosts)} hosts, --hosts {len(options.hosts.split(','))}")
    os.environ.setdefault("MASTER_PORT", _MEETING_PORT)
    os.environ["MASTER_ADDR"] = hosts[0]
    launcher = mpirun_argv(hosts, options.per_node, os.environ, os.geteuid() == 0)
    for name in _NEEDED if launcher else ():
        if name in os.environ:
            launcher += ["-x", name]
    argv = [*launcher, sys.executable, "-m", "plumbline_bench.trainer", *options.trainer]
    sys.stderr.write(f"# plumbline trainer: {shlex.join(argv)}\n")
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - becoming the program is the purpose
    except OSError as error:
        sys.stderr.write(f"plumbline: error: {argv[0]}: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main())
