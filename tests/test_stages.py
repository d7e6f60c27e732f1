"""Judge, report and track at once on one run: nobody seals what another one has judged meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from plumbline import stages
from plumbline.errors import ConfigError, OutputError, TrackingError
from plumbline.reports import report
from plumbline.tracking import mlflow_tracking
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation import judging
from tests.derived_lock import locked
from tests.run_builder import build_run


class TimeIsUp(BaseException):
    """As Airflow's AirflowTaskTimeout, which is no Exception."""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """An open gate."""
    made = build_run(tmp_path, nodes=1)
    assert stages.gate(made.path).open and list(made.problems()) == []
    return made


def judge_otherwise(run: RunDirectory, **changes: Any) -> None:
    """Judge the same evidence by newer code, which changes this of the verdict."""
    with run.derived_anew() as anew:
        for path in run.derived.iterdir():
            if path.name not in ("report.html", "findings.json"):
                copyfile(path, anew.derived / path.name)
        anew.write_derived_json("verdict.json", {**run.read_derived("verdict.json"), **changes})
        anew.write_provenance({"version": "later"})


def close(run: RunDirectory) -> None:
    judge_otherwise(run, gate="closed", verdict="FAIL")


def store(monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None], log: Callable[[], None] = lambda: None) -> None:
    """Let MLflow be a store in which this happens meanwhile."""

    def begun(run: RunDirectory, *_: Any) -> str:
        begin()
        run.write_derived_json("mlflow.json", {"run_id": "m1"})
        return "m1"

    monkeypatch.setattr(mlflow_tracking, "begin", begun)
    monkeypatch.setattr(mlflow_tracking, "track", lambda *_: log())


def nothing() -> None:
    """Happen."""


# -- judge -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [OutputError("damaged"), MemoryError(), KeyboardInterrupt(), TimeIsUp()])
def test_no_open_word_outlasts_a_judge_that_does_not_end_well(
    run: RunDirectory, end: BaseException, monkeypatch: pytest.MonkeyPatch
):
    def judge_run(anew: RunDirectory) -> dict[str, Any]:
        assert locked(run) and stages.gate(run.path).open  # until then the old word stands
        raise end

    monkeypatch.setattr(judging, "judge_run", judge_run)
    with pytest.raises(type(end)):
        stages.judge(run.path)
    with pytest.raises(OutputError, match="is missing"):
        stages.gate(run.path)
    assert not locked(run)


def test_no_open_word_outlasts_a_judge_that_cannot_be_loaded(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "plumbline.validation.judging", None)
    with pytest.raises(ImportError):
        stages.judge(run.path)
    with pytest.raises(OutputError, match="is missing"):
        stages.gate(run.path)


# -- report ----------------------------------------------------------------------------------------------------------


def test_a_judge_waits_for_the_report_and_takes_it_away(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    real, judge = report.write_report, threading.Thread(target=close, args=[run], daemon=True)

    def write_report(run: RunDirectory) -> Path:
        judge.start()
        judge.join(0.2)
        assert judge.is_alive()
        return real(run)

    monkeypatch.setattr(report, "write_report", write_report)
    stages.report(run.path)
    judge.join()
    assert not stages.gate(run.path).open and list(run.problems()) == []
    assert not (run.derived / "report.html").exists()


def test_a_report_waits_for_the_judge_and_tells_its_verdict(run: RunDirectory):
    page = threading.Thread(target=stages.report, args=[run.path], daemon=True)
    with run.derived_locked():
        page.start()
        page.join(0.2)
        assert page.is_alive() and not (run.derived / "report.html").exists()
    page.join()
    assert (run.derived / "report.html").is_file() and list(run.problems()) == []


# -- track -----------------------------------------------------------------------------------------------------------


def test_a_run_is_logged_with_its_seal_and_holds_up_no_judge_while_the_store_answers(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
):
    held = []
    store(monkeypatch, lambda: held.append(locked(run)), lambda: held.append(locked(run)))
    assert stages.track(run.path) == "m1" and held == [False, False]
    assert run.read_derived("verdict.json")["mlflow_run_id"] == "m1"
    assert stages.gate(run.path).open and list(run.problems()) == []


@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_is_judged_otherwise_while_it_is_logged_keeps_the_later_word(
    run: RunDirectory, first: bool, monkeypatch: pytest.MonkeyPatch
):
    store(monkeypatch, *((lambda: close(run), nothing) if first else (nothing, lambda: close(run))))
    with pytest.raises(TrackingError, match=rf"judged otherwise .*plumbline track {run.run_id}"):
        stages.track(run.path)
    assert not stages.gate(run.path).open
    store(monkeypatch, nothing)
    assert stages.track(run.path) == "m1"
    assert not stages.gate(run.path).open and list(run.problems()) == []


def test_a_judge_that_comes_between_reading_and_writing_waits(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    real, judge = RunDirectory.write_derived_json, threading.Thread(target=close, args=[run], daemon=True)

    def write(self: RunDirectory, name: str, data: Any) -> Path:
        if name == "verdict.json" and self.derived == run.derived and not judge.is_alive():
            judge.start()
            judge.join(0.2)
            assert judge.is_alive()
        return real(self, name, data)

    monkeypatch.setattr(RunDirectory, "write_derived_json", write)
    store(monkeypatch, nothing, judge.join)
    with pytest.raises(TrackingError, match="judged otherwise"):
        stages.track(run.path)
    assert not stages.gate(run.path).open


def test_a_run_that_is_judged_the_same_again_is_logged(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    store(monkeypatch, lambda: judge_otherwise(run), lambda: stages.report(run.path))
    assert stages.track(run.path) == "m1"
    assert stages.gate(run.path).open and list(run.problems()) == []


@pytest.mark.parametrize("first", [True, False])
def test_no_verdict_that_is_edited_while_the_run_is_logged_gets_a_seal(
    run: RunDirectory, first: bool, monkeypatch: pytest.MonkeyPatch
):
    def edit() -> None:
        run.write_derived_json("verdict.json", {**run.read_derived("verdict.json"), "verdict": "WARN"})

    store(monkeypatch, *((edit, nothing) if first else (nothing, edit)))
    with pytest.raises(OutputError, match=r"verdict\.json is changed since it was judged"):
        stages.track(run.path)
    with pytest.raises(OutputError, match="doesn't belong"):
        stages.gate(run.path)


def test_a_run_whose_judge_fails_while_it_is_logged_has_no_word(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    def fail() -> None:
        with pytest.raises(MemoryError), run.derived_anew("mlflow.json"):
            raise MemoryError

    store(monkeypatch, fail)
    with pytest.raises(OutputError, match=f"plumbline judge {run.run_id}"):
        stages.track(run.path)
    with pytest.raises(OutputError, match="is missing"):
        stages.gate(run.path)


# -- what may not be told or lost ------------------------------------------------------------------------------------


def test_a_run_whose_folder_was_renamed_keeps_its_results(run: RunDirectory) -> None:
    renamed = run.path.rename(run.path.with_name("mine"))
    with pytest.raises(ConfigError, match="a run's folder keeps its name"):
        stages.judge(renamed)
    assert (renamed / "derived" / "verdict.json").is_file()


def test_no_page_repeats_an_open_gate_over_evidence_that_has_changed(run: RunDirectory) -> None:
    raw = next(path for path in (run.evidence / "raw").rglob("stdout") if path.stat().st_size)
    raw.write_bytes(raw.read_bytes()[:-1] + b"7")
    with pytest.raises(OutputError, match="is changed since it was judged; plumbline judge"):
        stages.report(run.path)
    close(run)
    stages.report(run.path)  # which now says so
