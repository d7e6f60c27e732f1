"""The command line: exit codes, JSON, and errors that name their cause."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run, rewrite_json

from plumbline import readers, stages
from plumbline.cli import build_parser, main
from plumbline.clusters.profile import PROFILES
from plumbline.commands.running import print_verdict
from plumbline.errors import ExitCode, OutputError
from plumbline.model import Code, Origin, Verdict, VerdictKind, verdict
from plumbline.suites.suite import SUITES
from plumbline.tracking.history import load_history
from plumbline.tracking.run_directory import RunDirectory, link_latest

DATA = Path(__file__).parents[1] / "data"
TABLE = DATA / "nccl_tests" / "collectives_n2.txt"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    return tmp_path


def test_every_command_has_a_help_that_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    commands = build_parser()._subparsers._group_actions[0].choices
    wanted = {
        "list",
        "plan",
        "run",
        "parse",
        "judge",
        "report",
        "verify",
        "compare",
        "history",
        "status",
        "prune",
        "approve",
    }
    assert wanted <= set(commands)
    for name in commands:
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        assert len(capsys.readouterr().out.splitlines()) > 5


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parse", "nccl_test", str(TABLE)], "did you mean 'nccl_tests'"),
        (["parse", "nccl_tests", "/no/such/file"], "no file /no/such/file"),
        (["parse", "nccl_tests", str(TABLE), "--expect", "rowz=3"], "did you mean 'rows'"),
        (["parse", "nccl_tests", str(TABLE), "--expect", "rows"], "write key=value"),
        (["run", "--cluster", "locl"], "did you mean 'local'"),
        (["run", "--suite", "nihgtly"], "did you mean 'nightly'"),
        (["run", "--set", "repeet=2"], "did you mean 'repeats'"),
        (["run", "--set", "faults=x.yaml"], "real cluster"),
        (["plan", "--set", "nccl_tests.max_byte=1M"], "did you mean 'max_bytes'"),
        (["run", "--cluster", "simulated-8", "--set", "faults=nowhere.yaml"], "nowhere.yaml: cannot read"),
        (["verify", "20260101T000000Z-000000"], "no run"),
        (["status", "--max-age", "soon"], "not an age"),
        (["history", "bus_bandwith_headline"], "did you mean 'bus_bandwidth_headline'"),
        (["history", "foi/read_iops"], "did you mean 'fio/read_iops'"),
        (["history", "read_iops", "--suite", "nightli"], "no suite 'nightli'; did you mean 'nightly'"),
        (["history", "read_iops", "--newest", "0"], "--newest 0: one run at least"),
        (["parse", "fio", str(DATA)], f"{DATA} is a folder, not a file"),
        (["plan", "--cluster", "local.yaml"], "no cluster profile file local.yaml; did you mean 'local'?"),
        (["plan", "--cluster", str(PROFILES / "local")], f"did you mean {PROFILES / 'local.yaml'}?"),
        (["plan", "--cluster", str(PROFILES)], "a path must be that of a YAML file"),
        (["plan", "--set", "nccl_tests.max_bytes=huge"], "nccl_tests: not a size in bytes: 'huge'"),
        (["verify", str(TABLE)], f"{TABLE} is a file; give a run directory, a run id, latest, or latest:CLUSTER"),
        (["compare", str(DATA), str(DATA)], f"{DATA} is not a run directory"),
        (["demo", "--out", str(TABLE / "x")], "cannot make it: Not a directory"),
    ],
)
def test_wrong_use_is_named_and_exits_2(
    results: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert message in err
    assert list(results.glob("*/*/*")) == []


def test_a_misspelt_benchmark_in_a_profile_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = (PROFILES / "simulated-8.yaml").read_text().replace("name: simulated-8", "name: own")
    (tmp_path / "own.yaml").write_text(shipped.replace("benchmarks:\n", "benchmarks:\n  nccl_test: {max_bytes: 1M}\n"))
    code, _, err = run(capsys, "plan", "--cluster", str(tmp_path / "own.yaml"))
    assert code == ExitCode.USAGE
    assert "profile own: benchmarks: no benchmark 'nccl_test'; did you mean 'nccl_tests'?" in err


def test_a_misspelt_benchmark_in_a_suite_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (SUITES / "nightly.yaml").read_text().replace("benchmark: fio", "benchmark: foi")
    (tmp_path / "nightly.yaml").write_text(text)
    code, _, err = run(capsys, "plan", "--cluster", "simulated-8", "--suite", str(tmp_path / "nightly.yaml"))
    assert code == ExitCode.USAGE
    assert "suite nightly: benchmarks: no benchmark 'foi'; did you mean 'fio'?" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "no 'rnu'; did you mean 'run'?"),
        (["list", "indicatros"], "argument WHAT: no 'indicatros'; did you mean 'indicators'?"),
        (["plan", "--clutser", "local"], "plumbline plan: error: no argument '--clutser'; did you mean '--cluster'?"),
        (["plan", "--clutser=local"], "no argument '--clutser'; did you mean '--cluster'?"),
        (["plan", "nightly"], "no argument 'nightly'; it takes no further words"),
        (["demo", "--first", "2026-13-01"], "not a date: '2026-13-01' (month must be in 1..12)"),
    ],
)
def test_a_misspelt_word_of_the_command_line_gets_the_nearest(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_written_is_named_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "file"))
    code, _, err = run(capsys, "run", "--cluster", "simulated-8", "--no-track")
    assert code == ExitCode.INFRASTRUCTURE
    assert err == f"plumbline run: {tmp_path / 'file' / 'simulated-8'}: Not a directory\n"


def test_a_run_that_is_not_there_is_told_with_the_newest_and_two_of_one_name_with_their_places(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_run(results)
    code, _, err = run(capsys, "verify", "20200101T000000Z-000000")
    assert code == ExitCode.USAGE
    assert err.endswith(f"; the newest is {made.run_id}\n")
    copy = results / "other" / "nightly" / made.run_id
    shutil.copytree(made.path, copy)
    code, _, err = run(capsys, "verify", made.run_id)
    assert code == ExitCode.USAGE
    assert "2 runs are called" in err and str(made.path) in err and str(copy) in err


def test_the_words_of_the_trade_are_explained_where_help_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    explained = {line.split("  ")[1].strip() for line in told.splitlines() if line.startswith("  ")}
    assert {"rung", "ladder", "launch", "gate", "verdict", "suite", "cluster profile", "baseline"} <= explained
    for kind in VerdictKind:
        assert kind.value in told


def test_history_takes_an_indicator_with_its_benchmark(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_run(results, when=datetime.now(UTC) - timedelta(days=1))
    code, out, _ = run(capsys, "history", "fio/read_iops")
    assert code == ExitCode.OK
    assert out.startswith("fio/read_iops at 1 node [IOPS]")
    code, out, _ = run(capsys, "history", "hpl_mxp/effective_flops", "--json")
    assert {line["benchmark"] for line in json.loads(out)} == {"hpl_mxp"}


def test_an_approval_that_nobody_gave_is_not_taken_back(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build_run(results)
    code, _, err = run(capsys, "approve", str(made.path), "--by", "ann", "--revoke")
    assert (code, made.decisions()) == (ExitCode.USAGE, [])
    assert "is not approved: there is nothing to take back" in err
    assert run(capsys, "approve", str(made.path), "--by", "ann")[0] == ExitCode.OK
    assert run(capsys, "approve", str(made.path), "--by", "ann", "--revoke")[0] == ExitCode.OK
    assert [line["kind"] for line in made.decisions()] == ["approve_baseline", "revoke_baseline"]


def test_runs_of_two_clusters_are_compared_with_a_word_on_it(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = build_run(results), build_run(results, cluster="other", seed=2)
    code, out, _ = run(capsys, "compare", str(first.path), str(second.path))
    assert code == ExitCode.OK
    assert "local" in out and "other" in out


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


@pytest.mark.parametrize("what", ["benchmarks", "clusters", "indicators", "runs", "suites"])
def test_lists_are_printed_both_ways(results: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    assert run(capsys, "list", what)[0] == ExitCode.OK
    assert isinstance(json.loads(run(capsys, "list", what, "--json")[1]), list)


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


def test_the_plan_names_launches_and_what_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "--cluster", "simulated-8", "--set", "node_counts=1,16", "--json")
    plan = json.loads(out)
    assert code == ExitCode.OK
    assert {gap["code"] for gap in plan["gaps"]} == {"unreachable_scale"}
    assert {node for spec in plan["launches"] for node in spec["nodes"]} == {f"n{i:04d}" for i in range(1, 9)}


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


def test_prune_drops_raw_output_and_verify_says_so(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = build_run(results, cluster="local", when=datetime.now(UTC) - timedelta(days=100))
    young = build_run(results, cluster="local", when=datetime.now(UTC) - timedelta(days=1))
    assert run(capsys, "prune", "--raw-older-than", "90d", "--dry-run")[0] == ExitCode.OK
    assert (old.evidence / "raw").is_dir()
    assert run(capsys, "prune", "--raw-older-than", "90d")[0] == ExitCode.OK
    assert not (old.evidence / "raw").exists()
    assert (young.evidence / "raw").is_dir()
    code, out, _ = run(capsys, "verify", str(old.path))
    assert code == ExitCode.CLOSED
    assert {json.loads(line)["problem"] for line in out.splitlines()} == {"missing"}


def test_two_runs_are_compared(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    first = build_run(results, when=now - timedelta(days=1), seed=1)
    second = build_run(results, when=now, seed=2)
    code, out, _ = run(capsys, "compare", str(first.path), str(second.path), "--json")
    assert code == ExitCode.OK
    assert json.loads(out)


def _edited_to_open(made: RunDirectory) -> None:
    path = made.derived / "verdict.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gate": "open", "verdict": "PASS", "reasons": []}))


@pytest.mark.parametrize("stage", ["report", "track"])
def test_no_later_stage_seals_an_edited_verdict(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{results}/mlflow.db")
    made = build_run(results)
    _edited_to_open(made)
    code, _, err = run(capsys, stage, str(made.path))
    assert code == ExitCode.UNREADABLE
    assert "derived/verdict.json is changed since it was judged" in err
    assert {"problem": "changed", "path": "derived/verdict.json"} in list(made.problems())


def test_nobody_approves_an_edited_verdict_or_changed_evidence(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_run(results)
    _edited_to_open(made)
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


def test_a_reader_that_hangs_up_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            """Nothing is held."""

    monkeypatch.setattr("sys.stdout", Closed())
    monkeypatch.setattr("sys.stderr", Closed())
    monkeypatch.setattr(Closed, "close", lambda self: None, raising=False)
    assert main(["parse", "nccl_tests", str(TABLE)]) == ExitCode.INFRASTRUCTURE


def test_a_resumed_run_takes_no_new_settings(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build_run(results)
    code, _, err = run(capsys, "run", "--resume", str(made.path), "--set", "repeats=9")
    assert code == ExitCode.USAGE
    assert "--set repeats=9" in err


def test_an_empty_file_is_unreadable_to_every_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for name in ("auto", *readers.readers()):
        assert run(capsys, "parse", name, str(tmp_path / "empty"))[0] in (ExitCode.INCOMPLETE, ExitCode.UNREADABLE)


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


def test_a_doctor_who_is_led_nowhere_says_so_in_a_row_of_his_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    code, out, err = run(capsys, "doctor", "hgx-h100")
    first, mend = out.splitlines()
    assert (code, err) == (ExitCode.CLOSED, "")
    assert first.startswith("fail  api: kubernetes.access names no way to the API, so the kubeconfig")
    assert mend.startswith("      → give the profile's kubernetes.access one of kubeconfig: FILE")
    code, out, _ = run(capsys, "doctor", "hgx-h100", "--json")
    assert (code, json.loads(out)["state"], json.loads(out)["name"]) == (ExitCode.CLOSED, "fail", "api")
    code, _, err = run(capsys, "doctor", "local")
    assert code == ExitCode.USAGE and "it has no Kubernetes cluster" in err
    for command in (["plan", "--cluster", "hgx-h100"], ["reap", "hgx-h100"]):
        code, _, err = run(capsys, *command)
        assert code == ExitCode.USAGE and "`plumbline doctor hgx-h100` tells more" in err


def test_latest_says_which_run_it_is_and_can_be_that_of_one_cluster(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    when = Scenario().when
    local, old = build_run(results), build_run(results, suite="acceptance", seed=3, when=when - timedelta(days=1))
    other = build_run(results, cluster="other", seed=2, when=when + timedelta(days=1))
    link_latest(results, other)
    for text, made, place in (
        ("latest", other, "cluster other, suite nightly"),
        (str(results / "latest"), other, "cluster other, suite nightly"),
        ("latest:other", other, "cluster other, suite nightly"),
        ("latest:local", local, "cluster local, suite nightly"),
        ("latest:local/acceptance", old, "cluster local, suite acceptance"),
    ):
        code, _, err = run(capsys, "verify", text)
        assert code == ExitCode.OK
        assert err.startswith(f"{text}: run {made.run_id} of {place}\n{made.run_id}: as sealed")
    assert f"latest:local: run {local.run_id}" in run(capsys, "compare", "latest:local", "latest:other")[2]
    assert f"run {local.run_id} of cluster local" in run(capsys, "report", "latest:local")[2]
    for text, words in (
        ("latest:othr", "no finished run of othr below"),
        ("latest:othr", "did you mean 'other'?"),
        ("latest:local/nihgtly", "did you mean 'nightly'?"),
        ("latest:hgx-h100", "known: local, other"),
        ("latest:", "no finished run of no cluster"),
    ):
        code, _, err = run(capsys, "verify", text)
        assert code == ExitCode.USAGE and words in err
    assert run(capsys, "verify", str(local.path))[2].startswith(f"{local.run_id}: as sealed")


def test_the_latest_of_a_cluster_is_found_where_its_profile_keeps_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLUMBLINE_RESULTS", raising=False)
    monkeypatch.setenv("PLUMBLINE_HOME", str(tmp_path))
    monkeypatch.setenv("PLUMBLINE_PROFILES", str(tmp_path))
    far = tmp_path / "far"
    shipped = (PROFILES / "simulated-8.yaml").read_text()
    (tmp_path / "lab.yaml").write_text(shipped.replace("name: simulated-8", f"name: lab\nresults: {far}"))
    made = build_run(far, cluster="lab")
    assert run(capsys, "verify", "latest")[0] == ExitCode.USAGE
    assert run(capsys, "verify", "latest:lab")[2].startswith(f"latest:lab: run {made.run_id} of cluster lab")


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
        monkeypatch.setenv(variable, str(bad.parent))
        code, out, _ = run(capsys, "list", what, "--json")
        rows = {row[key]: row for row in json.loads(out)}
        assert code == ExitCode.USAGE
        assert rows["bad"]["invalid"].startswith(f"{bad}: key 'title' is missing")
        assert "invalid" not in rows[good] and rows[good]["title"]
        code, out, _ = run(capsys, "list", what)
        assert code == ExitCode.USAGE
        assert f"bad\n    invalid: {bad}: key 'title' is missing" in out and f"\n{good}\n    title: " in out
        bad.unlink()
        assert run(capsys, "list", what)[0] == ExitCode.OK


def test_a_list_of_nothing_in_particular_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list")
    assert code == ExitCode.OK
    listed = {line.split()[0] for line in out.splitlines()[1:]}
    assert listed == {"readers", "benchmarks", "indicators", "clusters", "suites", "runs"}
    assert {row["list"] for row in json.loads(run(capsys, "list", "--json")[1])} == listed
    assert run(capsys, "list", "--markdown")[0] == ExitCode.USAGE


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


@pytest.mark.parametrize(
    ("count", "words"), [(8, "; missing: n1, n2, n3, n4, n5, n6, n7, n8\n"), (9, "n8 and 1 more\n")]
)
def test_a_cut_list_of_missing_nodes_says_how_many_more(
    results: Path, capsys: pytest.CaptureFixture[str], count: int, words: str
) -> None:
    made = build_run(results)
    data = json.loads((made.derived / "verdict.json").read_text())
    data["coverage"]["missing"] = [f"n{i + 1}" for i in range(count)]
    print_verdict(made, data)
    assert words in capsys.readouterr().out


def test_one_is_told_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "plan", "--cluster", "local")[1]
    assert "1 launch of 1 node, at most" in out and "1 launch of 2 nodes, at most" in out
    assert not re.search(r"\b1 (nodes|launches)", out)
