"""Raw output that was let go is told from raw output that is lost, and what is left of such a run stays."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.derived_lock import locked
from tests.run_builder import build_history, build_run, rewrite_json

from plumbline import __version__, stages
from plumbline.errors import OutputError
from plumbline.model import Origin
from plumbline.reports import report
from plumbline.tracking import mlflow_tracking, prune_record
from plumbline.tracking.history import load_history, series
from plumbline.tracking.pruning import prune
from plumbline.tracking.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """An open gate, with its page."""
    made = build_run(tmp_path, nodes=1)
    stages.report(made.path)
    return made


def everything(run: RunDirectory) -> dict[str, bytes]:
    """Give what stays of a pruned run."""
    files = [path for path in run.path.rglob("*") if path.is_file() and path.name != ".derived.lock"]
    names = {path: path.relative_to(run.path).as_posix() for path in files}
    return {name: path.read_bytes() for path, name in names.items() if not name.startswith("evidence/raw/")}


def problems(run: RunDirectory) -> list[tuple[str, str]]:
    return [(item["problem"], item["path"]) for item in run.problems()]


def raw_files(run: RunDirectory) -> list[Path]:
    return sorted(path for path in (run.evidence / "raw").rglob("*") if path.is_file())


# -- the record ------------------------------------------------------------------------------------------------------


def test_a_prune_leaves_a_record_and_everything_else_and_the_gate_s_word(run: RunDirectory):
    before, raw = everything(run), raw_files(run)
    size = sum(path.stat().st_size for path in raw)
    sealed, derived = run.sealed_counts()
    record = prune(run)
    assert not (run.evidence / "raw").exists()
    after = everything(run)
    told = json.loads(after.pop("pruned.json"))
    assert after == before and list(run.path.glob(".*.tmp")) == []
    assert told.pop("pruned_at").endswith("Z")
    assert told == {
        "schema_version": 1, "plumbline": __version__, "files": len(raw), "size_bytes": size,
        "manifest_sha256": run.manifest_sha256(),
    }  # fmt: skip
    assert run.pruned and run.pruning() == record
    assert problems(run) == [] and stages.gate(run.path).open
    assert run.sealed_counts() == (sealed - len(raw), derived)


def test_a_dry_run_gives_the_record_and_changes_nothing(run: RunDirectory):
    before, raw = everything(run), raw_files(run)
    assert prune(run, dry_run=True).files == len(raw)
    assert everything(run) == before and raw_files(run) == raw and not run.pruned


def test_anything_else_that_is_wrong_with_a_pruned_run_is_still_found(run: RunDirectory):
    prune(run)
    next((run.evidence / "records").glob("*.json")).unlink()
    (run.evidence / "raw.txt").write_text("more")
    assert {kind for kind, _ in problems(run)} == {"missing", "extra"} and len(problems(run)) == 2
    with pytest.raises(OutputError, match="since it was judged"):
        stages.gate(run.path)
    shutil.rmtree(run.derived)
    assert ("missing", "derived/provenance.json") in problems(run)


def damage(record: Path) -> None:
    record.write_text(record.read_text()[:-9])


def other_seal(record: Path) -> None:
    record.write_text(json.dumps({**json.loads(record.read_text()), "manifest_sha256": "0" * 64}))


def untyped(record: Path) -> None:
    record.write_text(json.dumps({**json.loads(record.read_text()), "files": "all"}))


def no_object(record: Path) -> None:
    record.write_text("[]")


@pytest.mark.parametrize("change", [damage, other_seal, untyped, no_object])
def test_a_record_that_is_damaged_or_of_another_seal_covers_nothing(run: RunDirectory, change: Callable[[Path], None]):
    raw = raw_files(run)
    prune(run)
    change(run.path / "pruned.json")
    assert run.pruning() is None and run.pruned
    assert problems(run) == [("missing", path.relative_to(run.path).as_posix()) for path in raw]
    for stage in (stages.gate, stages.report):
        with pytest.raises(OutputError, match="missing since it was judged"):
            stage(run.path)
    before = everything(run)
    with pytest.raises(OutputError, match="nothing is left to judge it from"):
        stages.judge(run.path)
    assert everything(run) == before


@pytest.mark.parametrize("whole", [True, False])
def test_raw_output_that_somebody_deleted_is_missing_and_no_page_or_gate_passes_over_it(run: RunDirectory, whole: bool):
    raw = raw_files(run)
    if whole:
        shutil.rmtree(run.evidence / "raw")
    else:
        raw[0].unlink()
    lost = [("missing", path.relative_to(run.path).as_posix()) for path in (raw if whole else raw[:1])]
    assert problems(run) == lost and not run.pruned
    for stage in (stages.gate, stages.report):
        with pytest.raises(OutputError, match=f"{lost[0][1]} is missing since it was judged"):
            stage(run.path)
    with pytest.raises(OutputError, match="put it back") as refused:
        stages.report(run.path)
    assert "plumbline judge" not in str(refused.value)


def test_a_record_does_not_cover_single_files_that_are_gone(run: RunDirectory):
    copy = Path(shutil.copytree(run.evidence / "raw", run.path.parent / "raw"))
    prune(run)
    copy.rename(run.evidence / "raw")
    assert problems(run) == [] and not run.pruned
    lost = raw_files(run)[0]
    lost.unlink()
    assert problems(run) == [("missing", lost.relative_to(run.path).as_posix())]


# -- what may be pruned ----------------------------------------------------------------------------------------------


def unfinish(run: RunDirectory) -> None:
    (run.evidence / "manifest.json").unlink()


def unjudge(run: RunDirectory) -> None:
    shutil.rmtree(run.derived)


def lose(run: RunDirectory) -> None:
    raw_files(run)[0].unlink()


def change_raw(run: RunDirectory) -> None:
    raw_files(run)[-1].write_text("other")


def edit(run: RunDirectory) -> None:
    run.write_derived_json("verdict.json", {**run.read_derived("verdict.json"), "verdict": "WARN"})


def lose_measurements(run: RunDirectory) -> None:
    (run.derived / "measurements.parquet").unlink()
    run.write_provenance({"version": "0"})


def contradict(run: RunDirectory) -> None:
    rewrite_json(run, "verdict.json", verdict="FAIL")


def misplace(run: RunDirectory) -> None:
    rewrite_json(run, "verdict.json", cluster="other")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (unfinish, "unfinished"),
        (unjudge, "not judged"),
        (lose, "is missing"),
        (change_raw, "is changed"),
        (edit, "verdict.json was changed"),
        (lose_measurements, "measurements.parquet is missing"),
        (contradict, "says open, FAIL"),
        (misplace, "a copy of other/"),
    ],
)
def test_only_a_run_that_is_judged_and_whole_is_pruned(
    run: RunDirectory, spoil: Callable[[RunDirectory], None], reason: str
):
    spoil(run)
    before, raw = everything(run), raw_files(run)
    with pytest.raises(OutputError, match=reason):
        prune(run)
    assert everything(run) == before and raw_files(run) == raw


@pytest.mark.parametrize("step", ["write_atomically", "rename", "rmtree"])
def test_an_interrupted_prune_leaves_raw_output_whole_or_gone_and_is_finished_by_the_next(
    run: RunDirectory, step: str, monkeypatch: pytest.MonkeyPatch
):
    before, raw = everything(run), raw_files(run)
    remove = shutil.rmtree

    def stop(path: Path, *_: object) -> None:
        if step == "rmtree":
            remove(next(path.iterdir()))  # half-way
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*((Path, step) if step == "rename" else (prune_record, step)), stop)
        with pytest.raises(KeyboardInterrupt):
            prune(run)
    assert problems(run) == [] and stages.gate(run.path).open
    if step == "rmtree":
        assert run.pruned and prune_record.sweep(run.path) and not prune_record.sweep(run.path)
    else:
        assert raw_files(run) == raw and not run.pruned
        prune(run)
    after = everything(run)
    assert after.pop("pruned.json") and after == before and run.pruning() is not None


# -- the stages of a pruned run --------------------------------------------------------------------------------------


def test_a_pruned_run_is_not_judged_again_and_keeps_what_it_has(run: RunDirectory):
    record = prune(run)
    before = everything(run)
    with pytest.raises(OutputError) as refused:
        stages.judge(run.path)
    for words in (run.run_id, record.pruned_at, "nothing is left to judge it from", "the verdict of then stands"):
        assert words in str(refused.value)
    with pytest.raises(OutputError, match="is pruned"), run.derived_anew():
        pass
    assert everything(run) == before


def test_a_judge_that_waited_for_a_prune_keeps_what_there_is(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    refused: list[OutputError] = []

    def judge() -> None:
        try:
            stages.judge(run.path)
        except OutputError as error:
            refused.append(error)

    judge_thread = threading.Thread(target=judge, daemon=True)
    with run.derived_locked():
        judge_thread.start()
        judge_thread.join(0.2)
        assert judge_thread.is_alive()
        prune(run)
    before = everything(run)
    judge_thread.join(30)
    assert not judge_thread.is_alive() and "is pruned" in str(refused[0])
    assert everything(run) == before and not locked(run)


def test_a_judge_that_ends_badly_beside_a_prune_takes_nothing_away(run: RunDirectory):
    before = everything(run)
    with pytest.raises(KeyboardInterrupt), run.derived_anew():
        prune(run)  # as where the file system has no locks
        raise KeyboardInterrupt
    after = everything(run)
    assert after.pop("pruned.json") and after == before
    assert stages.gate(run.path).open


def test_the_page_of_a_pruned_run_stays_with_what_it_quotes(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    prune(run)
    before = everything(run)

    def never(_: RunDirectory) -> Path:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(report, "write_report", never)
        assert stages.report(run.path) == run.derived / "report.html"
    assert everything(run) == before
    (run.derived / "report.html").unlink()
    assert stages.report(run.path).is_file() and problems(run) == []


def test_a_pruned_run_is_logged_and_stays_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = build_history(tmp_path, 3, nodes=1)

    def values() -> dict[str, list[float]]:
        loaded = load_history(tmp_path, "local", origin=Origin.MEASURED)
        return {str(key): [point.value for point in line.points] for key, line in series(loaded).items()}

    before = values()
    prune(runs[0])
    assert before and values() == before
    monkeypatch.setattr(mlflow_tracking, "begin", lambda *_: "m1")
    monkeypatch.setattr(mlflow_tracking, "track", lambda *_: None)
    assert stages.track(runs[0].path) == "m1"
    assert problems(runs[0]) == [] and stages.gate(runs[0].path).open


def test_a_pruned_run_becomes_no_baseline_but_an_approval_is_taken_back(run: RunDirectory):
    prune(run)
    with pytest.raises(OutputError, match="is pruned: a baseline needs its evidence whole"):
        stages.approve(run.path, by="ann", comment="")
    assert run.decisions() == []
    run.add_decision({"kind": "approve_baseline", "by": "ann"})  # as before it was pruned
    stages.approve(run.path, by="ann", comment="", kind="revoke_baseline")
    assert stages.standing_approval(run) is None


def test_nobody_is_told_to_judge_a_pruned_run(run: RunDirectory):
    prune(run)
    edit(run)
    for stage in (stages.report, stages.track):
        with pytest.raises(OutputError, match="can't be judged again") as refused:
            stage(run.path)
        assert "plumbline judge" not in str(refused.value)
