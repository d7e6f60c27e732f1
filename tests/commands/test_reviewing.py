"""Commands that look back on runs: compare, history, approve, prune."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.commands.command_line import edit_to_open, run
from tests.run_builder import build_run, rewrite_json

from plumbline.commands.running import print_verdict
from plumbline.errors import ExitCode
from plumbline.model import Code, Origin, Verdict, verdict
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.seals import note_seal


def test_two_runs_are_compared(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    first = build_run(results, when=now - timedelta(days=1), seed=1)
    second = build_run(results, when=now, seed=2)
    code, out, _ = run(capsys, "compare", str(first.path), str(second.path), "--json")
    assert code == ExitCode.OK
    assert json.loads(out)


def test_runs_of_two_clusters_are_compared_with_a_word_on_it(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = build_run(results), build_run(results, cluster="other", seed=2)
    code, out, _ = run(capsys, "compare", str(first.path), str(second.path))
    assert code == ExitCode.OK
    assert "local" in out and "other" in out


def test_history_takes_an_indicator_with_its_benchmark(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build_run(results, when=datetime.now(UTC) - timedelta(days=1))
    code, out, _ = run(capsys, "history", "fio/read_iops")
    assert code == ExitCode.OK
    assert out.startswith("fio/read_iops at 1 node [IOPS]")
    assert re.search(rf"    {made.run_id}  [\d.]+ +PASS, gate open\n", out)
    run(capsys, "approve", made.run_id, "--by", "ann")
    assert "PASS, gate open, part of the baseline\n" in run(capsys, "history", "fio/read_iops")[1]
    out = run(capsys, "history", "nccl_tests/bus_bandwidth")[1]
    sizes = [int(size) for size in re.findall(r'at 2 nodes .*"message_bytes":(\d+)', out)]
    assert len(sizes) > 3 and sizes == sorted(sizes)
    code, out, _ = run(capsys, "history", "hpl_mxp/effective_flops", "--json")
    assert {line["benchmark"] for line in json.loads(out)} == {"hpl_mxp"}


def test_an_approval_is_told_in_a_sentence_or_as_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build_run(results)
    out = run(capsys, "approve", str(made.path), "--by", "ann")[1]
    assert out.startswith(f"{made.run_id} is part of the baseline of local, as ann decided; ")
    out = run(capsys, "approve", str(made.path), "--by", "bob", "--revoke")[1]
    assert out.startswith(f"{made.run_id} is no part any more of the baseline of local, as bob decided; ")
    out = run(capsys, "approve", str(made.path), "--by", "ann", "--json")[1]
    assert json.loads(out) == made.decisions()[-1]
    pretended = build_run(results, cluster="pretended", origin=Origin.SIMULATED)
    assert "baseline of pretended (SIMULATED), as" in run(capsys, "approve", str(pretended.path), "--by", "ann")[1]


def test_an_approved_run_is_not_approved_twice_and_is_shown_as_such(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_run(results, extra=[BARE])
    data = json.loads((made.derived / "verdict.json").read_text())
    print_verdict(made, data)
    assert f"plumbline approve {made.run_id}" in " ".join(capsys.readouterr().out.split())
    assert "approved" not in json.loads(run(capsys, "list", "runs", "--json")[1])[0]
    assert run(capsys, "approve", str(made.path), "--by", "ann")[0] == ExitCode.OK
    (first,) = made.decisions()
    code, out, _ = run(capsys, "approve", str(made.path), "--by", "bob")
    assert code == ExitCode.OK
    assert f"{made.run_id} is already approved by ann at {first['decided_at']}" in out
    assert json.loads(run(capsys, "approve", str(made.path), "--by", "bob", "--json")[1]) == first
    assert made.decisions() == [first]
    (row,) = json.loads(run(capsys, "list", "runs", "--json")[1])
    assert row["approved"] == f"by ann at {first['decided_at']}"
    print_verdict(made, data)
    out = capsys.readouterr().out
    assert "plumbline approve" not in out
    assert f"approved by ann at {first['decided_at']}: part of the baseline" in out
    assert run(capsys, "approve", str(made.path), "--by", "ann", "--revoke")[0] == ExitCode.OK
    assert "approved" not in json.loads(run(capsys, "list", "runs", "--json")[1])[0]
    assert run(capsys, "approve", str(made.path), "--by", "bob")[0] == ExitCode.OK
    assert [line["by"] for line in made.decisions()] == ["ann", "ann", "bob"]


def test_an_approval_that_nobody_gave_is_not_taken_back(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build_run(results)
    code, _, err = run(capsys, "approve", str(made.path), "--by", "ann", "--revoke")
    assert (code, made.decisions()) == (ExitCode.USAGE, [])
    assert "is not approved: there is nothing to take back" in err
    assert run(capsys, "approve", str(made.path), "--by", "ann")[0] == ExitCode.OK
    assert run(capsys, "approve", str(made.path), "--by", "ann", "--revoke")[0] == ExitCode.OK
    assert [line["kind"] for line in made.decisions()] == ["approve_baseline", "revoke_baseline"]


def test_nobody_approves_an_edited_verdict_or_changed_evidence(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_run(results)
    edit_to_open(made)
    code, _, err = run(capsys, "approve", str(made.path), "--by", "ann")
    assert code == ExitCode.UNREADABLE
    assert "derived/verdict.json is changed" in err
    other = build_run(results, seed=2)
    victim = next((other.evidence / "raw").rglob("stdout"))
    victim.write_text(victim.read_text() + "1")
    code, _, err = run(capsys, "approve", str(other.path), "--by", "ann")
    assert code == ExitCode.UNREADABLE
    assert f"evidence/{victim.relative_to(other.evidence).as_posix()} is changed" in err
    assert made.decisions() == other.decisions() == []


NEAR = verdict(Code.NEAR_LIMIT, "node n0001", "5 % below the warning limit", benchmark="fio", indicator="read_iops")
BARE = verdict(Code.NO_BASELINE, "fio", "has no history", benchmark="fio", indicator="write_iops")
SLOW = verdict(Code.OUTSIDE_REFERENCE, "node n0001", "too slow", benchmark="fio", indicator="read_iops")


@pytest.mark.parametrize(
    ("suite", "extra", "refusal"),
    [
        ("nightly", [], None),
        ("nightly", [NEAR, BARE], None),
        ("nightly", [SLOW, BARE], "closed by FAIL outside_reference at node n0001;"),
        ("acceptance", [BARE], None),
        ("acceptance", [NEAR, BARE], "closed by WARN near_limit at node n0001;"),
        ("acceptance", [SLOW, NEAR, BARE], "closed by FAIL outside_reference at node n0001 and 1 more;"),
    ],
)
def test_a_baseline_is_made_of_open_gates_and_of_those_that_only_lack_one(
    results: Path, capsys: pytest.CaptureFixture[str], suite: str, extra: list[Verdict], refusal: str | None
) -> None:
    made = build_run(results, suite=suite, extra=extra)
    code, _, err = run(capsys, "approve", str(made.path), "--by", "ann")
    if refusal is None:
        assert (code, err, [line["by"] for line in made.decisions()]) == (ExitCode.OK, "", ["ann"])
    else:
        assert (code, made.decisions()) == (ExitCode.USAGE, [])
        assert refusal in err
        assert "open, or closed by nothing but a missing baseline" in err


def test_a_closed_gate_that_gives_no_reason_is_not_approved(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build_run(results)
    rewrite_json(made, "verdict.json", gate="closed", verdict="FAIL")
    code, _, err = run(capsys, "approve", str(made.path), "--by", "ann")
    assert (code, made.decisions()) == (ExitCode.USAGE, [])
    assert "its gate is closed;" in err


# -- prune -----------------------------------------------------------------------------------------------------------


def aged(results: Path, days: int, **changes: Any) -> RunDirectory:
    return build_run(results, cluster="local", nodes=1, when=datetime.now(UTC) - timedelta(days=days), **changes)


def test_prune_drops_raw_output_and_verify_tells_it_from_a_loss(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, young = aged(results, 100), aged(results, 1)
    code, dry, _ = run(capsys, "prune", "--raw-older-than", "90d", "--dry-run")
    assert code == ExitCode.OK and f"{old.run_id}: 0.0 MB would go" in dry and "1 run, 0.0 MB would be freed" in dry
    assert (old.evidence / "raw").is_dir() and not (old.path / "pruned.json").exists()
    count = old.sealed_raw()[0]
    code, out, _ = run(capsys, "prune", "--raw-older-than", "90d")
    assert (code, out) == (ExitCode.OK, dry.replace(" would go", "").replace("would be ", ""))
    assert not (old.evidence / "raw").exists() and (young.evidence / "raw").is_dir()
    assert run(capsys, "prune", "--raw-older-than", "90d")[1] == "0 runs, 0.0 MB freed\n"
    code, out, err = run(capsys, "verify", str(old.path))
    assert (code, out) == (ExitCode.OK, "")
    record = json.loads((old.path / "pruned.json").read_text())
    assert f"{old.run_id}: {count} raw files (0.0 MB) pruned at {record['pruned_at']} by Plumbline 0.1.0\n" in err
    assert f"as sealed: {old.sealed_counts()[0]} files of evidence/" in err
    lost = next((old.evidence / "records").glob("*.json"))
    lost.unlink()
    code, out, err = run(capsys, "verify", str(old.path))
    assert code == ExitCode.CLOSED and f"{count} raw files" in err
    assert [json.loads(line) for line in out.splitlines()] == [
        {"problem": "missing", "path": f"evidence/records/{lost.name}"}
    ]


def test_prune_keeps_what_somebody_decided_on_and_what_is_not_whole(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decided, changed, opened, unfinished, unread, fine = (aged(results, days, seed=days) for days in range(100, 106))
    decided.add_decision({"kind": "approve_baseline", "by": "ann"})
    victim = next((changed.evidence / "raw").rglob("stdout"))
    victim.write_text("9")
    note_seal(opened)
    opened.evidence.joinpath("manifest.json").write_text(json.dumps(opened.read_evidence("manifest"), indent=2))
    opened.write_provenance({"version": "0.1.0"})
    (unfinished.evidence / "manifest.json").unlink()
    (unread.path / "decisions.jsonl").write_text("{")
    for more in (["--dry-run"], []):
        code, out, _ = run(capsys, "prune", "--raw-older-than", "90d", *more)
        assert code == ExitCode.OK
        for made, reason in (
            (decided, "kept, a decision rests on it"),
            (changed, f"kept, evidence/{victim.relative_to(changed.evidence).as_posix()} is changed"),
            (opened, "kept, it was sealed at"),
            (unfinished, "kept, it is unfinished"),
            (unread, "kept, "),
        ):
            assert f"{made.run_id}: {reason}" in out
            assert (made.evidence / "raw").is_dir() and not made.pruned
        assert "1 run, " in out
    assert fine.pruned


def test_the_rest_of_an_interrupted_prune_goes_with_the_next(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = aged(results, 100)
    assert run(capsys, "prune", "--raw-older-than", "90d")[0] == ExitCode.OK
    (old.path / ".pruned.tmp" / "a.a1").mkdir(parents=True)
    assert run(capsys, "prune", "--raw-older-than", "90d", "--dry-run")[0] == ExitCode.OK
    assert (old.path / ".pruned.tmp").is_dir()
    out = run(capsys, "prune", "--raw-older-than", "90d")[1]
    assert f"{old.run_id}: what an interrupted prune had left is deleted" in out
    assert not (old.path / ".pruned.tmp").exists()


def test_a_pruned_run_is_compared_and_listed_but_not_judged_approved_or_resumed(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, young = aged(results, 100, seed=1), aged(results, 1, seed=2)
    looks = (
        ("compare", old.run_id, young.run_id),
        ("history", "fio/read_iops"),
        ("list", "runs", "--json"),
        ("status", "--max-age", "200d"),
    )
    before = [run(capsys, *words) for words in looks]
    assert {code for code, _, _ in before} == {ExitCode.OK}
    run(capsys, "prune", "--raw-older-than", "90d")
    assert old.pruned
    assert [run(capsys, *words)[:2] for words in looks[:3]] == [told[:2] for told in before[:3]]
    verdict = (old.derived / "verdict.json").read_bytes()
    for words in (
        ("judge", old.run_id),
        ("approve", old.run_id, "--by", "ann"),
        ("run", "--resume", old.run_id),
    ):
        code, _, err = run(capsys, *words)
        assert code == ExitCode.UNREADABLE and "its raw output is pruned" in err
    assert (old.derived / "verdict.json").read_bytes() == verdict and old.decisions() == []
    assert not list((results / "local").glob("*lock*"))


# -- unfinished runs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["judge"], ["report"], ["approve", "--by", "ann"], ["approve", "--by", "ann", "--revoke"], ["track"]]
)
def test_an_interrupted_run_is_said_to_be_gone_on_with(
    results: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    made = build_run(results, nodes=1)
    (made.evidence / "manifest.json").unlink()
    shutil.rmtree(made.derived)
    code, out, err = run(capsys, words[0], made.run_id, *words[1:])
    assert (code, out) == (ExitCode.UNREADABLE, "")
    assert f"the run is unfinished; `plumbline run --resume {made.run_id}` goes on with it" in err
    assert f"plumbline judge {made.run_id}" not in err and not (made.path / "decisions.jsonl").exists()


@pytest.mark.parametrize("words", [["judge"], ["report"], ["approve", "--by", "ann"], ["track"]])
def test_a_judged_run_without_its_seal_is_not_gone_on_with(
    results: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    made = build_run(results, nodes=1)
    (made.evidence / "manifest.json").unlink()
    code, _, err = run(capsys, words[0], made.run_id, *words[1:])
    assert code == ExitCode.UNREADABLE
    assert "evidence/manifest.json is gone since it was judged" in err and "--resume" not in err
    assert (made.derived / "verdict.json").is_file()
