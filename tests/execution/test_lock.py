"""Two runs never measure each other, and a dead run doesn't block a living one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plumbline.errors import ClusterBusyError
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
    with pytest.raises(ClusterBusyError, match=r"run-1 \(nightly nightly\) holds it since .* wait for its end$"):
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
    assert lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid()) == "run-1"
    assert lock.left_behind(tmp_path) is None
    assert lock.acquire(tmp_path, "run-2", "x", HOUR, os.getpid()) is None
    with pytest.raises(ClusterBusyError):
        lock.acquire(tmp_path, "run-3", "x", HOUR)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run_id": "x"}'])
def test_a_damaged_lock_file_does_not_block_for_ever(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.json").write_text(text)
    lock.acquire(tmp_path, "run-1", "x", HOUR)
    assert json.loads((tmp_path / "lock.json").read_text())["run_id"] == "run-1"


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
    with pytest.raises(ClusterBusyError):
        lock.acquire(tmp_path, "run-2", "x", HOUR)


def test_a_lease_can_be_put_back_as_it_was(tmp_path: Path) -> None:
    acquire_and_die(tmp_path, "run-1")
    before = lock.peek(tmp_path)
    lock.acquire(tmp_path, "run-2", "x", HOUR)
    lock.put_back(tmp_path, "run-2", before)
    assert lock.left_behind(tmp_path) == "run-1"
    lock.acquire(tmp_path, "run-3", "x", HOUR)
    lock.put_back(tmp_path, "run-3", None)
    assert lock.peek(tmp_path) is None


def test_a_run_that_is_taken_up_again_begins_its_time_anew(tmp_path: Path) -> None:
    acquire_and_die(tmp_path, "run-1")
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "since": "2026-01-01T00:00:00+00:00"}))
    lock.acquire(tmp_path, "run-1", "x", HOUR, os.getpid())
    assert lock.holder_of(tmp_path)["since"] > "2026-01-02"
