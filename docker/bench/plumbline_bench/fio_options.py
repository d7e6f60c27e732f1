"""What fio_clients can be asked to do. Standard library only."""

from __future__ import annotations

import argparse
import os
import re
import socket
from pathlib import Path
from typing import Any

JOBS = {"seq_write": "write", "seq_read": "read", "rand_read": "randread", "rand_write": "randwrite"}
"""Job name → fio's rw. In this order: the write job is first, so that what is read was written by this run."""
_SIZE = re.compile(r"(\d+)([kKmMgG]?)(?:i?B)?")
_POWER = {"": 0, "k": 1, "m": 2, "g": 3}


def parse(arguments: list[str] | None, about: str) -> argparse.Namespace:
    """Read the command line; exits with 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="fio_clients", description=about.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="the file system under test")
    parser.add_argument("--clients", type=int, default=2, help="fio processes a node")
    parser.add_argument("--size", type=size, default=size("256M"), help="bytes of each client's file")
    parser.add_argument("--runtime", type=float, default=5, help="seconds that each job is measured")
    parser.add_argument("--ramp", type=float, default=1, help="seconds before that")
    parser.add_argument("--jobs", type=job_list, default=list(JOBS), help=f"of {','.join(JOBS)}")
    parser.add_argument("--sequential-bs", default="1M")
    parser.add_argument("--random-bs", default="4k")
    parser.add_argument("--iodepth", type=int, default=16)
    parser.add_argument("--ioengine", default="libaio")
    parser.add_argument("--nodes", type=node_list, default=None, help="names that the clients stand for")
    parser.add_argument("--start-at", type=float, default=None, help="epoch seconds of the first job, on every node")
    parser.add_argument("--gap", type=float, default=3, help="with --start-at: seconds between two jobs")
    parser.add_argument("--create", action="store_true", help="make the directory when it is missing")
    parser.add_argument("--require-mount", action="store_true", help="refuse a directory on the root file system")
    parser.add_argument("--layout-limit", type=float, default=300, help="seconds in which the files must be written")
    parser.add_argument("--free-limit", type=size, default=None, help="count no more free bytes than these")
    parser.add_argument("--fio", default="fio", help="the program")
    options = parser.parse_args(arguments)
    environment = os.environ
    options.nodes = options.nodes or [environment.get("PLUMBLINE_NODE") or socket.gethostname()]
    if options.start_at is None and environment.get("PLUMBLINE_START_AT"):
        options.start_at = float(environment["PLUMBLINE_START_AT"])
    if options.clients < 1 or options.runtime <= 0 or options.ramp < 0 or options.size < 1 << 20:
        parser.error("at least 1 client, a runtime above 0, no negative ramp, and files of at least 1M")
    return options


def size(text: str) -> int:
    """Read '256M' as bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"not a size: {text!r}; write 268435456 or 256M")
    return int(match[1]) << 10 * _POWER[match[2].lower()]


def job_list(text: str) -> list[str]:
    """Read the jobs to run, in the order of JOBS."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    if not chosen or (unknown := [name for name in chosen if name not in JOBS]):
        raise argparse.ArgumentTypeError(f"unknown job {unknown[0]!r}" if chosen else "no job")
    return [name for name in JOBS if name in chosen]


def node_list(text: str) -> list[str]:
    """Read node names; they become parts of file names."""
    names = text.split(",")
    if any(not re.fullmatch(r"[\w.-]{1,100}", name) for name in names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"not node names: {text!r}")
    return names


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """Give what was asked for, for the facts."""
    return {
        "directory": str(options.directory),
        "clients": options.clients,
        "nodes": options.nodes,
        "size_bytes": options.size,
        "runtime_s": options.runtime,
        "ramp_s": options.ramp,
        "jobs": options.jobs,
        "sequential_bs": options.sequential_bs,
        "random_bs": options.random_bs,
        "iodepth": options.iodepth,
        "ioengine": options.ioengine,
        "start_at": options.start_at,
    }
