"""Commands that look and change nothing: parse, list, verify, status."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.commands.command_line import TABLE, run
from tests.run_builder import Scenario, build_run

from plumbline import readers, stages
from plumbline.errors import ExitCode, OutputError
from plumbline.model import Code, verdict
from plumbline.tracking.history import load_history


def test_parse_prints_json_lines_with_the_status_last(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "parse", "nccl_tests", str(TABLE))
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == ExitCode.OK
    assert [line["kind"] for line in lines].count("status") == 1
    assert lines[-1]["kind"] == "status"
    assert lines[-1]["status"] == "complete"
    assert all(
        {"indicator", "value", "unit", "params"} <= line.keys() for line in lines if line["kind"] == "measurement"
    )


def test_auto_finds_the_reader(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "parse", "auto", str(TABLE))[1] == run(capsys, "parse", "nccl_tests", str(TABLE))[1]


def test_a_cut_file_is_incomplete_and_another_format_unreadable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.txt"
    cut.write_bytes(TABLE.read_bytes()[:-400])
    code, out, _ = run(capsys, "parse", "nccl_tests", str(cut))
    assert code == ExitCode.INCOMPLETE
    assert json.loads(out.splitlines()[-1])["status"] != "complete"
    other = tmp_path / "letter.txt"
    other.write_text("Dear Sir or Madam,\n")
    code, out, err = run(capsys, "parse", "hpl_mxp", str(other))
    assert code == ExitCode.UNREADABLE
    assert "letter.txt" in err
    assert json.loads(out.splitlines()[-1])["kind"] == "status"


def test_an_empty_file_is_unreadable_to_every_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for name in ("auto", *readers.readers()):
        assert run(capsys, "parse", name, str(tmp_path / "empty"))[0] in (ExitCode.INCOMPLETE, ExitCode.UNREADABLE)


def test_an_empty_list_says_so(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "runs")
    assert (code, out, err) == (ExitCode.OK, "", f"no runs below {results}\n")


def test_every_reader_is_listed_with_what_it_gives(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", "readers", "--json")
    listed = {row["reader"]: row for row in json.loads(out)}
    assert code == ExitCode.OK
    assert set(listed) == set(readers.readers()) == {
        "nccl_tests", "fio", "hpl", "hpl_mxp", "mllog", "mlperf_system", "perftest", "p2p_bandwidth", "nvbandwidth",
        "dcgmi_diag", "nvidia_smi_xml", "nvidia_smi_csv", "nvidia_smi_text", "dcgm_exporter", "gpu_burn", "stress_ng",
        "xid", "kubernetes",
    }  # fmt: skip
    assert all(row["indicator"] or row["fact"] for row in listed.values())
    assert all(name == module.NAME for name, module in readers.readers().items())


@pytest.mark.parametrize("what", ["benchmarks", "clusters", "indicators", "runs", "suites"])
def test_lists_are_printed_both_ways(results: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    assert run(capsys, "list", what)[0] == ExitCode.OK
    assert isinstance(json.loads(run(capsys, "list", what, "--json")[1]), list)


def test_a_list_of_nothing_in_particular_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list")
    assert code == ExitCode.OK
    listed = {line.split()[0] for line in out.splitlines()[1:]}
    assert listed == {"readers", "benchmarks", "indicators", "clusters", "suites", "runs"}
    assert {row["list"] for row in json.loads(run(capsys, "list", "--json")[1])} == listed
    assert run(capsys, "list", "--markdown")[0] == ExitCode.USAGE


def test_a_document_that_is_wrong_hides_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, what, key, good in (
        ("PLUMBLINE_PROFILES", "clusters", "cluster", "simulated-8"),
        ("PLUMBLINE_SUITES", "suites", "suite", "nightly"),
    ):
        bad = tmp_path / what / "bad.yaml"
        bad.parent.mkdir()
        bad.write_text("name: bad")
        bad.with_name("folder.yaml").mkdir()
        monkeypatch.setenv(variable, str(bad.parent))
        code, out, _ = run(capsys, "list", what, "--json")
        rows = {row[key]: row for row in json.loads(out)}
        assert code == ExitCode.USAGE
        assert rows["bad"]["invalid"].startswith(f"{bad}: key 'title' is missing")
        assert "invalid" not in rows[good] and rows[good]["title"] and "folder" not in rows
        code, out, _ = run(capsys, "list", what)
        assert code == ExitCode.USAGE
        assert f"bad\n    invalid: {bad}: key 'title' is missing" in out and f"\n{good}\n    title: " in out
        bad.unlink()
        assert run(capsys, "list", what)[0] == ExitCode.OK


def test_runs_are_listed_where_the_results_are_with_the_word_of_their_judge(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed() -> dict[str, tuple[str, str]]:
        return {
            row["run"]: (row["verdict"], row["gate"]) for row in json.loads(run(capsys, "list", "runs", "--json")[1])
        }

    assert listed() == {}
    good, edited, begun, bare = (build_run(results, seed=n, when=Scenario().when + timedelta(days=n)) for n in range(4))
    path = edited.derived / "verdict.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "verdict": "WAIVED"}))
    (begun.evidence / "manifest.json").unlink()
    shutil.rmtree(bare.derived)
    copy = results / "other" / "nightly" / good.run_id
    shutil.copytree(good.path, copy)
    found = listed()
    assert found[edited.run_id] == ("derived/verdict.json was changed after judging", "closed")
    assert found[begun.run_id] == ("unfinished", "closed")
    assert found[bare.run_id] == ("not judged", "closed")
    assert found[good.run_id][1] == "closed"  # the copy is listed last
    assert "it is a copy of" in found[good.run_id][0]
    shutil.rmtree(copy)
    assert listed()[good.run_id] == ("PASS", "open")


def test_verify_counts_the_files_of_a_sound_run_and_names_a_changed_file(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_run(results)
    files = [path for path in made.path.rglob("*") if path.is_file()]
    sealed = [path for path in files if path.name not in ("manifest.json", "provenance.json")]
    evidence = sum(path.is_relative_to(made.evidence) for path in sealed)
    said = f"{made.run_id}: as sealed: {evidence} files of evidence/, {len(sealed) - evidence} of derived/\n"
    assert run(capsys, "verify", str(made.path)) == (ExitCode.OK, "", said)
    victim = next((made.evidence / "raw").rglob("stdout"))
    victim.write_text(victim.read_text().replace("1", "2", 1))
    code, out, _ = run(capsys, "verify", str(made.path))
    assert code == ExitCode.CLOSED
    assert json.loads(out) == {"problem": "changed", "path": f"evidence/{victim.relative_to(made.evidence).as_posix()}"}


def test_the_dead_mans_switch(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["status", "--cluster", "local", "--max-age", "26h", "--json"]
    assert run(capsys, *arguments)[0] == ExitCode.CLOSED
    now = datetime.now(UTC)
    build_run(results, cluster="local", when=now - timedelta(hours=30))
    code, out, _ = run(capsys, *arguments)
    assert (code, json.loads(out)["fresh"]) == (ExitCode.CLOSED, False)
    build_run(results, cluster="local", when=now - timedelta(hours=2))
    code, out, _ = run(capsys, *arguments)
    assert (code, json.loads(out)["fresh"]) == (ExitCode.OK, True)
    newest = build_run(results, cluster="local", when=now - timedelta(hours=1))
    (newest.derived / "verdict.json").write_text("{}")
    found = json.loads(run(capsys, *arguments)[1])
    assert [item["run_id"] for item in found["unusable"]] == [newest.run_id] != [found["newest"]["run_id"]]
    assert f"not counted: {newest.run_id}" in run(capsys, *arguments[:-1])[1]


def test_a_run_of_a_part_of_the_suite_is_no_night(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_ = build_run(results, cluster="local", when=datetime.now(UTC) - timedelta(hours=1), omitted=("hpl_mxp",))
    code, out, _ = run(capsys, "status", "--cluster", "local", "--max-age", "26h")
    assert code == ExitCode.CLOSED
    assert f"{run_.run_id}: only a part of the suite: without hpl_mxp" in out


def test_a_closed_run_whose_evidence_cannot_be_read_hides_no_older_night(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    older = build_run(results, cluster="local", when=now - timedelta(hours=2))
    broken = verdict(Code.WRONG_RESULT, "rung 4 group 0", "3 wrong elements")
    newest = build_run(results, cluster="local", when=now - timedelta(hours=1), extra=[broken])
    (newest.evidence / "environment.json").write_text("{")
    code, out, _ = run(capsys, "status", "--cluster", "local")
    assert code == ExitCode.OK and f"newest finished run {older.run_id}" in out
    assert f"not counted: {newest.run_id}: environment.json" in out


def test_a_run_that_was_asked_for_less_is_no_night_and_one_for_more_is(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    less = ({"setting": "node_counts", "run": [1], "suite": "ladder"}, {"setting": "repeats", "run": 1, "suite": 3})
    few = build_run(results, cluster="local", when=now - timedelta(hours=1), asked=less)
    code, out, _ = run(capsys, "status", "--cluster", "local")
    assert code == ExitCode.CLOSED and "no finished run that counts" in out
    assert f"{few.run_id}: not the suite as it is: node_counts 1 (the suite: ladder), repeats 1 (the suite: 3)" in out
    more = ({"setting": "repeats", "run": 5, "suite": 3},)
    build_run(results, cluster="local", when=now - timedelta(hours=2), asked=more)
    assert run(capsys, "status", "--cluster", "local")[0] == ExitCode.OK


def test_a_good_night_under_another_name_is_no_night(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    old = build_run(results, cluster="local", when=now - timedelta(hours=30))
    copies = [old.path.with_name(f"{now:%Y%m%dT%H%M%SZ}-abcdef"), results / "other" / "nightly" / old.run_id]
    for copy in copies:
        shutil.copytree(old.path, copy)
        with pytest.raises(OutputError, match="it is a copy of local/nightly/"):
            stages.gate(copy)
    code, out, _ = run(capsys, "status", "--cluster", "local", "--max-age", "26h", "--json")
    assert (code, json.loads(out)["newest"]["run_id"]) == (ExitCode.CLOSED, old.run_id)
    origin = old.profile().origin
    assert [r.run_id for r in load_history(results, "local", origin=origin).runs] == [old.run_id]
    assert "copy of" in load_history(results, "other", origin=origin).skipped[0].reason
