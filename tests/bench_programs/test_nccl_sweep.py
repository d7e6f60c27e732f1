"""The runner of the nccl-tests programs: stand-ins take the place of the programs and of mpirun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.readers import nccl_text

ROOT = Path(__file__).resolve().parents[2]

PERF = """#!/bin/sh
if [ "$1" = -h ]; then echo "USAGE: all_reduce_perf {usage}"; exit 0; fi
echo "$0 $@" >> "$LOG"
cat "$OUTPUT"
echo "warning on stderr" >&2
exit {status}
"""
MPIRUN = """#!/bin/sh
echo "mpirun $@" >> "$LOG"
while [ "${1#*_perf}" = "$1" ]; do shift; done
exec "$@"
"""


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "work").mkdir()
    for name, text in {
        "all_reduce_perf": PERF.format(usage="[-J,--output_file <file>]", status=0),
        "all_gather_perf": PERF.format(usage="", status=3),
        "mpirun": MPIRUN,
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "output").write_text(nccl_text.output("2026"))
    return tmp_path


def sweep(machine: Path, hosts: str = "n1", operations: str = "all_reduce", **environment: str):
    argv = [
        sys.executable, "-m", "plumbline_bench.nccl_sweep", "--hosts", hosts, "--per-node", "8",
        "--operations", operations, "--min-bytes", "2048", "--max-bytes", "8589934592", "--step-factor", "4",
        "--warmup", "5", "--iterations", "20", "--dtype", "float", "--programs-dir", str(machine),
    ]  # fmt: skip
    env = {
        "PATH": f"{machine}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "docker" / "bench"), "NCCL_DEBUG": "INFO",
        "OUTPUT": str(machine / "output"), "LOG": str(machine / "log"), "SECRET_TOKEN": "x", **environment,
    }  # fmt: skip
    done = subprocess.run(argv, cwd=machine / "work", env=env, capture_output=True, text=True, timeout=300, check=False)
    calls = (machine / "log").read_text().splitlines() if (machine / "log").exists() else []
    return done, calls


def test_one_host_is_one_process_with_all_its_gpus(machine):
    done, calls = sweep(machine)
    assert done.returncode == 0, done.stderr
    assert calls == [
        f"{machine}/all_reduce_perf -b 2048 -e 8589934592 -f 4 -w 5 -n 20 -c 1 -a 3 -d float -g 8 -J all_reduce.json"
    ]
    text = (machine / "work" / "all_reduce.txt").read_text()
    assert nccl_text.output("2026") in text
    assert "warning on stderr" in text


def test_several_hosts_run_one_process_a_gpu(machine):
    done, calls = sweep(machine, "n1,n2", PLUMBLINE_MPIRUN_ARGS="--mca btl_tcp_if_include 'eth0'")
    assert done.returncode == 0, done.stderr
    assert calls[0].startswith("mpirun -np 16 --map-by ppr:8:node --host n1:8,n2:8 ")
    assert "-x NCCL_DEBUG" in calls[0]
    assert "SECRET_TOKEN" not in calls[0]
    assert "--mca btl_tcp_if_include eth0 " in calls[0]
    assert calls[1].endswith("-g 1 -J all_reduce.json")


def test_pods_that_answer_for_the_hosts(machine):
    _, calls = sweep(machine, "n1,n2", PLUMBLINE_HOSTS="worker-0.job,worker-1.job")
    assert "--host worker-0.job:8,worker-1.job:8" in calls[0]
    done, _ = sweep(machine, "n1,n2", PLUMBLINE_HOSTS="worker-0.job")
    assert done.returncode == 2
    assert "PLUMBLINE_HOSTS names 1 hosts, --hosts 2" in done.stderr


def test_an_operation_that_fails_does_not_stop_the_next_and_is_the_exit_status(machine):
    done, calls = sweep(machine, operations="all_gather,all_reduce")
    assert done.returncode == 3
    assert [call.split()[0].rsplit("/", 1)[1] for call in calls] == ["all_gather_perf", "all_reduce_perf"]
    assert "-J" not in calls[0]  # an nccl-tests of before October 2025 would print its usage and exit with 0
    assert "all_gather ended with status 3" in done.stdout


def test_a_program_that_is_not_there_is_named_in_its_output(machine):
    done, _ = sweep(machine, operations="sendrecv")
    assert done.returncode == 127
    assert "plumbline: error: " in (machine / "work" / "sendrecv.txt").read_text()
