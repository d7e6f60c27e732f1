"""Plain data and back; a verdict can't carry a reason of another kind."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.model import (
    KIND_OF_CODE,
    Code,
    Contends,
    Device,
    LaunchSpec,
    Origin,
    Outcome,
    RawFile,
    RunRecord,
    Verdict,
    VerdictKind,
    canonical_json,
    canonical_params,
    launch_spec,
    run_record,
    to_plain,
    verdict,
    verdict_from,
    worst,
)


def a_spec(**changes: object) -> LaunchSpec:
    fields: dict[str, object] = {
        "launch_id": "echo-n1-g0-r1", "run_id": "20260101T000000Z-abcdef", "cluster": "local", "benchmark": "echo",
        "benchmark_version": "1", "reader": "echo", "node_count": 1, "wave": 1, "group": 0, "repeat": 1,
        "nodes": ("local-0",), "accelerators_per_node": 1, "device": Device.CPU, "origin": Origin.MEASURED,
        "contends": Contends.NONE, "params": {"a": 1}, "argv": ("true",), "timeout_s": 10.0,
    }  # fmt: skip
    return LaunchSpec(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_spec_survives_json() -> None:
    spec = a_spec(env={"X": "1"}, expect={"rows": 3})
    assert launch_spec(json.loads(json.dumps(to_plain(spec)))) == spec


def test_the_digest_follows_every_field() -> None:
    assert a_spec().digest() == a_spec().digest()
    assert len({a_spec().digest(), a_spec(params={"a": 2}).digest(), a_spec(timeout_s=11.0).digest()}) == 3


def test_a_record_survives_json() -> None:
    record = RunRecord(
        launch_id="l", run_id="r", cluster="c", attempt=1, spec_sha256="0" * 64, outcome=Outcome.TIMEOUT,
        exit_code=None, signal=None, code=Code.NODE_LOST, reason="", argv=("a",), hosts=("h",), started_at="s",
        ended_at="e", duration_s=1.0, origin=Origin.MEASURED, device=Device.GPU, raw_dir="raw/l.a1",
        raw_files=(RawFile(path="stdout", size_bytes=1, sha256="x"),),
    )  # fmt: skip
    assert run_record(json.loads(json.dumps(to_plain(record)))) == record


def test_every_code_has_one_kind() -> None:
    assert set(KIND_OF_CODE) == set(Code)
    assert {KIND_OF_CODE[c] for c in Code} == set(VerdictKind)


def test_a_fail_cannot_carry_the_reason_of_a_pass() -> None:
    with pytest.raises(ValueError, match="belongs to PASS"):
        Verdict(kind=VerdictKind.FAIL, code=Code.OK, place="here", message="")
    item = verdict(Code.TIMEOUT, "here", "no end")
    assert item.kind is VerdictKind.FAIL
    assert verdict_from(to_plain(item)) == item


def test_params_that_mean_the_same_are_written_the_same() -> None:
    assert canonical_params({"b": 8.0, "a": "x", "none": None}) == '{"a":"x","b":8}'
    assert canonical_params({"a": "x", "b": 8}) == '{"a":"x","b":8}'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_never_reaches_json(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"value": value})


@given(st.lists(st.sampled_from(list(VerdictKind))))
def test_the_worst_is_one_of_them_and_order_free(kinds: list[VerdictKind]) -> None:
    assert worst(kinds) is worst(reversed(kinds))
    assert worst(kinds) in [*kinds, VerdictKind.PASS]
