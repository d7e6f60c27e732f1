"""A suite can be made stricter, never laxer; settings are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.clusters.profile import PROFILES
from plumbline.errors import ConfigError
from plumbline.model import VerdictKind
from plumbline.stages import load
from plumbline.suites.suite import SUITES, load_suite, parse_settings, suite_folders


def test_every_shipped_suite_loads() -> None:
    names = {path.stem for folder in suite_folders() for path in folder.glob("*.yaml")}
    assert {"nightly", "acceptance"} <= names
    for name in names:
        assert load_suite(name).name == name
    assert VerdictKind.WARN in load_suite("acceptance").gate.blocks
    assert VerdictKind.WARN not in load_suite("nightly").gate.blocks


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("{blocks: [FAIL]}", "must contain INVALID, NOT_RUN, STALE"),
        ("{blocks: [FAIL, INVALID, NOT_RUN, STALE, PASS]}", "a PASS cannot close"),
        ("{blocks: [FAIL, INVALID, NOT_RUN, STALE, WARNING]}", "blocks"),
        ("{block: [FAIL]}", "did you mean 'blocks'"),
        ("{blocks: []}", "must contain FAIL"),
    ],
)
def test_a_laxer_or_misspelt_gate_is_refused(tmp_path: Path, gate: str, message: str) -> None:
    path = tmp_path / "weak.yaml"
    path.write_text(
        f"name: weak\ntitle: t\nkind: nightly\ngate: {gate}\nbenchmarks: [{{benchmark: fio}}]\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=message):
        load_suite(str(path))


GOOD = """\
name: weak
title: t
kind: nightly
gate: {coverage_gaps_allowed: true}
baseline: {tolerance: 0.05, warn_tolerance: 0.03}
benchmarks: [{benchmark: fio, node_counts: [1]}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tolerance: 0.05", "tolerance: 5.0", "baseline.tolerance: .*0.8, not 5.0"),
        (
            "tolerance: 0.05",
            "tolerance: 0.13",
            r"baseline.tolerance: 0.13 is more than 0.12.*repeatability` \(line [0-9]+\)$",
        ),
        ("tolerance: 0.05", "tolerance: .nan", "baseline.tolerance"),
        ("tolerance: 0.05", "tolerance: 0.02", "warn_tolerance 0.03 above tolerance 0.02 never warns"),
        ("tolerance: 0.05", "sigmas: 1000", "baseline.sigmas: .*8, not 1000"),
        ("tolerance: 0.05", "sigmas: .inf", "baseline.sigmas"),
        ("tolerance: 0.05", "min_runs: 1000", "baseline.min_runs: .*10, not 1000"),
        ("tolerance: 0.05", "min_runs: 3, window: 2", "min_runs 3 above window 2"),
        ("tolerance: 0.05", "window: 10000", "baseline.window: .*90"),
        ("coverage_gaps_allowed: true", "max_age_nights: 9999", "gate.max_age_nights: .*30, not 9999"),
        (
            "node_counts: [1]",
            "node_counts: []",
            r"benchmarks\[0\].node_counts: must be a list of at least 1 or 'ladder', not \[\] \(line [0-9]+\)$",
        ),
        ("gate:", "node_counts: []\ngate:", "node_counts"),
        ("kind: nightly", "kind: acceptance", "blocks WARN and allows no coverage gaps"),
        ("[{benchmark: fio, node_counts: [1]}]", "[]", "benchmarks"),
    ],
)
def test_a_suite_that_could_see_nothing_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "weak.yaml"
    path.write_text(GOOD)
    assert load_suite(str(path)).name == "weak"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=f"weak.yaml: .*{message}"):
        load_suite(str(path))


def test_a_file_holds_the_suite_that_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nightly's gate under the name of the acceptance would let its warnings pass."""
    (tmp_path / "acceptance.yaml").write_text(GOOD)
    monkeypatch.setenv("PLUMBLINE_SUITES", str(tmp_path))
    with pytest.raises(ConfigError, match="called acceptance and the suite weak"):
        load_suite("acceptance")


def test_a_clusters_own_repeatability_has_bounds_too(tmp_path: Path) -> None:
    text = (PROFILES / "local.yaml").read_text()
    assert load("local", "nightly", {})[1].baseline.tolerance == 0.75
    path = tmp_path / "local.yaml"
    path.write_text(text.replace("tolerance: 0.75", "tolerance: 0.9", 1))
    with pytest.raises(ConfigError, match="profile local: repeatability: tolerance"):
        load(str(path), "nightly", {})


def test_a_file_cannot_say_that_something_was_left_out(tmp_path: Path) -> None:
    path = tmp_path / "nightly.yaml"
    text = (SUITES / "nightly.yaml").read_text()
    path.write_text(f"{text}\nomitted: [fio]\n")
    line = len(path.read_text().splitlines())
    with pytest.raises(ConfigError, match=rf"nightly\.yaml: omitted: is not for a file: .* \(line {line}\)"):
        load_suite(str(path))
    path.write_text(text.replace("\ntitle:", "\ntitle: ''  #", 1))
    with pytest.raises(ConfigError, match="title: must be text with something in it"):
        load_suite(str(path))


def test_settings_reach_where_they_belong() -> None:
    pairs = ["node_counts=4,1", "repeats=2", "nccl_tests.max_bytes=1M", "note=rack 7: done"]
    suite = load_suite("nightly", parse_settings(pairs))
    entry = next(b for b in suite.benchmarks if b.benchmark == "nccl_tests")
    assert (suite.node_counts, suite.repeats, entry.params["max_bytes"]) == ((1, 4), 2, "1M")


def test_a_subset_is_possible_and_visible() -> None:
    suite = load_suite("nightly", {"benchmarks": "fio, nccl_tests"})
    assert [b.benchmark for b in suite.benchmarks] == ["fio", "nccl_tests"]
    assert set(suite.omitted) == {"hpl_mxp", "mlperf_gpt3", "mlperf_bert"}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["repeat=2"], "did you mean 'repeats'"),
        (["repeats=0"], "repeats"),
        (["repeats=many"], "repeats"),
        (["node_counts=0"], "node counts start at 1"),
        (["node_counts=1;2"], "whole numbers"),
        (["benchmarks=foi"], "did you mean 'fio'"),
        (["nccl.max_bytes=1"], "did you mean 'nccl_tests'"),
        (["fio"], "write key=value"),
        (["gate.blocks=FAIL"], "no benchmark 'gate'"),
    ],
)
def test_wrong_settings_are_refused(pairs: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_suite("nightly", parse_settings(pairs))
