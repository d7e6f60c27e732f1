"""A suite can be made stricter, never laxer; settings are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.errors import ConfigError
from plumbline.model import VerdictKind
from plumbline.suites.suite import load_suite, parse_settings, suite_folders


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
