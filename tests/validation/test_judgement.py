from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.validation.good_run import REFERENCES, Night, good_night, launch_verdict, made_up_benchmarks  # noqa: F401

from plumbline.analysis.baseline import BaselineLimit
from plumbline.model import Code, Device, Measurement, Origin, Verdict, VerdictKind, canonical_params
from plumbline.references.reference import references_from
from plumbline.validation.gate import decide
from plumbline.validation.waivers import Waiver

pytestmark = pytest.mark.usefixtures("made_up_benchmarks")

Rows = list[Measurement]


def is_first(row: Measurement) -> bool:
    """The 1 GiB all-reduce of the first one-node group: the row that the mutations below change."""
    return row.launch_id == "collective-n1-g0-r1" and row.params == FIRST and row.indicator == "bus_bandwidth"


@pytest.fixture
def night(made_up_benchmarks: None) -> Night:  # noqa: F811
    return good_night()


FIRST = canonical_params({"operation": "all_reduce", "message_bytes": 1 << 30})


def changed(night: Night, **fields: Any) -> Night:
    return night.with_rows(lambda rows: [replace(row, **fields) if is_first(row) else row for row in rows])


def found(night: Night, **more: Any) -> list[Verdict]:
    """Judge; the gate must be closed; give the reasons about the changed row and about the run."""
    judgement = night.judge(**more)
    assert len(judgement.verdicts[judgement.verdicts["item"] == "row"]) == judgement.judged.expected
    assert not decide(judgement.judged, night.suite.gate, nights={}).open
    return list(judgement.notable)


def test_a_good_night_passes_in_every_row():
    night = good_night()
    judgement = night.judge()
    assert judgement.notable == ()
    rows = judgement.verdicts
    assert len(rows) == judgement.judged.expected == judgement.judged.passed == judgement.judged.measured
    assert set(rows["kind"]) == {"PASS"} and set(rows["item"]) == {"row"}
    assert judgement.gx["success"] is True and judgement.gx["statistics"]["rows"] == len(rows)
    json.dumps(judgement.gx, allow_nan=False)
    assert decide(judgement.judged, night.suite.gate, nights={}).open
    first = rows[(rows["launch_id"] == "collective-n1-g0-r1") & (rows["params"] == FIRST)].iloc[0]
    assert first["place"] == f"all_reduce 1 GiB at 1 node, group 0, node {night.plan.launches[0].nodes[0]}"
    assert first["expected"] == "≥ 456 GB/s (published reference for H100-SXM5-80GB: made up, 2026-01-01)"
    assert (first["lower"], first["warn_lower"]) == (456.0, 465.0) and first["ceiling"] == 787.5


CHANGES: dict[str, tuple[dict[str, Any], Code]] = {
    "not a number": ({"value": math.nan}, Code.NOT_A_NUMBER),
    "infinite": ({"value": math.inf}, Code.NOT_A_NUMBER),
    "minus infinite": ({"value": -math.inf}, Code.NOT_A_NUMBER),
    "a text": ({"value": "480"}, Code.NOT_A_NUMBER),
    "a boolean": ({"value": True}, Code.NOT_A_NUMBER),
    "None": ({"value": None}, Code.NOT_A_NUMBER),
    "negative": ({"value": -1.0}, Code.IMPOSSIBLE_VALUE),
    "zero": ({"value": 0.0}, Code.OUTSIDE_REFERENCE),
    "too low": ({"value": 455.9}, Code.OUTSIDE_REFERENCE),
    "a little low": ({"value": 460.0}, Code.NEAR_LIMIT),
    "above the link": ({"value": 4800.0}, Code.ABOVE_CEILING),
    "another unit": ({"unit": "GiB/s"}, Code.WRONG_UNIT),
    "no unit": ({"unit": ""}, Code.WRONG_UNIT),
    "another cluster": ({"cluster": "other"}, Code.WRONG_CLUSTER),
    "another run": ({"run_id": "20260228T020000Z-000001"}, Code.OLD_OUTPUT),
    "another suite": ({"suite": "acceptance"}, Code.UNPLANNED),
    "another device": ({"device": Device.CPU}, Code.WRONG_HARDWARE),
    "another origin": ({"origin": Origin.MEASURED}, Code.WRONG_CLUSTER),
    "another version": ({"benchmark_version": "2"}, Code.WRONG_VERSION),
    "another node count": ({"node_count": 2}, Code.WRONG_PARAMETERS),
}


def test_each_change_of_one_row_has_its_code():
    """All changes in one judging, each in a row of its own: great-expectations is started once."""
    night = good_night(nodes=32, rungs=(1,))
    names = list(CHANGES)

    def change(rows: Rows) -> Rows:
        return [
            replace(row, **CHANGES[names[row.group]][0])
            if row.indicator == "bus_bandwidth"
            and row.params == FIRST
            and row.group is not None
            and row.group < len(names)
            else row
            for row in rows
        ]

    reasons = {
        item.group: item
        for item in found(replace(night.with_rows(change), derived=False))
        if item.params == FIRST and item.indicator == "bus_bandwidth"
    }
    assert {names[group]: item.code for group, item in reasons.items() if group is not None} == {
        name: code for name, (_, code) in CHANGES.items()
    }
    assert all(item.message and item.place for item in reasons.values())
    assert (
        reasons[names.index("too low")].expected
        == "≥ 456 GB/s (published reference for H100-SXM5-80GB: made up, 2026-01-01)"
    )
    assert reasons[names.index("above the link")].expected == "≤ 803.2 GB/s (link rate of H100-SXM5-80GB, 8 in a node)"
    assert reasons[names.index("not a number")].actual is None
    assert "0.0% below the limit" in reasons[names.index("too low")].message


def test_a_missing_row_is_not_run_with_the_launch_s_reason(night: Night):
    lost = night.with_rows(lambda rows: [row for row in rows if row.launch_id != "collective-n1-g0-r1"])
    lost = lost.with_verdicts(launch_verdict(night, "collective-n1-g0-r1", Code.TIMEOUT, "hung"))
    reasons = found(lost)
    assert reasons[0].code is Code.TIMEOUT
    rows = [item for item in reasons if item.launch_id == "collective-n1-g0-r1" and item.indicator == "bus_bandwidth"]
    assert {item.code for item in rows} == {Code.NO_MEASUREMENT} and "timeout: hung" in rows[0].message
    shares = [item for item in reasons if item.launch_id == "derived-collective-n1-g0-r1"]
    assert shares and all(item.code is Code.NO_MEASUREMENT and "hung" in item.message for item in shares)


def test_a_busy_launch_is_a_gap_in_all_its_rows(night: Night):
    lost = night.with_rows(lambda rows: [row for row in rows if row.launch_id != "collective-n1-g0-r1"])
    busy = launch_verdict(night, "collective-n1-g0-r1", Code.BUSY, "in use by a job")
    judgement = lost.with_verdicts(busy).judge()
    assert {item.code for item in judgement.notable} == {Code.BUSY}
    nodes = {launch.launch_id: launch.nodes for launch in night.readout.launches}
    everyone = {**{node.name: 1 for node in night.plan.inventory}, "collective-n1": 1}
    assert decide(judgement.judged, night.suite.gate, nights=everyone, launch_nodes=nodes).open
    assert not decide(
        judgement.judged, night.suite.gate, nights={**everyone, "collective-n1": 8}, launch_nodes=nodes
    ).open
    assert not decide(judgement.judged, night.suite.gate, nights={}, launch_nodes=nodes).open


def test_a_row_that_is_simply_absent_is_named(night: Night):
    reasons = found(night.with_rows(lambda rows: [row for row in rows if not is_first(row)]))
    own = [item for item in reasons if item.indicator == "bus_bandwidth"]
    assert [item.code for item in own] == [Code.NO_MEASUREMENT]
    assert own[0].place.startswith("all_reduce 1 GiB at 1 node, group 0") and "no such row" in own[0].message


def test_a_duplicate_counts_as_nothing_even_when_it_is_better(night: Night):
    reasons = found(night.with_rows(lambda rows: [*rows, *(replace(r, value=490.0) for r in rows if is_first(r))]))
    own = [item for item in reasons if item.indicator == "bus_bandwidth"]
    assert [item.code for item in own] == [Code.DUPLICATE]


def test_unplanned_rows_are_reported_and_not_counted(night: Night):
    stray = [replace(row, launch_id="collective-n1-g99-r1") for row in night.readout.measurements if is_first(row)]
    extra = night.with_rows(lambda rows: [*rows, *stray])
    judgement = extra.judge()
    assert [item.code for item in judgement.notable] == [Code.UNPLANNED]
    assert judgement.judged.passed == judgement.judged.expected
    assert not decide(judgement.judged, night.suite.gate, nights={}).open


def test_a_slow_node_is_worse_than_its_peers(night: Night):
    loose = json.loads(json.dumps(REFERENCES))
    loose["files"][0]["references"][0] |= {"lower": 100.0, "warn_lower": None}
    slow = replace(changed(night, value=430.0), references=references_from(loose))
    reasons = found(slow)
    assert [item.code for item in reasons] == [Code.WORSE_THAN_PEERS]
    assert (
        reasons[0].params and "bus_bandwidth" in reasons[0].params and reasons[0].place.endswith(reasons[0].node or "?")
    )
    assert reasons[0].actual == pytest.approx(430 / 480, abs=0.01)


def test_peers_that_scatter_accuse_nobody(night: Night):
    def noisy(rows: Rows) -> Rows:
        return [replace(r, value=30.0 + 6 * ((r.group or 0) % 5)) if r.indicator == "latency" else r for r in rows]

    assert not [item for item in night.with_rows(noisy).judge().notable if item.code is Code.WORSE_THAN_PEERS]


# -- limits ------------------------------------------------------------------------------------------------------


def limit(**fields: Any) -> BaselineLimit:
    given = {"benchmark": "collective", "benchmark_version": "1", "indicator": "bus_bandwidth", "node_count": 1,
             "params": FIRST, "unit": "GB/s", "value": 480.0, "lower": 470.0, "upper": None, "warn_lower": 475.0,
             "warn_upper": None, "runs": 5, "values": 80, "source": "median of 5 approved runs"}  # fmt: skip
    return BaselineLimit(**{**given, **fields})


def test_worse_than_approved_history(night: Night):
    reasons = found(changed(night, value=468.0), baseline=[limit()])
    own = [item for item in reasons if item.launch_id == "collective-n1-g0-r1"]
    assert [item.code for item in own] == [Code.WORSE_THAN_BASELINE]
    assert own[0].expected == "≥ 470 GB/s (median of 5 approved runs)" and own[0].reference
    near = [i for i in changed(night, value=473.0).judge(baseline=[limit()]).notable if i.node_count == 1]
    assert Code.NEAR_LIMIT in {item.code for item in near}


def test_history_in_another_unit_is_converted(night: Night):
    same = limit(unit="MB/s", value=480e3, lower=470e3, warn_lower=475e3)
    assert next(i.code for i in found(changed(night, value=468.0), baseline=[same])) is Code.WORSE_THAN_BASELINE
    reasons = found(night, baseline=[limit(unit="us")])
    assert {item.code for item in reasons} == {Code.NO_LIMITS} and "us" in reasons[0].message


def test_without_reference_and_history_there_is_a_warning(night: Night):
    bare = without_limits_for_latency(night)
    judgement = bare.judge()
    assert {item.code for item in judgement.notable} == {Code.NO_BASELINE}
    assert {item.indicator for item in judgement.notable} == {"latency"}
    assert decide(judgement.judged, night.suite.gate, nights={}).open
    known = limit(indicator="latency", unit="us", lower=None, upper=40.0, warn_lower=None, warn_upper=38.0,
                  params=canonical_params({"operation": "all_reduce"}))  # fmt: skip
    assert replace(bare).judge(baseline=[known, replace(known, node_count=2)]).notable == ()


def without_limits_for_latency(night: Night) -> Night:
    fewer = json.loads(json.dumps(REFERENCES))
    fewer["files"][0]["references"].pop(2)
    fewer["files"][0] |= {"count": 3, "required": ["collective/bus_bandwidth", "matrix/rate"]}
    return replace(night, references=references_from(fewer))


@pytest.mark.parametrize("references", ["without latency", "unreadable"])
def test_rows_that_are_told_as_one_are_judged_as_each_of_them_would_be(
    night: Night, references: str, monkeypatch: pytest.MonkeyPatch
):
    bare = without_limits_for_latency(night) if references == "without latency" else replace(night, references=None)
    together = bare.judge()
    assert together.judged.alike
    monkeypatch.setattr("plumbline.validation.verdict_rows.LEAST_GROUP", 10**9)
    apart = bare.judge()
    assert not apart.judged.alike and apart.judged.passed == together.judged.passed
    decisions = [decide(item.judged, night.suite.gate, nights={}).data() for item in (together, apart)]
    for decision in decisions:
        decision["reasons"].sort(key=lambda reason: json.dumps(reason, sort_keys=True))
    assert decisions[0] == decisions[1]
    kept = [item.verdicts.astype(object).where(item.verdicts.notna(), None) for item in (together, apart)]
    assert kept[0].to_dict("records") == kept[1].to_dict("records")


def test_a_waiver_reaches_the_rows_that_are_else_told_as_one(night: Night):
    bare = without_limits_for_latency(night)
    one_place = waiver(indicator="latency", code="no_baseline", node_count=2)
    judged = bare.judge(waivers=[one_place]).judged
    assert {item.kind for item in judged.rows if item.node_count == 2} == {VerdictKind.WAIVED}
    assert {item.kind for item in judged.rows if item.node_count != 2} == {VerdictKind.WARN}


def test_physical_bounds_do_not_stand_in_for_a_baseline(night: Night):
    physical = json.loads(json.dumps(REFERENCES))
    physical["files"][0]["references"][2] |= {"kind": "physical", "lower": 1.0, "upper": 1e6, "value": None}
    bare = replace(night, references=references_from(physical))
    assert {(i.code, i.indicator) for i in bare.judge().notable} == {(Code.NO_BASELINE, "latency")}
    fast = bare.with_rows(
        lambda rows: [replace(r, value=0.5) if r.indicator == "latency" and r.group == 0 else r for r in rows]
    )
    assert Code.IMPOSSIBLE_VALUE in {item.code for item in found(fast)}


def test_unreadable_references_close_the_gate_in_every_row(night: Night):
    judgement = replace(night, references=None).judge()
    rows = judgement.verdicts[judgement.verdicts["item"] == "row"]
    assert set(rows["kind"]) == {"INVALID"} and set(rows["code"]) == {"no_limits"}
    assert judgement.judged.passed == 0


def test_a_reference_that_asks_for_an_unknown_parameter_is_found(night: Night):
    typo = json.loads(json.dumps(REFERENCES))
    typo["files"][0]["references"][0]["match"] = {"operaton": "all_reduce"}
    reasons = found(replace(night, references=references_from(typo)))
    assert any(item.code is Code.NO_LIMITS and "operaton" in item.message for item in reasons)


def test_references_of_other_hardware_close_the_gate(night: Night):
    other = json.loads(json.dumps(REFERENCES).replace("H100-SXM5-80GB", "A100-SXM4-80GB"))
    assert Code.NO_LIMITS in {item.code for item in found(replace(night, references=references_from(other)))}


# -- the judge itself --------------------------------------------------------------------------------------------


def test_an_expectation_that_raises_is_a_judge_error(night: Night, monkeypatch: pytest.MonkeyPatch):
    from plumbline.validation import expectations

    monkeypatch.setattr(expectations, "_expectation", _without_column(expectations._expectation))
    reasons = found(night)
    assert {item.code for item in reasons} == {Code.JUDGE_ERROR}
    assert reasons[0].place == "rule lower" and "raised" in reasons[0].message


def _without_column(make: Callable[..., Any]) -> Callable[..., Any]:
    def other(gxe: Any, rule: Any, allowed: Any) -> Any:
        return make(gxe, replace(rule, b="no_such_column") if rule.id == "lower" else rule, allowed)

    return other


def test_a_launch_that_expects_nothing_cannot_hide(night: Night):
    blind = replace(
        night,
        readout=replace(
            night.readout,
            expected=tuple(r for r in night.readout.expected if r.launch_id != "matrix-n1-g0-r1"),
            measurements=tuple(r for r in night.readout.measurements if r.launch_id != "matrix-n1-g0-r1"),
        ),
    )
    reasons = found(blind)
    assert [item.code for item in reasons] == [Code.SCHEMA] and "can't fail" in reasons[0].message


def test_an_empty_readout_is_closed(night: Night):
    empty = replace(night, derived=False, readout=replace(night.readout, expected=(), measurements=()))
    found(empty)
    nothing = replace(empty, plan=replace(night.plan, launches=(), batches=(), inventory=()))
    reasons = decide(nothing.judge().judged, night.suite.gate, nights={}).reasons
    assert any("empty run" in item.message for item in reasons)


MISHAPS: dict[str, Any] = {
    "a row is lost": lambda rows, rng: rows.pop(rng.randrange(len(rows))),
    "a row is there twice": lambda rows, rng: rows.append(rng.choice(rows)),
    "the order is another": lambda rows, rng: rng.shuffle(rows),
    "a unit is another": lambda rows, rng: swap(rows, rng, lambda row: {"unit": "MB/s", "value": row.value * 1e3}),
    "a unit is gone": lambda rows, rng: swap(rows, rng, lambda row: {"unit": ""}),
    "a value is better": lambda rows, rng: swap(rows, rng, lambda row: {"value": row.value * 1.02}),
    "a value is no number": lambda rows, rng: swap(rows, rng, lambda row: {"value": math.inf}),
    "a row is another run's": lambda rows, rng: swap(rows, rng, lambda row: {"run_id": "20200101T000000Z-000000"}),
}


def swap(rows: Rows, rng: random.Random, change: Any) -> None:
    at = rng.randrange(len(rows))
    rows[at] = replace(rows[at], **change(rows[at]))


@settings(max_examples=12)
@given(names=st.lists(st.sampled_from(sorted(MISHAPS)), min_size=1, max_size=4), rng=st.randoms(use_true_random=False))
def test_nothing_that_happens_to_rows_opens_a_closed_gate(names: list[str], rng: random.Random):
    """One row is far too slow; whatever is lost, doubled, shuffled or in another unit, that one included."""
    slow = replace(changed(good_night(nodes=4), value=100.0), derived=False)

    def change(rows: Rows) -> Rows:
        for name in names:
            MISHAPS[name](rows, rng)
        return rows

    assert not decide(slow.judge().judged, slow.suite.gate, nights={}).open
    assert not decide(slow.with_rows(change).judge().judged, slow.suite.gate, nights={}).open


# -- waivers -----------------------------------------------------------------------------------------------------


def waiver(**fields: Any) -> Waiver:
    given = {"reason": "cable ordered", "owner": "ops", "until": "2026-03-31", "benchmark": "collective",
             "indicator": "bus_bandwidth"}  # fmt: skip
    return Waiver.model_validate({**given, **fields})


def test_a_waiver_excuses_the_named_fault_only(night: Night):
    slow = replace(changed(night, value=400.0), derived=False)
    judgement = slow.judge(waivers=[waiver(match={"message_bytes": 1 << 30})])
    assert [item.kind for item in judgement.notable] == [VerdictKind.WAIVED]
    assert "cable ordered (owner ops, until 2026-03-31)" in judgement.notable[0].message
    assert decide(judgement.judged, night.suite.gate, nights={}).open
    assert (judgement.verdicts["kind"] == "WAIVED").sum() == 1
    for other in ({"node": "n0099"}, {"node_count": 2}, {"indicator": "latency"}, {"match": {"message_bytes": 1}}):
        kinds = {item.kind for item in slow.judge(waivers=[waiver(**other)]).notable}
        assert kinds == {VerdictKind.FAIL, VerdictKind.WARN}, other


def test_a_waiver_never_excuses_what_was_not_measured_or_is_impossible(night: Night):
    for broken in (
        changed(night, value=-1.0),
        changed(night, value=math.nan),
        night.with_rows(lambda rows: [row for row in rows if not is_first(row)]),
    ):
        found(replace(broken, derived=False), waivers=[waiver()])


def test_an_expired_waiver_is_void_and_an_unused_one_is_reported(night: Night):
    slow = replace(changed(night, value=400.0), derived=False)
    codes = {item.code for item in found(slow, waivers=[waiver(until="2026-02-28")])}
    assert codes == {Code.OUTSIDE_REFERENCE, Code.WAIVER_EXPIRED}
    assert slow.judge(waivers=[waiver(until="2026-03-01")]).judged.rows[0].kind is VerdictKind.WAIVED
    unused = replace(night, derived=False).judge(waivers=[waiver()])
    assert [item.code for item in unused.notable] == [Code.WAIVER_UNUSED]
    assert decide(unused.judged, night.suite.gate, nights={}).open
