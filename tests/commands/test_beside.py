"""A stage in a process of its own: its value, its errors, and its death reach the first process."""

from __future__ import annotations

import os
import signal

import pytest

from plumbline.commands import beside as module
from plumbline.commands.beside import Beside
from plumbline.errors import OutputError, StageLostError, ValidationError


@pytest.fixture(autouse=True)
def _no_early_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds in each test, and nothing here needs them."""
    monkeypatch.setattr(module, "_SLOW_IMPORTS", ())


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


def test_a_killed_process_is_told_and_can_be_repeated() -> None:
    with Beside() as beside, pytest.raises(StageLostError, match="plumbline die RUN_DIR"):
        beside.call(die)
