"""Measure a file system with several fio clients at once.

    python -m plumbline_bench.fio_clients --directory DIR --clients 2 --size 268435456 --runtime 5

For each job (sequential write and read, random read and write) every client is one fio process on its own file; all of
a job start at the same moment. Written to the working directory: fio-<job>-<node>-c<client>.json (json+), the same
with _bw.log (100 ms, epoch time), and fio-facts-<node>.json, which says what was done or why nothing was.
On several nodes each runs this program with the same --start-at. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from plumbline_bench.fio_options import JOBS, asked, parse
from plumbline_bench.fio_storage import (
    HEARTBEAT_S,
    KINDS,
    MEMORY_FILE_SYSTEMS,
    Corner,
    StorageError,
    check_directory,
    check_space,
    find_fio,
    kind_of,
    mount_of,
)

LOG_MS = 100
LEAD_S = 0.1
"""From handing out a start time to the start: all client threads wait by then."""
GRACE_S = 60.0
"""A client that is this much later than its ramp and runtime hangs."""
STOP_S = 5.0
_ERROR = re.compile(r"err=\s*(\d+)/|error=(.*)")


class Stopped(BaseException):
    """A signal asked this program to end."""

    def __init__(self, number: int) -> None:
        """Hold the signal's number."""
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@dataclass
class Client:
    """One fio process: which node it stands for, its number there, its file, and what became of it."""

    node: str
    number: int
    file: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    failure: OSError | None = None


@dataclass
class Programme:
    """What this program was asked to do and has found out; `facts` is what it writes."""

    options: argparse.Namespace
    fio: str = ""
    direct: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def facts_path(self) -> Path:
        """Give the facts file: one per program, so several nodes can share a directory."""
        return Path(f"fio-facts-{self.options.nodes[0]}.json")

    def write_facts(self) -> None:
        """Write the facts so that a reader sees all of them or the former ones."""
        temporary = self.facts_path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.facts, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.facts_path)


def main(arguments: list[str] | None = None) -> int:
    """Run all jobs; give 0, or the exit code of what went wrong."""
    options = parse(arguments, __doc__ or "")
    programme = Programme(options, facts={"schema": 1, "status": "running", "asked": asked(options)})
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise_stopped)
    try:
        programme.write_facts()
        measure(programme)
        programme.facts["status"] = "ok"
        code = 0
    except StorageError as error:
        programme.facts |= {"status": "error", "error": error.plain()}
        code = KINDS[error.kind]
    except Stopped as stop:
        programme.facts |= {"status": "error", "error": StorageError("stopped", str(stop)).plain()}
        code = KINDS["stopped"]
    programme.write_facts()
    told = ("status", "error", "direct", "page_cache")
    print(json.dumps({key: programme.facts.get(key) for key in told}), flush=True)
    return code


def measure(programme: Programme) -> None:
    """Check, lay out, run every job, and leave no file. Raises StorageError, Stopped."""
    options, facts = programme.options, programme.facts
    programme.fio = find_fio(options.fio)
    facts["fio_version"] = _version(programme.fio)
    check_directory(options.directory, create=options.create, require_mount=options.require_mount)
    facts["filesystem"] = mount_of(options.directory)
    with Corner(options.directory) as corner:
        facts["removed_leftovers"] = corner.removed_leftovers
        total = options.clients * len(options.nodes)
        facts["footprint_bytes"] = total * options.size
        facts["free_bytes"] = check_space(options.directory, total * options.size, limit=options.free_limit)
        programme.direct = facts["direct"] = corner.direct_io()
        facts["page_cache"] = not programme.direct or facts["filesystem"]["type"] in MEMORY_FILE_SYSTEMS
        clients = [
            Client(node, number, corner.file(index * options.clients + number))
            for index, node in enumerate(options.nodes)
            for number in range(options.clients)
        ]
        lay_out(programme, clients, corner)
        facts["jobs"] = []
        for index, job in enumerate(options.jobs):
            run_job(programme, job, clients, corner, start_time(options, index))


def start_time(options: argparse.Namespace, index: int) -> float:
    """Give when a job starts, epoch seconds: at once, or in the slot that every node computes alike."""
    if options.start_at is None:
        return time.time() + LEAD_S
    slot: float = options.start_at + index * (options.ramp + options.runtime + options.gap)
    return slot


def lay_out(programme: Programme, clients: list[Client], corner: Corner) -> None:
    """Write every client's file once and in full: reading holes would measure nothing."""
    options = programme.options
    begin = time.monotonic()
    commands = [[*base(programme, client, "layout"), "--rw=write", "--bs=1M", "--end_fsync=1"] for client in clients]
    limit = options.layout_limit
    if not run_clients(clients, commands, "layout", corner, time.time(), limit):
        amount = sum(c.file.stat().st_size for c in clients if c.file.exists())
        message = f"{amount} of {len(clients) * options.size} bytes were laid out in {limit:g} s"
        raise StorageError("too_slow", message)
    programme.facts["layout_s"] = round(time.monotonic() - begin, 3)
    programme.write_facts()


def run_job(programme: Programme, job: str, clients: list[Client], corner: Corner, start: float) -> None:
    """Run one job with all clients and write down what happened."""
    options = programme.options
    print(f"{job}: {len(clients)} clients, {options.ramp:g} s + {options.runtime:g} s", flush=True)
    commands = [measured(programme, client, job) for client in clients]
    limit = max(0.0, start - time.time()) + options.ramp + options.runtime + GRACE_S
    ended = run_clients(clients, commands, job, corner, start, limit)
    programme.facts["jobs"].append(
        {
            "job": job,
            "start_at": start,
            "clients": [
                {
                    "node": client.node,
                    "client": client.number,
                    "started_at": client.started_at,
                    "ended_at": client.ended_at,
                    "exit_code": client.exit_code,
                    "output": f"{prefix(client, job)}.json",
                    "bw_log": f"{prefix(client, job)}_bw.log",
                    "argv": command,
                }
                for client, command in zip(clients, commands, strict=True)
            ],
        }
    )
    programme.write_facts()
    if not ended:
        raise StorageError("stalled", f"{job}: a client did not end within {GRACE_S:g} s after its time")


def prefix(client: Client, job: str) -> str:
    """Give the beginning of a client's file names."""
    return f"fio-{job}-{client.node}-c{client.number}"


def base(programme: Programme, client: Client, job: str) -> list[str]:
    """Give the part of fio's command that all jobs share."""
    options = programme.options
    return [
        programme.fio,
        f"--name={job}",
        f"--filename={str(client.file).replace(':', chr(92) + ':')}",  # fio takes ':' for a list of files
        f"--size={options.size}",
        f"--direct={int(programme.direct)}",
        f"--ioengine={options.ioengine}",
        f"--iodepth={options.iodepth}",
        "--thread=1",  # one process a client: stopping it stops all of it
        "--output-format=json+",
    ]


def measured(programme: Programme, client: Client, job: str) -> list[str]:
    """Give fio's command of a measured job."""
    options = programme.options
    return [
        *base(programme, client, job),
        f"--rw={JOBS[job]}",
        f"--bs={options.random_bs if job.startswith('rand') else options.sequential_bs}",
        f"--runtime={duration(options.runtime)}",
        f"--ramp_time={duration(options.ramp)}",
        "--time_based=1",
        "--allow_file_create=0",  # a file that vanished is an error, not something to lay out again
        f"--randseed={1000 + client.number}",
        f"--write_bw_log={prefix(client, job)}",
        f"--log_avg_msec={LOG_MS}",
        "--log_unix_epoch=1",
        "--per_job_logs=0",
    ]


def duration(seconds: float) -> str:
    """Write seconds for fio, which takes whole numbers only."""
    return str(int(seconds)) if seconds == int(seconds) else f"{round(seconds * 1000)}ms"


def run_clients(
    clients: list[Client], commands: list[list[str]], job: str, corner: Corner, start: float, limit: float
) -> bool:
    """Start all clients at `start` and wait for them. False when one has not ended within `limit` seconds.

    Raises StorageError when one failed. No client outlives this call.
    """
    stop = threading.Event()
    threads = [
        threading.Thread(target=_run_client, args=(client, command, job, start, stop), daemon=True)
        for client, command in zip(clients, commands, strict=True)
    ]
    deadline = time.monotonic() + limit
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and time.monotonic() < deadline:
                thread.join(min(HEARTBEAT_S, max(0.01, deadline - time.monotonic())))
                corner.beat()
        ended = not any(thread.is_alive() for thread in threads)
    finally:
        stop.set()
        _end(clients)
    if ended:
        for client in clients:
            _check(client, job)
    return ended


def _run_client(client: Client, command: list[str], job: str, start: float, stop: threading.Event) -> None:
    client.process = client.started_at = client.ended_at = client.exit_code = client.failure = None
    if stop.wait(max(0.0, start - time.time())):
        return
    try:
        with Path(f"{prefix(client, job)}.json").open("wb") as output:
            client.started_at = time.time()
            client.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
    except OSError as error:
        client.failure = error
        return
    if stop.is_set():
        client.process.kill()
    client.exit_code = client.process.wait()
    client.ended_at = time.time()


def _end(clients: list[Client]) -> None:
    """Stop what still runs: kindly, then not."""
    running = [client.process for client in clients if client.process is not None and client.process.poll() is None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + STOP_S
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.01, deadline - time.monotonic()))
        process.kill()


def _check(client: Client, job: str) -> None:
    """Raise StorageError when a client failed, with the kind that its own words tell."""
    name = f"{job}, client {client.number} of {client.node}"
    if client.failure is not None:
        raise StorageError("client_failed", f"{name}: {client.failure}", client.failure.errno)
    if client.exit_code == 0:
        return
    text = Path(f"{prefix(client, job)}.json").read_text(encoding="utf-8", errors="replace")[:65536]
    words = [line for line in text.splitlines() if "fio:" in line and "error" in line] or text.splitlines()[:1]
    numbers = [int(match[1]) for match in _ERROR.finditer(text) if match[1]]
    message = f"{name}: fio ended with {client.exit_code}: {words[0].strip() if words else 'no message'}"
    if numbers and kind_of(numbers[0]) != "io_error":
        raise StorageError(kind_of(numbers[0]), message, numbers[0])
    raise StorageError("io_error" if numbers else "client_failed", message, numbers[0] if numbers else None)


def _version(fio: str) -> str:
    done = subprocess.run([fio, "--version"], capture_output=True, text=True, check=False, timeout=30)
    return done.stdout.strip()


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    del frame
    for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough: the files are being removed
    raise Stopped(number)


if __name__ == "__main__":
    sys.exit(main())
