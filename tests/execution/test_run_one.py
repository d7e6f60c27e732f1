"""One launch, one record: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.test_model import a_spec

from plumbline.execution import run_one
from plumbline.execution.run_one import RECORD_MARK, AttemptTakenError, child_environment, claim_attempt, run
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
