"""Run one LaunchSpec and leave a RunRecord: in a pod and on this machine alike. Standard library only.

    python -m plumbline.execution.run_one --spec SPEC.json --evidence DIR [--attempt N]

Exits 0 whenever a record was written: a non-zero exit therefore means infrastructure, and a non-zero exit of the
benchmark is data. The record appears by write-temp, fsync, rename, after its raw files are on disk; an attempt is
claimed by creating its raw directory, which only one process can do. What asks this process to stop is heard while the
benchmark runs; otherwise it waits until the record is written, so an answer that was measured is never lost.
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
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

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
_STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""What asks a process to stop; SIGALRM is how Airflow ends a task that takes too long."""
_LOOK_S = 0.05
"""Between two looks whether the benchmark has ended."""
_PR_SET_PDEATHSIG = 1
_T = TypeVar("_T")
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


class HeldBack:
    """Holds back what asks this process to stop, until the block is left; `interruptible` lets it through meanwhile.

    Python runs signal handlers in the main thread alone, so elsewhere there is nothing to hold back. Handlers are
    replaced rather than signals blocked: a child would inherit a mask, and another thread would take the signal.
    """

    def __init__(self) -> None:
        self._previous: dict[signal.Signals, Any] = {}
        self._waiting: list[signal.Signals] = []
        self._through = True
        """Handlers only pass on then, so that one which an interruption leaves in place changes nothing."""

    def __enter__(self) -> HeldBack:
        if threading.current_thread() is threading.main_thread():
            for number in _STOPS:
                handler = signal.getsignal(number)
                if handler not in (None, signal.SIG_IGN):
                    self._previous[number] = handler
                    signal.signal(number, self._handle)
        self._through = False
        return self

    def __exit__(self, *details: object) -> None:
        self._through = True
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._deliver()

    def interruptible(self, call: Callable[[], _T]) -> _T:
        """Give what `call` gives; what waits and what comes meanwhile interrupts it, and nothing after it has ended."""
        self._through = True
        try:
            self._deliver()
            return call()
        finally:
            self._through = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._through:
            self._pass_on(signal.Signals(number), frame)
        else:
            self._waiting.append(signal.Signals(number))

    def _deliver(self) -> None:
        while self._waiting:
            self._pass_on(self._waiting.pop(0), None)

    def _pass_on(self, number: signal.Signals, frame: FrameType | None) -> None:
        handler = self._previous[number]
        if callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How a benchmark ended, and what interrupted this process meanwhile: raised again when the record is written."""

    outcome: Outcome
    reason: str
    exit_code: int | None = None
    signal: int | None = None
    interruption: BaseException | None = None


def run(spec: LaunchSpec, evidence: Path, attempt: int | None = None) -> RunRecord:
    """Run one launch to its end and write its record below `evidence`.

    Whatever interrupts this function (SIGTERM turned into an exception, KeyboardInterrupt) while the benchmark runs
    stops its whole process group first, and the record says STOPPED. What comes later finds an answer: that is recorded
    as it is, and the interruption raised then. Raises AttemptTakenError, or OSError when the evidence directory cannot
    be written.
    """
    with HeldBack() as held:
        number, raw_dir = claim_attempt(evidence, spec.launch_id, attempt)
        before: dict[str, Any] = {}
        started_at, clock = utc_now(), time.monotonic()
        cpu_before = _own_cpu_s()
        try:
            before = held.interruptible(snapshot)
            started_at, clock = utc_now(), time.monotonic()
            cpu_before = _own_cpu_s()
            end = _execute(spec, raw_dir, held)
        except BaseException as error:
            end = _stopped(error)
        runner_cpu_s = _own_cpu_s() - cpu_before
        record = RunRecord(
            launch_id=spec.launch_id,
            run_id=spec.run_id,
            cluster=spec.cluster,
            attempt=number,
            spec_sha256=spec.digest(),
            outcome=end.outcome,
            exit_code=end.exit_code,
            signal=end.signal,
            code=Code.STOPPED if end.outcome is Outcome.STOPPED else None,
            reason=end.reason,
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
        try:
            write_record(record, evidence)
        finally:
            if end.interruption is not None:
                raise end.interruption
    return record


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Give the benchmark's environment: this process's own without the orchestrator's variables, plus `extra`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_WITHHELD)}
    return {**kept, **extra}


def _execute(spec: LaunchSpec, raw_dir: Path, held: HeldBack) -> _End:
    """Start the command, wait within its time, and say how it ended. Raises what interrupts it before it runs."""
    held.interruptible(lambda: None)  # what waits by now needs no benchmark to be started
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
            return _End(outcome=Outcome.NOT_STARTED, reason=f"cannot start {spec.argv[0]}: {error}")
        interruption = None
        try:
            in_time = held.interruptible(lambda: _ends_within(process.pid, spec.timeout_s))
        except BaseException as error:
            interruption = error
            if not _has_ended(process.pid):
                _stop(process, held)
                return _stopped(error)
            in_time = True
        if not in_time:
            reason = f"no end after {spec.timeout_s:g} s; stopped"
            return _End(outcome=Outcome.TIMEOUT, reason=reason, interruption=_stop(process, held))
        status = process.wait()
        kill_group(process.pid, signal.SIGKILL)  # stragglers of a launcher that ended without them
    if interruption is not None and -status in _STOPS:
        return _stopped(interruption)  # whoever asked this process to stop asked the benchmark as well
    if status < 0:
        reason = f"ended by {_name_of(-status)}"
        return _End(outcome=Outcome.SIGNALLED, signal=-status, reason=reason, interruption=interruption)
    reason = f"exit code {status}" if status else ""
    return _End(outcome=Outcome.EXITED, exit_code=status, reason=reason, interruption=interruption)


def _stopped(interruption: BaseException) -> _End:
    reason = f"stopped from outside: {type(interruption).__name__}"
    return _End(outcome=Outcome.STOPPED, reason=reason, interruption=interruption)


def _name_of(number: int) -> str:
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, f"signal {number}")  # real-time signals have no names


def _ends_within(pid: int, limit_s: float) -> bool:
    """Wait for a child's end, but leave its status to be asked for: one that an interruption takes along is lost."""
    end, pause_s = time.monotonic() + limit_s, 0.0005
    while not _has_ended(pid):
        left_s = end - time.monotonic()
        if left_s <= 0:
            return False
        pause_s = min(2 * pause_s, _LOOK_S, left_s)
        time.sleep(pause_s)
    return True


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError as error:
        error.strerror = "nobody can tell how the benchmark ended: this process ignores SIGCHLD"
        raise


def die_with_parent() -> None:
    """Ask the kernel to end the benchmark when this process is killed, so that nothing keeps measuring alone."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: SIGTERM, GRACE_S, SIGKILL. What interrupts it is raised when SIGKILL was sent."""
    with HeldBack() as held:
        interruption = _stop(process, held)
    if interruption is not None:
        raise interruption


def _stop(process: subprocess.Popen[bytes], held: HeldBack) -> BaseException | None:
    """End a process and its group; give what interrupted the wait for one that is stuck in the kernel."""
    kill_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE_S)
    kill_group(process.pid, signal.SIGKILL)
    try:
        held.interruptible(process.wait)
    except BaseException as error:
        return error
    return None


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
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
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
