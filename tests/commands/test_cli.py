"""The command line as a whole: help, exit codes, and errors that name their cause."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands.command_line import DATA, TABLE, run

from plumbline.cli import build_parser, main
from plumbline.clusters.profile import PROFILES
from plumbline.errors import ExitCode
from plumbline.model import VerdictKind
from plumbline.suites.suite import SUITES


def plumbline(*words: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, `shell` behind it."""
    argv = shlex.join([sys.executable, "-m", "plumbline.cli", *words])
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", f"{argv} {shell}"], env=env, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(
    ("words", "shell", "code"),
    [
        (("parse", "nccl_tests", str(TABLE)), "> /dev/full", ExitCode.INFRASTRUCTURE),
        (("parse", "nccl_tests", str(TABLE)), "2> /dev/full", ExitCode.OK),
        (("parse", "nccl_tests", "/no/such/file"), "2> /dev/full", ExitCode.USAGE),
        (("parse", "nccl_tests", "/no/such/file"), "2>&-", ExitCode.USAGE),
        (("--help",), "> /dev/full", ExitCode.INFRASTRUCTURE),
    ],
)
def test_what_cannot_be_printed_fails_what_went_well_and_hides_no_failure(
    words: tuple[str, ...], shell: str, code: ExitCode
) -> None:
    done = plumbline(*words, shell=shell)
    assert done.returncode == code, done.stderr
    assert "Exception" not in done.stderr and "no such file" not in done.stdout.lower()


def test_a_reader_that_is_gone_is_no_success() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "plumbline.cli", "parse", "nccl_tests", str(TABLE)]
    done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    os.close(writer)
    assert (done.returncode, done.stderr) == (ExitCode.INFRASTRUCTURE, "")


def test_a_process_of_its_own_ends_with_the_commands_exit_code_and_all_that_it_printed() -> None:
    read = plumbline("parse", "nccl_tests", str(TABLE))
    assert (read.returncode, json.loads(read.stdout.splitlines()[-1])["status"]) == (ExitCode.OK, "complete")
    wrong = plumbline("parse", "nccl_tests", "/no/such/file")
    assert (wrong.returncode, wrong.stdout) == (ExitCode.USAGE, "")
    assert wrong.stderr == "plumbline parse: no file /no/such/file\n"


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


def test_the_words_of_the_trade_are_explained_where_help_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    explained = {line.split("  ")[1].strip() for line in told.splitlines() if line.startswith("  ")}
    assert {"rung", "ladder", "launch", "gate", "verdict", "suite", "cluster profile", "baseline"} <= explained
    for kind in VerdictKind:
        assert kind.value in told


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
        (["plan", "--set", "fio.clients=true"], "fio.clients must be a whole number, not True"),
        (["plan", "--set", "fio.runtime_s=long"], "fio.runtime_s must be a number, not 'long'"),
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
    assert f"{tmp_path}/own.yaml: benchmarks: no benchmark 'nccl_test'; did you mean 'nccl_tests'? (line 13)" in err


def test_a_misspelt_benchmark_in_a_suite_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (SUITES / "nightly.yaml").read_text().replace("benchmark: fio", "benchmark: foi")
    (tmp_path / "nightly.yaml").write_text(text)
    code, _, err = run(capsys, "plan", "--cluster", "simulated-8", "--suite", str(tmp_path / "nightly.yaml"))
    assert code == ExitCode.USAGE
    assert f"{tmp_path}/nightly.yaml: benchmarks: no benchmark 'foi'; did you mean 'fio'? (line 12)" in err


def test_a_wrong_parameter_is_named_with_what_gave_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, suite = tmp_path / "simulated-8.yaml", tmp_path / "nightly.yaml"
    shipped = (PROFILES / profile.name).read_text()
    text = (SUITES / suite.name).read_text()
    wrong = {
        (shipped.replace("benchmarks:\n", "benchmarks:\n  fio: {clinets: 1}\n"), text): (
            f"{profile}: fio has no parameter 'clinets'; did you mean 'clients'? (line 13)"
        ),
        (shipped, text.replace("benchmark: fio", "benchmark: fio, params: {clients: 0}")): (
            f"{suite}: fio.clients must be at least 1, not 0 (line 12)"
        ),
    }
    for (first, second), words in wrong.items():
        assert (first, second) != (shipped, text)
        profile.write_text(first)
        suite.write_text(second)
        for setting in ("note=x", "benchmarks=nccl_tests"):
            code, _, err = run(capsys, "plan", "--cluster", str(profile), "--suite", str(suite), "--set", setting)
            assert (code, words in err) == (ExitCode.USAGE, True), err
    for setting in ("fio.size=1e999999999", "fio.size=0", "fio.random_bs=4kk", "fio.sequential_bs=1/3"):
        code, _, err = run(capsys, "plan", "--cluster", "simulated-8", "--set", setting)
        assert code == ExitCode.USAGE
        assert f"suite nightly, profile simulated-8: fio: {setting.partition('=')[0]}: " in err
    code, _, err = run(capsys, "plan", "--cluster", "simulated-8", "--set", "fio.clinets=1")
    assert code == ExitCode.USAGE
    assert "--set fio.clinets: fio has no parameter 'clinets'; did you mean 'clients'?" in err


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
