"""One launch, one record: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from tests.test_model import a_spec

from plumbline.execution import run_one
from plumbline.execution.run_one import (
    RECORD_MARK,
    AttemptTakenError,
    child_environment,
    claim_attempt,
    run,
    write_atomically,
)
from plumbline.model import Code, Outcome, run_record, to_plain


def record_on_disk(evidence: Path, name: str = "echo-n1-g0-r1.a1.json"):
    return run_record(json.loads((evidence / "records" / name).read_text()))


def test_output_and_exit_code_are_kept(tmp_path: Path) -> None:
    spec = a_spec(argv=("sh", "-c", "echo out; echo err >&2; pwd; exit 3"))
    record = run(spec, tmp_path)
    raw = tmp_path / record.raw_dir
    assert (record.outcome, record.exit_code, record.attempt) == (Outcome.EXITED, 3, 1)
    assert (raw / "stdout").read_text().splitlines() == ["out", str(raw)]
    assert (raw / "stderr").read_text() == "err\n"
    assert record_on_disk(tmp_path) == record
    assert record.spec_sha256 == spec.digest()
    assert {f.path for f in record.raw_files} == {"stdout", "stderr"}
    assert record.hardware["hardware_id"]


def test_a_second_run_is_a_second_attempt(tmp_path: Path) -> None:
    assert [run(a_spec(), tmp_path).attempt for _ in range(2)] == [1, 2]
    with pytest.raises(AttemptTakenError, match="attempt 2 is taken"):
        run(a_spec(), tmp_path, attempt=2)


def test_a_hang_leaves_a_record_and_no_process(tmp_path: Path) -> None:
    spec = a_spec(argv=("sh", "-c", "echo begun; sleep 300 & echo $!; wait"), timeout_s=5.0)
    record = run(spec, tmp_path)
    assert record.outcome is Outcome.TIMEOUT
    begun, pid = (tmp_path / record.raw_dir / "stdout").read_text().split()
    assert begun == "begun"
    wait_until_gone(int(pid))


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_one, "GRACE_S", 0.2)
    spec = a_spec(argv=("sh", "-c", "trap '' TERM; echo $$; while true; do sleep 0.1; done"), timeout_s=3.0)
    record = run(spec, tmp_path)
    assert record.outcome is Outcome.TIMEOUT
    wait_until_gone(int((tmp_path / record.raw_dir / "stdout").read_text()))


def test_a_missing_command_is_not_a_slow_one(tmp_path: Path) -> None:
    record = run(a_spec(argv=("/no/such/binary",)), tmp_path)
    assert (record.outcome, record.exit_code) == (Outcome.NOT_STARTED, None)
    assert "/no/such/binary" in record.reason


def test_a_signal_is_named(tmp_path: Path) -> None:
    record = run(a_spec(argv=("sh", "-c", "kill -SEGV $$")), tmp_path)
    assert (record.outcome, record.signal) == (Outcome.SIGNALLED, signal.SIGSEGV)
    assert "SIGSEGV" in record.reason


def test_stragglers_of_an_ended_launcher_are_stopped(tmp_path: Path) -> None:
    record = run(a_spec(argv=("sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!")), tmp_path)
    wait_until_gone(int((tmp_path / record.raw_dir / "stdout").read_text()))


def start_in_process(tmp_path: Path, command: str) -> subprocess.Popen[bytes]:
    spec_file = tmp_path / "spec.json"
    spec_file.write_text(json.dumps(to_plain(a_spec(argv=("sh", "-c", command), timeout_s=300.0))))
    process = subprocess.Popen(
        [sys.executable, "-m", "plumbline.execution.run_one", "--spec", spec_file, "--evidence", tmp_path / "evidence"]
    )
    stdout = tmp_path / "evidence/raw/echo-n1-g0-r1.a1/stdout"
    wait_for(lambda: stdout.exists() and stdout.read_text().endswith("\n"))
    return process


def child_of(tmp_path: Path) -> int:
    return int((tmp_path / "evidence/raw/echo-n1-g0-r1.a1/stdout").read_text().split()[0])


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pid: int) -> None:
    wait_for(lambda: not alive(pid))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.05)


def test_sigterm_stops_the_benchmark_and_the_record_says_so(tmp_path: Path) -> None:
    process = start_in_process(tmp_path, "echo $$; exec sleep 300")
    process.terminate()
    assert process.wait(timeout=120) == 0
    record = record_on_disk(tmp_path / "evidence")
    assert (record.outcome, record.code) == (Outcome.STOPPED, Code.STOPPED)
    wait_until_gone(child_of(tmp_path))


def test_kill_leaves_no_record_and_no_process(tmp_path: Path) -> None:
    process = start_in_process(tmp_path, "echo $$; exec sleep 300")
    process.kill()
    process.wait(timeout=120)
    wait_until_gone(child_of(tmp_path))
    assert not (tmp_path / "evidence/records").exists()
    assert claim_attempt(tmp_path / "evidence", "echo-n1-g0-r1")[0] == 2


def test_an_unwritable_volume_puts_the_record_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(run_one, "write_atomically", refuse)
    with pytest.raises(OSError, match="Read-only"):
        run(a_spec(), tmp_path)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(RECORD_MARK))
    assert run_record(json.loads(line.removeprefix(RECORD_MARK))).outcome is Outcome.EXITED


def test_the_orchestrators_secrets_do_not_reach_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "planted-secret-1")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "planted-secret-2")
    record = run(a_spec(argv=("env",), env={"NCCL_ALGO": "RING"}), tmp_path)
    everything = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
    assert "planted-secret" not in everything
    assert record.environment["env"]["NCCL_ALGO"] == "RING"


def test_the_environment_is_the_bare_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("AIRFLOW", "MLFLOW_", "_AIRFLOW"))]:
        monkeypatch.delenv(name)
    assert child_environment({}) == dict(os.environ)


def test_the_in_pod_part_needs_only_the_standard_library() -> None:
    code = (
        "import sys; import plumbline.execution.run_one; "
        "print([m for m in sys.modules if m.partition('.')[0] not in sys.stdlib_module_names "
        "and not m.startswith(('plumbline', '_', 'sitecustomize', 'usercustomize'))])"
    )
    include = Path(run_one.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(include), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


INTERRUPTED_AT = """
import os, signal, sys
from plumbline.execution import run_one

name, number, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
inner, left = getattr(run_one, name), [1]

def interrupted(*given):
    found = inner(*given) if name == "_has_ended" else None
    if left and (found or name != "_has_ended"):
        left.pop()
        os.kill(os.getpid(), number)
    return found if name == "_has_ended" else inner(*given)

setattr(run_one, name, interrupted)
sys.exit(run_one.main(arguments))
"""
"""Runs run_one in a process that is sent a signal when it calls a function for the first time."""


def run_interrupted(tmp_path: Path, name: str, number: signal.Signals, command: str) -> int:
    spec_file = tmp_path / "spec.json"
    spec_file.write_text(json.dumps(to_plain(a_spec(argv=("sh", "-c", command), timeout_s=300.0))))
    arguments = ["--spec", str(spec_file), "--evidence", str(tmp_path / "evidence")]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, name, str(number.value), *arguments], check=False, timeout=120,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode


LATE = ("_has_ended", "kill_group", "hardware_identity", "software_environment", "digest_files", "write_record",
        "write_atomically")  # fmt: skip


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, -signal.SIGINT)], ids=str)
def test_an_answer_is_recorded_before_an_interruption_ends_the_process(
    tmp_path: Path, name: str, number: signal.Signals, code: int
) -> None:
    assert run_interrupted(tmp_path, name, number, "echo measured; exit 3") == code
    record = record_on_disk(tmp_path / "evidence")
    assert (record.outcome, record.exit_code, record.reason) == (Outcome.EXITED, 3, "exit code 3")
    assert {file.path for file in record.raw_files} == {"stdout", "stderr"}
    assert record.snapshots["after"]


def test_a_crash_that_an_interruption_meets_stays_a_crash(tmp_path: Path) -> None:
    run_interrupted(tmp_path, "_has_ended", signal.SIGTERM, "kill -SEGV $$")
    assert record_on_disk(tmp_path / "evidence").signal == signal.SIGSEGV


def test_a_benchmark_that_was_asked_to_stop_together_with_its_runner_did_not_fail(tmp_path: Path) -> None:
    run_interrupted(tmp_path, "_has_ended", signal.SIGTERM, "kill -TERM $$")
    record = record_on_disk(tmp_path / "evidence")
    assert (record.outcome, record.reason) == (Outcome.STOPPED, "stopped from outside: SystemExit")


@pytest.mark.parametrize("name", ["snapshot", "claim_attempt"])
def test_what_is_stopped_before_it_began_is_not_started(tmp_path: Path, name: str) -> None:
    assert run_interrupted(tmp_path, name, signal.SIGTERM, "echo measured") == 0
    assert record_on_disk(tmp_path / "evidence").outcome is Outcome.STOPPED
    assert list((tmp_path / "evidence/raw/echo-n1-g0-r1.a1").iterdir()) == []


STUBBORN = "trap 'echo asked' TERM; echo $$; while true; do sleep 0.1; done"


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_second_interruption_does_not_leave_the_benchmark_running(tmp_path: Path, second: signal.Signals) -> None:
    process = start_in_process(tmp_path, STUBBORN)
    stdout = tmp_path / "evidence/raw/echo-n1-g0-r1.a1/stdout"
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "asked" in stdout.read_text())
    process.send_signal(second)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=120)
    wait_until_gone(child_of(tmp_path))
    assert record_on_disk(tmp_path / "evidence").outcome is Outcome.STOPPED


def test_what_interrupts_the_end_of_a_group_is_raised_once_the_group_is_gone(tmp_path: Path) -> None:
    """As in the launcher of a gang, which runs commands of its own."""
    code = f"""
import subprocess, sys
from plumbline.execution.run_one import stop_group
with open(sys.argv[1], "wb") as out:
    process = subprocess.Popen(["sh", "-c", {STUBBORN!r}], stdout=out, start_new_session=True)
sys.stdin.readline()
try:
    stop_group(process)
except KeyboardInterrupt:
    print("interrupted", process.poll())
"""
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", code, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_for(lambda: out.exists() and out.read_text().endswith("\n"))
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    wait_for(lambda: "asked" in out.read_text())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert said.startswith("interrupted")
    wait_until_gone(int(out.read_text().split()[0]))


def test_the_benchmark_is_given_the_signals_as_bare(tmp_path: Path) -> None:
    argv = ("grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status")
    record = run(a_spec(argv=argv), tmp_path)
    bare = subprocess.run(argv, check=True, capture_output=True).stdout
    assert bare.count(b"\n") == 3
    assert (tmp_path / record.raw_dir / "stdout").read_bytes() == bare


def test_handlers_are_as_they_were_afterwards(tmp_path: Path) -> None:
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    run(a_spec(), tmp_path)
    assert [signal.getsignal(number) for number in numbers] == before


def test_outside_the_main_thread_it_runs_as_well(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        record = pool.submit(run, a_spec(argv=("sh", "-c", "exit 3")), tmp_path).result()
    assert (record.outcome, record.exit_code) == (Outcome.EXITED, 3)


def test_where_nobody_can_tell_how_it_ended_nothing_passes(tmp_path: Path) -> None:
    """A process that ignores SIGCHLD never learns exit codes; subprocess gives 0 then."""
    spec_file = tmp_path / "spec.json"
    spec_file.write_text(json.dumps(to_plain(a_spec(argv=("true",)))))
    code = (
        "import signal, sys; from plumbline.execution import run_one; "
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN); run_one.main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--spec", spec_file, "--evidence", tmp_path / "evidence"],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert "this process ignores SIGCHLD" in done.stderr
    assert record_on_disk(tmp_path / "evidence").outcome is Outcome.STOPPED


def test_a_signal_without_a_name_is_an_answer(tmp_path: Path) -> None:
    number = signal.SIGRTMIN + 1
    record = run(a_spec(argv=("sh", "-c", f"kill -{number} $$")), tmp_path)
    assert (record.outcome, record.signal, record.reason) == (Outcome.SIGNALLED, number, f"ended by signal {number}")


def test_a_file_that_can_not_be_written_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "record.json"
    write_atomically(path, "old")
    code = (
        "import resource, sys; from pathlib import Path; from plumbline.execution.run_one import write_atomically; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); write_atomically(Path(sys.argv[1]), 'x' * 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=False, capture_output=True, text=True)
    assert "OSError: [Errno 27]" in done.stderr
    assert [one.name for one in path.parent.iterdir()] == ["record.json"]
    assert path.read_text() == "old"


def test_a_file_that_can_not_take_its_place_leaves_nothing_either(tmp_path: Path) -> None:
    (tmp_path / "record.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "record.json", "x")
    assert [one.name for one in tmp_path.iterdir()] == ["record.json"]
