"""A stage in a process of its own: its value, its errors, and its death reach the first process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from plumbline.commands import beside as module
from plumbline.commands.beside import Beside
from plumbline.errors import OutputError, StageLostError, ValidationError
from plumbline.tracking import mlflow_tracking


@pytest.fixture(autouse=True)
def _no_early_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds in each test, and nothing here needs them."""
    monkeypatch.setattr(module, "_DRAWING", ())
    monkeypatch.setattr(module, "_TRACKING", ())


def refuse(name: str) -> None:
    raise OutputError("cut in the middle", source=name, line=7, excerpt="12.")


def violate() -> None:
    raise ValidationError("rows break the schema", [f"row {n}" for n in range(7)])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_calls_run_in_one_other_process() -> None:
    with Beside() as beside:
        first, second = beside.call(os.getpid), beside.call(os.getpid)
    assert first == second != os.getpid()


def test_an_error_keeps_its_words_and_its_place() -> None:
    with Beside() as beside, pytest.raises(OutputError) as caught:
        beside.call(refuse, "raw/a")
    assert str(caught.value) == "raw/a:7: cut in the middle (near '12.')"
    assert (caught.value.source, caught.value.line, caught.value.excerpt) == ("raw/a", 7, "12.")


def test_all_violations_survive() -> None:
    with Beside() as beside, pytest.raises(ValidationError) as caught:
        beside.call(violate)
    assert len(caught.value.violations) == 7
    assert str(caught.value).count("more") == 1


def test_a_process_that_is_killed_before_it_is_asked_is_told_likewise() -> None:
    with Beside() as beside:
        other = beside.call(os.getpid)
        process = psutil.Process(other)
        process.terminate()
        psutil.wait_procs([process], timeout=60)
        with pytest.raises(StageLostError, match="the process of refuse was killed"):
            beside.call(refuse, "raw/a")


OUTLIVED = """
import os, sys, time
from plumbline.commands import beside
beside._DRAWING = beside._TRACKING = ()
with beside.Beside() as other:
    print(other.call(os.getpid), flush=True)
    other.call(time.sleep, 600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_it_does_not_outlive_the_first_process(number: signal.Signals) -> None:
    first = subprocess.Popen([sys.executable, "-c", OUTLIVED], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    other = psutil.Process(int(first.stdout.readline()))
    first.send_signal(number)
    assert first.wait(timeout=60) == -number
    psutil.wait_procs([other], timeout=60)
    assert not other.is_running() or other.status() == psutil.STATUS_ZOMBIE
    assert first.stdout.read() == ""  # nobody holds the pipe open


def test_a_killed_process_is_told_and_can_be_repeated() -> None:
    with Beside() as beside, pytest.raises(StageLostError, match="the process of die was killed"):
        beside.call(die)


def test_what_fails_while_getting_ready_fails_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DRAWING", (violate,))
    with Beside() as beside:
        assert beside.call(os.getpid) != os.getpid()


def test_no_store_is_opened_for_a_run_that_is_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRACKING", (module._open_store,))
    monkeypatch.setattr(mlflow_tracking, "open_store", (tmp_path / "opened").touch)
    with Beside(tracking=False) as beside:
        beside.call(os.getpid)
    assert not (tmp_path / "opened").exists()
    with Beside() as beside:
        beside.call(os.getpid)
    assert (tmp_path / "opened").exists()


def test_only_a_store_in_a_file_is_opened_ahead_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(mlflow_tracking, "_client", lambda uri: nullcontext(Store(asked, uri)))
    mlflow_tracking.open_store("http://127.0.0.1:9")
    assert asked == []
    mlflow_tracking.open_store(f"sqlite:///{tmp_path}/mlflow.db")
    assert asked == [f"sqlite:///{tmp_path}/mlflow.db"]


class Store:
    """Notes that it was asked."""

    def __init__(self, asked: list[str], uri: str) -> None:
        self.asked, self.uri = asked, uri

    def search_experiments(self, max_results: int) -> list[object]:
        self.asked.append(self.uri)
        return []
