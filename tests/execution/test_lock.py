"""Two runs never measure each other, and a dead run doesn't block a living one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.prepared_run import prepare_run

from plumbline import cli
from plumbline.errors import ClusterBusyError, ExitCode
from plumbline.execution import lock

HOUR = timedelta(hours=1)


def test_the_second_run_is_told_who_holds_the_cluster(tmp_path: Path) -> None:
    lock.acquire(tmp_path / "c", "run-1", "nightly nightly", HOUR)
    with pytest.raises(ClusterBusyError, match=r"run-1 \(nightly nightly\) holds it since"):
        lock.acquire(tmp_path / "c", "run-2", "cli", HOUR)
    lock.release(tmp_path / "c", "run-2")
    assert lock.holder_of(tmp_path / "c")["run_id"] == "run-1"
    lock.release(tmp_path / "c", "run-1")
    assert lock.holder_of(tmp_path / "c") is None
    lock.acquire(tmp_path / "c", "run-2", "cli", HOUR)


def test_whoever_asks_early_is_told_the_same(tmp_path: Path) -> None:
    lock.refuse_if_busy(tmp_path / "c")
    lock.acquire(tmp_path / "c", "run-1", "nightly nightly", HOUR)
    with pytest.raises(ClusterBusyError, match=r"run-1 \(nightly nightly\) holds it since .* wait for its end"):
        lock.refuse_if_busy(tmp_path / "c")
    lock.release(tmp_path / "c", "run-1")
    lock.refuse_if_busy(tmp_path / "c")


def test_the_holder_may_renew(tmp_path: Path) -> None:
    lock.acquire(tmp_path, "run-1", "x", HOUR)
    since = lock.holder_of(tmp_path)["since"]
    lock.acquire(tmp_path, "run-1", "x", 2 * HOUR)
    assert lock.holder_of(tmp_path)["since"] == since


def test_an_expired_lease_is_void(tmp_path: Path) -> None:
    lock.acquire(tmp_path, "run-1", "x", timedelta(seconds=-1))
    lock.acquire(tmp_path, "run-2", "x", HOUR)


def acquire_and_die(folder: Path, run_id: str) -> None:
    """Take the lease in a process that ends without giving it back."""
    code = (
        "import os, sys; from datetime import timedelta; from pathlib import Path; "
        "from plumbline.execution import lock;"
        "lock.acquire(Path(sys.argv[1]), sys.argv[2], 'x', timedelta(hours=1), os.getpid())"
    )
    subprocess.run([sys.executable, "-c", code, str(folder), run_id], check=True)


def test_a_lease_of_a_dead_process_is_void_and_of_a_living_one_is_not(tmp_path: Path) -> None:
    acquire_and_die(tmp_path, "run-1")
    assert lock.left_behind(tmp_path) == "run-1"
    assert lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid()).abandoned == "run-1"
    assert lock.left_behind(tmp_path) is None
    assert lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid()).abandoned is None
    with pytest.raises(ClusterBusyError):
        lock.acquire(tmp_path, "run-3", "x", HOUR)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"run_id": "x"}', "[" * 100_000,
        '{"run_id": "x", "holder": "x", "since": "2026-01-01T00:00:00+00:00", "until": "soon"}',
        '{"run_id": "x", "holder": "x", "since": "2026-01-01T00:00:00", "until": "2026-01-01T00:00:00"}',
        '{"run_id": 1, "holder": "x", "since": "2026-01-01T00:00:00+00:00", "until": "2026-01-01T00:00:00+00:00"}',
    ],
)  # fmt: skip
def test_a_lock_that_does_not_say_who_holds_the_cluster_is_nobodys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock.json"
    path.write_text(text)
    refused = pytest.raises(ClusterBusyError, match=f"{path} doesn't say which run .* delete the file")
    for ask in (lock.holder_of, lock.left_behind, lock.refuse_if_busy):
        with refused:
            ask(tmp_path)
    with refused:
        lock.acquire(tmp_path, "x", "x", HOUR)
    lock.release(tmp_path, "x")
    lock.put_back(tmp_path, "x", None)
    assert path.read_text() == text


def test_a_lock_that_can_not_be_read_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "lock.json").mkdir()
    with pytest.raises(ClusterBusyError, match="IsADirectoryError"):
        lock.acquire(tmp_path, "run-1", "x", HOUR)


class Holder:
    """Another process that takes the lease, and does what it is told afterwards."""

    def __init__(self, folder: Path, run_id: str, lease_s: int = 3600) -> None:
        code = (
            "import os, sys; from datetime import timedelta; from pathlib import Path; "
            "from plumbline.execution import lock; folder = Path(sys.argv[1]); "
            "lock.acquire(folder, sys.argv[2], 'cli nightly', timedelta(seconds=int(sys.argv[3])), os.getpid()); "
            "print('held', flush=True); "
            "[(exec(line), print('done', flush=True)) for line in sys.stdin]"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder), run_id, str(lease_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._expect("held")

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self._expect("done")

    def die(self, *, waited_for: bool = True) -> None:
        """Be killed; a parent that doesn't wait for it leaves a zombie."""
        self.process.kill()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        if waited_for:
            self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"


@pytest.fixture(name="holder")
def _holder(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path, "run-1")
    yield holder
    holder.end()


@pytest.mark.parametrize("pid", [os.getpid(), None], ids=["as a process", "as a task"])
def test_a_run_whose_process_lives_is_not_taken_up_again(tmp_path: Path, holder: Holder, pid: int | None) -> None:
    before = (tmp_path / "lock.json").read_text()
    with pytest.raises(ClusterBusyError, match=rf"run-1 \(cli nightly\).* or stop process {holder.process.pid} on "):
        lock.acquire(tmp_path, "run-1", "cli resumed", HOUR, pid)
    assert (tmp_path / "lock.json").read_text() == before


def test_one_whose_process_is_gone_is(tmp_path: Path, holder: Holder) -> None:
    holder.die()
    assert lock.acquire(tmp_path, "run-1", "cli resumed", HOUR, os.getpid()).abandoned is None
    assert lock.holder_of(tmp_path)["pid"] == os.getpid()


def test_a_process_that_nobody_waited_for_is_gone(tmp_path: Path, holder: Holder) -> None:
    holder.die(waited_for=False)
    assert lock.left_behind(tmp_path) == "run-1"
    lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid())


def test_a_process_renews_its_own_lease(tmp_path: Path, holder: Holder) -> None:
    holder.do("lock.acquire(folder, 'run-1', 'again', timedelta(hours=9), os.getpid())")
    assert lock.holder_of(tmp_path)["holder"] == "again"


def test_a_run_of_airflow_is_not_taken_up_by_a_process_while_its_lease_lasts(tmp_path: Path) -> None:
    """Its tasks have no process in common; whether one of them lives can't be asked."""
    lock.acquire(tmp_path, "run-1", "nightly nightly", HOUR)
    with pytest.raises(ClusterBusyError, match=f"nothing of it runs any more for certain, delete {tmp_path}"):
        lock.acquire(tmp_path, "run-1", "cli resumed", HOUR, os.getpid())
    lock.acquire(tmp_path, "run-1", "nightly nightly", timedelta(seconds=-1))
    lock.acquire(tmp_path, "run-1", "cli resumed", HOUR, os.getpid())


def test_nobody_gives_back_what_another_process_of_the_run_holds(tmp_path: Path, holder: Holder) -> None:
    lock.release(tmp_path, "run-1")
    lock.put_back(tmp_path, "run-1", None)
    assert lock.holder_of(tmp_path)["pid"] == holder.process.pid
    holder.do("lock.release(folder, 'run-1')")
    assert lock.holder_of(tmp_path) is None


def test_any_process_gives_back_what_a_dead_one_left(tmp_path: Path, holder: Holder) -> None:
    holder.die()
    lock.release(tmp_path, "run-1")
    assert not (tmp_path / "lock.json").exists()


def test_no_clock_takes_the_cluster_from_a_process_that_lives(tmp_path: Path) -> None:
    holder = Holder(tmp_path, "run-1", lease_s=-3600)
    try:
        for run_id in ("run-1", "run-2"):
            with pytest.raises(ClusterBusyError, match=f"stop process {holder.process.pid} on .*: the run then lets"):
                lock.acquire(tmp_path, run_id, "x", HOUR, os.getpid())
        assert lock.holder_of(tmp_path)["run_id"] == "run-1"
    finally:
        holder.end()
    lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid())


def test_a_process_id_that_is_used_again_is_not_the_holder(tmp_path: Path, holder: Holder) -> None:
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid_started": "1"}))
    lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid())


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    def attempt(number: int) -> bool:
        try:
            lock.acquire(tmp_path, f"run-{number}", "x", HOUR)
        except ClusterBusyError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(16))) == 1


@pytest.mark.parametrize(
    "change", [{"machine": "another boot"}, {"machine": None}, {"pid": 1, "pid_started": None}], ids=str
)
def test_a_process_that_can_not_be_seen_counts_as_alive(tmp_path: Path, change: dict[str, Any]) -> None:
    """Of another host of this name, of another container, or another user's where /proc is hidden."""
    acquire_and_die(tmp_path, "run-1")
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert lock.left_behind(tmp_path) is None
    for run_id in ("run-1", "run-2"):
        with pytest.raises(ClusterBusyError, match=f"is gone for certain, delete {path}"):
            lock.acquire(tmp_path, run_id, "x", HOUR, os.getpid())
    lock.release(tmp_path, "run-1")
    path.write_text(json.dumps({**json.loads(path.read_text()), "until": "2026-01-01T00:00:00+00:00"}))
    lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid())


def test_a_lease_can_be_put_back_as_it_was(tmp_path: Path) -> None:
    acquire_and_die(tmp_path, "run-1")
    for run_id in ("run-1", "run-2"):
        taken = lock.acquire(tmp_path, run_id, "x", HOUR, os.getpid())
        lock.put_back(tmp_path, run_id, taken.before)
        assert lock.left_behind(tmp_path) == "run-1"
    lock.release(tmp_path, "run-1")
    taken = lock.acquire(tmp_path, "run-3", "x", HOUR)
    lock.put_back(tmp_path, "run-3", taken.before)
    assert not (tmp_path / "lock.json").exists()


def test_a_run_that_is_taken_up_again_begins_its_time_anew(tmp_path: Path) -> None:
    acquire_and_die(tmp_path, "run-1")
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "since": "2026-01-01T00:00:00+00:00"}))
    lock.acquire(tmp_path, "run-1", "x", HOUR, os.getpid())
    assert lock.holder_of(tmp_path)["since"] > "2026-01-02"


def test_a_living_run_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    run = prepare_run(tmp_path, {"a-n1": ("true",)})
    holder = Holder(tmp_path / "tiny", run.run_id)
    try:
        assert cli.main(["run", "--resume", run.run_id]) == ExitCode.INFRASTRUCTURE
        assert f"stop process {holder.process.pid}" in capsys.readouterr().err
        assert list(run.evidence.glob("raw/*")) == []
        assert lock.holder_of(tmp_path / "tiny")["pid"] == holder.process.pid
    finally:
        holder.end()
