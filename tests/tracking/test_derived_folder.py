import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.derived_lock import locked
from tests.run_builder import build_run

from plumbline.errors import OutputError
from plumbline.tracking import derived_folder
from plumbline.tracking.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return build_run(tmp_path, nodes=1)


def problems(run: RunDirectory) -> list[tuple[str, str]]:
    return [(item["problem"], item["path"]) for item in run.problems()]


# -- judging anew ----------------------------------------------------------------------------------------------------


def judge_anew(run: RunDirectory, word: str = "new") -> None:
    with run.derived_anew("mlflow.json") as anew:
        anew.write_derived_json("verdict.json", {"word": word})
        anew.write_provenance({"version": "9"})


def word_of(run: RunDirectory) -> str:
    return str(run.read_derived("verdict.json").get("word", "old"))


def hidden(run: RunDirectory) -> list[str]:
    return [path.name for path in run.path.iterdir() if path.name.startswith(".") and path.name != ".derived.lock"]


@pytest.mark.parametrize("exchange", [2, 1 << 30])  # the second is no flag that the kernel knows, as on NFS
def test_new_results_take_the_old_ones_place_at_once_and_keep_what_is_named(
    run: RunDirectory, exchange: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(derived_folder, "_RENAME_EXCHANGE", exchange)
    run.write_derived_json("mlflow.json", {"run_id": "m1"})
    run.write_provenance({"version": "8"})
    with run.derived_anew("mlflow.json") as anew:
        anew.write_derived_json("verdict.json", {"word": "new"})
        assert word_of(run) == "old" and problems(run) == []
        anew.write_provenance({"version": "9"})
    assert word_of(run) == "new" and problems(run) == [] and hidden(run) == []
    assert sorted(path.name for path in run.derived.iterdir()) == ["mlflow.json", "provenance.json", "verdict.json"]


def test_a_judge_that_fails_takes_the_old_word_away(run: RunDirectory):
    run.write_derived_json("mlflow.json", {"run_id": "m1"})
    with pytest.raises(OutputError), run.derived_anew("mlflow.json") as anew:
        anew.write_derived_json("verdict.json", {"word": "new"})
        raise OutputError("damaged", source="plan.json")
    assert [path.name for path in run.derived.iterdir()] == ["mlflow.json"] and hidden(run) == []
    judge_anew(run)
    assert word_of(run) == "new" and problems(run) == []


class TimeIsUp(BaseException):
    """As Airflow's AirflowTaskTimeout: no Exception, so that no task catches it by accident."""


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, TimeIsUp])
def test_a_judge_that_is_stopped_takes_the_old_word_away(run: RunDirectory, end: type[BaseException]):
    with pytest.raises(end), run.derived_anew() as anew:
        anew.write_derived_json("verdict.json", {"word": "new"})
        raise end
    assert list(run.derived.iterdir()) == [] and hidden(run) == []


@pytest.mark.parametrize("place", ["_open_lock", "_lock", "_sweep", "Path.mkdir", "copyfile"])
def test_a_judge_that_cannot_even_begin_takes_the_old_word_away(
    run: RunDirectory, place: str, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run.write_derived_json("mlflow.json", {"run_id": "m1"})
    monkeypatch.setattr(f"plumbline.tracking.derived_folder.{place}", full)
    with pytest.raises(OSError, match="No space left"), run.derived_anew("mlflow.json"):
        pytest.fail("the judge began")
    assert [path.name for path in run.derived.iterdir()] == ["mlflow.json"] and hidden(run) == []


@pytest.mark.parametrize(("function", "word"), [("_sync", "old"), ("swap", "old"), ("rmtree", "new")])
def test_a_judge_that_is_killed_leaves_the_old_results_or_the_new_ones(run: RunDirectory, function: str, word: str):
    child = os.fork()
    if child == 0:
        setattr(derived_folder, function, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        judge_anew(run)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert word_of(run) == word and problems(run) == [] and len(hidden(run)) == 1
    judge_anew(run, "newest")
    assert word_of(run) == "newest" and problems(run) == [] and hidden(run) == []


# -- one at a time ---------------------------------------------------------------------------------------------------


def started(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_second_judge_waits_for_the_first_and_sweeps_nothing_of_it(run: RunDirectory):
    with run.derived_anew() as first:
        second = started(lambda: judge_anew(run, "second"))
        second.join(0.2)
        assert second.is_alive() and first.derived.is_dir() and locked(run)
        first.write_derived_json("verdict.json", {"word": "first"})
        first.write_provenance({"version": "9"})
    second.join()
    assert word_of(run) == "second" and problems(run) == [] and hidden(run) == [] and not locked(run)


def test_a_judge_that_fails_holds_nobody_up(run: RunDirectory):
    with pytest.raises(OutputError), run.derived_anew():
        raise OutputError("damaged", source="plan.json")
    assert not locked(run)
    judge_anew(run)
    assert word_of(run) == "new" and problems(run) == []


def test_a_child_that_a_judge_left_behind_holds_nobody_up(run: RunDirectory):
    with run.derived_locked():
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        assert not locked(run)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_without_locks_is_judged_on_and_never_swept(
    run: RunDirectory, code: int, monkeypatch: pytest.MonkeyPatch
):
    def refuse(handle: int, what: int) -> None:
        raise OSError(code, os.strerror(code))

    (run.path / ".derived.0.tmp").mkdir()  # it may be another judge's
    monkeypatch.setattr(fcntl, "flock", refuse)
    judge_anew(run)
    assert word_of(run) == "new" and problems(run) == [] and hidden(run) == [".derived.0.tmp"]


def test_a_lock_that_fails_otherwise_is_said(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    def refuse(handle: int, what: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output error"), run.derived_locked():
        pytest.fail("it went on without the lock")


def test_another_users_lock_file_is_locked_as_well(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    (run.path / ".derived.lock").touch()
    real = os.open

    def only_to_read(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).name == ".derived.lock" and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", only_to_read)
    with run.derived_locked() as held:
        assert held and locked(run)


def test_the_lock_is_no_part_of_what_is_sealed(run: RunDirectory):
    judge_anew(run)
    assert (run.path / ".derived.lock").read_bytes() == b"" and problems(run) == []
