"""Run one LaunchSpec and leave a RunRecord: in a pod and on this machine alike. Standard library only.

    python -m plumbline.execution.run_one --spec SPEC.json --evidence DIR [--attempt N]

Exits 0 whenever a record was written: a non-zero exit therefore means infrastructure, and a non-zero exit of the
benchmark is data. The record appears by write-temp, fsync, rename, after its raw files are on disk; an attempt is
claimed by creating its raw directory, which only one process can do.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from plumbline.execution.environment import hardware_identity, snapshot, software_environment, utc_now
from plumbline.model import (
    Code,
    LaunchSpec,
    Outcome,
    RawFile,
    RunRecord,
    canonical_json,
    launch_spec,
    to_plain,
)

GRACE_S = 3.0
"""Between SIGTERM and SIGKILL to the benchmark's process group: an orchestrator gives this process 5 s in its turn."""
RECORD_MARK = "PLUMBLINE_RECORD "
"""Starts the one log line that carries the record when the results volume cannot take it."""
_WITHHELD = ("AIRFLOW", "_AIRFLOW", "MLFLOW_", "PLUMBLINE_SECRET", "AWS_SECRET", "AWS_SESSION")
_SHOWN = ("NCCL_", "RCCL_", "OMP_", "UCX_", "OMPI_", "CUDA_", "ROCR_", "HPL_", "TORCH_", "GLOO_", "LD_LIBRARY_PATH")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class AttemptTakenError(Exception):
    """Another process has claimed this attempt."""


def claim_attempt(evidence: Path, launch_id: str, attempt: int | None = None) -> tuple[int, Path]:
    """Claim an attempt by creating its raw directory; give its number (from 1) and the directory.

    With `attempt` None the next free number is taken. Raises AttemptTakenError when the given one is claimed.
    """
    raw = evidence / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    number = attempt or 1
    while True:
        path = raw / f"{launch_id}.a{number}"
        try:
            path.mkdir()
        except FileExistsError:
            if attempt is not None:
                raise AttemptTakenError(f"{launch_id}: attempt {attempt} is taken: {path} exists") from None
            number += 1
            continue
        return number, path


def run(spec: LaunchSpec, evidence: Path, attempt: int | None = None) -> RunRecord:
    """Run one launch to its end and write its record below `evidence`.

    Whatever interrupts this function (SIGTERM turned into an exception, KeyboardInterrupt) stops the benchmark's
    whole process group first, and the record says STOPPED. Raises AttemptTakenError, or OSError when the evidence
    directory cannot be written.
    """
    number, raw_dir = claim_attempt(evidence, spec.launch_id, attempt)
    before = snapshot()
    started_at, clock = utc_now(), time.monotonic()
    cpu_before = _own_cpu_s()
    stop: BaseException | None = None
    try:
        outcome, exit_code, signal_number, reason = _execute(spec, raw_dir)
    except BaseException as error:
        stop = error
        outcome, exit_code, signal_number = Outcome.STOPPED, None, None
        reason = f"stopped from outside: {type(error).__name__}"
    runner_cpu_s = _own_cpu_s() - cpu_before
    record = RunRecord(
        launch_id=spec.launch_id,
        run_id=spec.run_id,
        cluster=spec.cluster,
        attempt=number,
        spec_sha256=spec.digest(),
        outcome=outcome,
        exit_code=exit_code,
        signal=signal_number,
        code=Code.STOPPED if outcome is Outcome.STOPPED else None,
        reason=reason,
        argv=spec.argv,
        hosts=(os.environ.get("PLUMBLINE_NODE") or socket.gethostname(),),  # a pod's host name is not its node's
        started_at=started_at,
        ended_at=utc_now(),
        duration_s=round(time.monotonic() - clock, 6),
        runner_cpu_s=round(runner_cpu_s, 6),
        origin=spec.origin,
        device=spec.device,
        hardware=hardware_identity(),
        environment={**software_environment(), "env": shown_environment(spec.env)},
        snapshots={"before": before, "after": snapshot()},
        raw_dir=f"raw/{raw_dir.name}",
        raw_files=tuple(digest_files(raw_dir)),
    )
    write_record(record, evidence)
    if stop is not None:
        raise stop
    return record


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Give the benchmark's environment: this process's own without the orchestrator's variables, plus `extra`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_WITHHELD)}
    return {**kept, **extra}


def _execute(spec: LaunchSpec, raw_dir: Path) -> tuple[Outcome, int | None, int | None, str]:
    """Start the command, wait within its time, and give outcome, exit code, signal and reason."""
    with (raw_dir / "stdout").open("wb") as out, (raw_dir / "stderr").open("wb") as err:
        try:
            process = subprocess.Popen(
                spec.argv,
                cwd=raw_dir,
                env=child_environment(spec.env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call, prepared before the fork
            )
        except (OSError, ValueError) as error:
            return Outcome.NOT_STARTED, None, None, f"cannot start {spec.argv[0]}: {error}"
        try:
            status = process.wait(timeout=spec.timeout_s)
        except subprocess.TimeoutExpired:
            stop_group(process)
            return Outcome.TIMEOUT, None, None, f"no end after {spec.timeout_s:g} s; stopped"
        except BaseException:
            stop_group(process)
            raise
        kill_group(process.pid, signal.SIGKILL)  # stragglers of a launcher that ended without them
    if status < 0:
        return Outcome.SIGNALLED, None, -status, f"ended by {signal.Signals(-status).name}"
    return Outcome.EXITED, status, None, f"exit code {status}" if status else ""


def die_with_parent() -> None:
    """Ask the kernel to end the benchmark when this process is killed, so that nothing keeps measuring alone."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: SIGTERM, GRACE_S, SIGKILL."""
    kill_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE_S)
    kill_group(process.pid, signal.SIGKILL)
    process.wait()


def kill_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def shown_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that a record shows: those that steer a benchmark, and `extra`."""
    shown = {key: value for key, value in os.environ.items() if key.startswith(_SHOWN)}
    return {**shown, **extra}


def digest_files(raw_dir: Path) -> Iterator[RawFile]:
    """Give every raw file in name order with its size and SHA-256. Links are no raw files."""
    for path in sorted(p for p in raw_dir.rglob("*") if p.is_file() and not p.is_symlink()):
        yield RawFile(
            path=path.relative_to(raw_dir).as_posix(), size_bytes=path.stat().st_size, sha256=file_sha256(path)
        )


def file_sha256(path: Path) -> str:
    """Give the SHA-256 of a file's bytes as 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none: temporary name, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_record(record: RunRecord, evidence: Path) -> Path:
    """Write the record as records/<launch_id>.a<attempt>.json and give its path.

    When the volume refuses it, the record goes to stdout as one line starting with RECORD_MARK, and OSError is raised.
    """
    path = evidence / "records" / f"{record.launch_id}.a{record.attempt}.json"
    data = to_plain(record)
    try:
        write_atomically(path, json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    except OSError:
        print(RECORD_MARK + canonical_json(data), flush=True)  # noqa: T201 - the last resort is the pod's log
        raise
    return path


def raise_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
    """Turn a signal into SystemExit, which `run` records as STOPPED."""
    raise SystemExit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    """Run the spec in a file; exit 0 when a record was written or was there already."""
    parser = argparse.ArgumentParser(prog="run_one", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="LaunchSpec as JSON")
    parser.add_argument("--evidence", type=Path, required=True, help="the run's evidence directory")
    parser.add_argument("--attempt", type=int, help="claim exactly this attempt (default: the next free one)")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, raise_stop)
    data: Any = json.loads(chosen.spec.read_text())
    try:
        run(launch_spec(data), chosen.evidence, chosen.attempt)
    except SystemExit:
        return 0  # stopped, and the record says so
    except AttemptTakenError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 75
    return 0


if __name__ == "__main__":
    sys.exit(main())
