"""How a run is named on the command line: its id, its folder, latest, or latest:CLUSTER."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from tests.commands.command_line import run
from tests.run_builder import Scenario, build_run

from plumbline.clusters.profile import PROFILES
from plumbline.commands.run_names import named_run
from plumbline.errors import ConfigError, ExitCode
from plumbline.tracking.run_directory import link_latest


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


def test_latest_is_the_newest_finished_run_where_its_link_is_lost_or_leads_nowhere(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    when = Scenario().when
    old, new = build_run(results, nodes=1), build_run(results, cluster="other", nodes=1, when=when + timedelta(days=1))
    begun = build_run(results, nodes=1, when=when + timedelta(days=2))
    (begun.evidence / "manifest.json").unlink()

    def named() -> str:
        code, _, err = run(capsys, "report", "latest")
        assert code == ExitCode.OK
        return err.split()[2]

    link = results / "latest"
    assert named() == new.run_id  # as where results were copied without links
    for target in ("other/nightly/20260101T000000Z-000000", "local", begun.path, "latest"):
        link.symlink_to(target)
        assert named() == new.run_id
        link.unlink()
    shutil.copytree(old.path, link)  # as where results were copied with links followed
    assert named() == new.run_id
    shutil.rmtree(link)
    link_latest(results, old)
    assert named() == old.run_id  # sealed last
    for made in (old, new):
        made.path.rename(results / made.run_id)
    code, _, err = run(capsys, "report", "latest")
    assert code == ExitCode.USAGE and f"latest: no finished run below {results}" in err


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


@pytest.mark.parametrize("name", ["a" * 300, "latest:" + "a" * 5000, "é" * 200, "x/" * 3000])
def test_a_name_longer_than_any_file_s_is_a_run_that_is_not_there(name: str):
    with pytest.raises(ConfigError, match="longer than any"):
        named_run(name)
