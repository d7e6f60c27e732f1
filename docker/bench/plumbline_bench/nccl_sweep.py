"""Starts one nccl-tests program after another, so that one launch measures several operations.

Standard library only. Each operation's output goes to `<operation>.txt` in the working directory, and where the
program can (nccl-tests of October 2025 and newer) its report to `<operation>.json`. One host runs one process with all
its GPUs; several hosts run one process a GPU through mpirun. An operation that fails does not stop the next one.

Where the pods that answer for the hosts have other names, PLUMBLINE_HOSTS names them in order; PLUMBLINE_MPIRUN_ARGS
holds what this cluster's mpirun needs besides (a shell-like string: "--mca pml ob1 --mca btl_tcp_if_include eth0").
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PASSED_ON = ("NCCL_", "UCX_", "FI_", "OMPI_MCA_", "CUDA_", "RDMAV_")
_PASSED_ON_NAMES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH")
_HELP_LIMIT_S = 60


def rank_argv(options: argparse.Namespace, operation: str, program: str, gpus: int, has_report: bool) -> list[str]:
    """Write the command of one rank. Times are the maximum over the ranks (-a 3): a mean hides a slow one."""
    argv = [
        program,
        "-b", str(options.min_bytes), "-e", str(options.max_bytes), "-f", str(options.step_factor),
        "-w", str(options.warmup), "-n", str(options.iterations), "-c", "1", "-a", "3",
        "-d", options.dtype, "-g", str(gpus),
    ]  # fmt: skip
    return [*argv, "-J", f"{operation}.json"] if has_report else argv


def launch_argv(
    options: argparse.Namespace, operation: str, environment: dict[str, str], has_report: bool
) -> list[str]:
    """Write the whole command of one operation."""
    program = str(Path(options.programs_dir) / f"{operation}_perf")
    if len(options.hosts) == 1:
        return rank_argv(options, operation, program, options.per_node, has_report)
    ranks = len(options.hosts) * options.per_node
    argv = ["mpirun", "-np", str(ranks), "--map-by", f"ppr:{options.per_node}:node"]
    argv += ["--host", ",".join(f"{host}:{options.per_node}" for host in options.hosts)]
    if os.geteuid() == 0:
        argv.append("--allow-run-as-root")
    for name in sorted(environment):
        if name.startswith(_PASSED_ON) or name in _PASSED_ON_NAMES:
            argv += ["-x", name]
    argv += shlex.split(environment.get("PLUMBLINE_MPIRUN_ARGS", ""))
    return argv + rank_argv(options, operation, program, 1, has_report)


def writes_reports(program: str) -> bool:
    """Ask a test program whether it knows -J. False also when it cannot be asked."""
    try:
        answer = subprocess.run(
            [program, "-h"], capture_output=True, text=True, errors="replace", timeout=_HELP_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "--output_file" in answer.stdout + answer.stderr


def run_operation(options: argparse.Namespace, operation: str) -> int:
    """Run one operation to its end and give its exit status; 127 when it could not be started."""
    environment = dict(os.environ)
    has_report = writes_reports(str(Path(options.programs_dir) / f"{operation}_perf"))
    argv = launch_argv(options, operation, environment, has_report)
    print(f"# plumbline nccl_sweep: {shlex.join(argv)}", flush=True)
    with Path(f"{operation}.txt").open("wb") as output:
        output.write(f"# plumbline nccl_sweep: {shlex.join(argv)}\n".encode())
        output.flush()
        try:
            status = subprocess.run(
                argv, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
            ).returncode
        except OSError as error:
            output.write(f"plumbline: error: {argv[0]}: {error.strerror}\n".encode())
            status = 127
    print(f"# plumbline nccl_sweep: {operation} ended with status {status}", flush=True)
    return status


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line. Exits with status 2 and a sentence when it is wrong."""
    parser = argparse.ArgumentParser(prog="plumbline_bench.nccl_sweep", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--hosts", required=True, help="comma-separated; PLUMBLINE_HOSTS replaces them")
    parser.add_argument("--per-node", type=int, required=True, help="GPUs of each host")
    parser.add_argument("--operations", required=True, help="comma-separated")
    parser.add_argument("--min-bytes", type=int, required=True)
    parser.add_argument("--max-bytes", type=int, required=True)
    parser.add_argument("--step-factor", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--programs-dir", required=True, help="where the *_perf programs are")
    options = parser.parse_args(arguments)
    asked = options.hosts.split(",")
    options.hosts = os.environ.get("PLUMBLINE_HOSTS", options.hosts).split(",")
    if len(options.hosts) != len(asked):
        parser.error(f"PLUMBLINE_HOSTS names {len(options.hosts)} hosts, --hosts {len(asked)}")
    return options


def main() -> int:
    """Run all operations. Gives 0 when all of them did, otherwise the first other status."""
    options = parse_options(sys.argv[1:])
    statuses = [run_operation(options, operation) for operation in options.operations.split(",")]
    return next((status if 0 < status < 256 else 1 for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())
