from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.configuration import parse
from plumbline.errors import ConfigError
from plumbline.model import KIND_OF_CODE, Code, Verdict, VerdictKind, to_plain, verdict, verdict_from
from plumbline.suites.suite import ALWAYS_BLOCKING, Gate
from plumbline.validation.gate import GAP_CODES, Alike, Judged, alarm, decide, grouped, reason_data, verdict_of_reason

NIGHTLY = Gate(coverage_gaps_allowed=True)
STRICT = Gate(blocks=(*ALWAYS_BLOCKING, VerdictKind.WARN))

codes = st.sampled_from([code for code in Code if KIND_OF_CODE[code] is not VerdictKind.PASS])
nodes = st.sampled_from([None, "n1", "n2", "n3"])


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    return verdict(
        draw(codes), "somewhere", "because", benchmark=draw(st.sampled_from(["fio", "nccl_tests", None])),
        node=draw(nodes), launch_id=draw(st.sampled_from([None, "fio-n1-g0-r1"])),
    )  # fmt: skip


@st.composite
def judged(draw: st.DrawFn) -> Judged:
    rows, others = draw(st.lists(verdicts(), max_size=6)), draw(st.lists(verdicts(), max_size=4))
    passed = draw(st.integers(0, 5))
    unmeasured = sum(item.kind in (VerdictKind.NOT_RUN, VerdictKind.STALE) for item in rows)
    expected = passed + len(rows)
    return Judged(
        expected=expected, measured=expected - unmeasured, passed=passed, rows=tuple(rows), others=tuple(others)
    )


gates = st.sampled_from([NIGHTLY, STRICT, Gate()])
ages = st.dictionaries(st.sampled_from(["n1", "n2", "n3", "fio", "nccl_tests"]), st.integers(0, 30))


def all_good(count: int = 3) -> Judged:
    return Judged(expected=count, measured=count, passed=count, rows=(), others=())


def test_all_passed_opens():
    decision = decide(all_good(), STRICT, nights={})
    assert decision.open and decision.verdict is VerdictKind.PASS and decision.reasons == ()


def test_nothing_expected_is_closed_and_says_so():
    decision = decide(all_good(0), NIGHTLY, nights={})
    assert not decision.open and "empty run" in decision.reasons[0].message


@given(judged(), gates, ages, st.data())
def test_removing_a_verdict_never_opens(found: Judged, gate: Gate, nights: dict[str, int], data: st.DataObject):
    """A row's verdict that is lost breaks the count; so does a lost PASS."""
    before = decide(found, gate, nights=nights)
    if found.rows:
        index = data.draw(st.integers(0, len(found.rows) - 1))
        fewer = replace(found, rows=(*found.rows[:index], *found.rows[index + 1 :]))
        assert not decide(fewer, gate, nights=nights).open
    if found.passed:
        assert not decide(replace(found, passed=found.passed - 1), gate, nights=nights).open
    assert before.open or before.blocking


@given(st.integers(1, 5), st.integers(1, 3), gates)
def test_every_expected_row_is_judged_once(passed: int, more: int, gate: Gate):
    """Nothing here closes by itself: only the count is wrong."""
    extra = tuple(verdict(Code.WAIVED, f"row {n}", "excused") for n in range(more))
    assert decide(all_good(passed), gate, nights={}).open
    for wrong in (
        replace(all_good(passed), rows=extra),
        replace(all_good(passed), passed=passed + more),
        replace(all_good(passed), passed=passed - 1),
        replace(all_good(passed), measured=passed + more),
        replace(all_good(passed), measured=passed - 1),
        replace(all_good(passed), expected=passed + more),
    ):
        decision = decide(wrong, gate, nights={})
        assert not decision.open and decision.verdict is VerdictKind.INVALID, wrong


@given(judged(), gates, ages, verdicts())
def test_adding_evidence_never_opens(found: Judged, gate: Gate, nights: dict[str, int], more: Verdict):
    if not decide(found, gate, nights=nights).open:
        for grown in (
            replace(found, others=(*found.others, more)),
            replace(found, rows=(*found.rows, more)),
            replace(found, passed=found.passed + 1),
            replace(found, rows=(*found.rows, more), expected=found.expected + 1, measured=found.measured + 1),
        )[: 4 if found.expected else 2]:
            assert not decide(grown, gate, nights=nights).open


@given(judged(), gates, ages, st.randoms())
def test_order_changes_nothing(found: Judged, gate: Gate, nights: dict[str, int], rng):
    rows, others = list(found.rows), list(found.others)
    rng.shuffle(rows), rng.shuffle(others)
    turned = replace(found, rows=tuple(rows), others=tuple(others))
    one, two = decide(found, gate, nights=nights), decide(turned, gate, nights=nights)
    assert (one.open, one.verdict, one.counts) == (two.open, two.verdict, two.counts)


@given(judged(), ages)
def test_a_stricter_gate_never_opens_what_a_laxer_one_closed(found: Judged, nights: dict[str, int]):
    lax, strict = decide(found, NIGHTLY, nights=nights), decide(found, STRICT, nights=nights)
    assert lax.open or not strict.open


@given(judged(), gates, ages)
def test_every_blocking_kind_blocks_and_is_shown(found: Judged, gate: Gate, nights: dict[str, int]):
    decision = decide(found, gate, nights=nights)
    assert decision.open == (not decision.blocking)
    for item in (*found.rows, *found.others):
        if item.kind in (VerdictKind.FAIL, VerdictKind.INVALID, VerdictKind.STALE):
            assert not decision.open
        if item.kind is VerdictKind.NOT_RUN and item.code not in GAP_CODES:
            assert not decision.open
    assert sum(count for kind, count in decision.counts.items() if kind != "PASS") >= len(found.rows) + len(
        found.others
    )
    order = list(VerdictKind)
    ranks = [order.index(item.kind) for item in decision.reasons]
    assert ranks == sorted(ranks, reverse=True)
    assert decision.counts["PASS"] == found.passed
    assert {item.kind for item in decision.reasons} == {VerdictKind(k) for k, n in decision.counts.items() if n} - {
        VerdictKind.PASS
    }


@given(verdicts())
def test_a_reason_survives_verdict_json(item: Verdict):
    assert verdict_of_reason(reason_data(item)) == item
    assert verdict_from(to_plain(item)) == item


# -- coverage gaps -----------------------------------------------------------------------------------------------


def gap(code: Code = Code.BUSY, **fields: object) -> Judged:
    item = verdict(code, "node n1", "in use", **{"node": "n1", **fields})
    return replace(all_good(), others=(item,))


@pytest.mark.parametrize("code", sorted(GAP_CODES))
def test_a_gap_is_tolerated_until_it_is_stale(code: Code):
    fresh = decide(gap(code), NIGHTLY, nights={"n1": 7})
    assert fresh.open and fresh.verdict is VerdictKind.WARN and fresh.gaps == fresh.reasons
    assert fresh.coverage["missing"] == ["node n1"]
    old = decide(gap(code), NIGHTLY, nights={"n1": 8})
    assert not old.open and old.verdict is VerdictKind.STALE
    assert old.reasons[0].code is Code.TOO_OLD and "8 nights" in old.reasons[0].message


def test_a_gap_of_unknown_age_is_not_tolerated_and_says_why_it_closes():
    unknown = decide(gap(), NIGHTLY, nights={"n2": 1})
    assert not unknown.open and "nothing says when it was last measured" in unknown.blocking[0].message
    known = decide(gap(), NIGHTLY, nights={"n1": 1})
    assert known.open and "last measured" not in known.reasons[0].message


def test_acceptance_tolerates_no_gap():
    assert not decide(gap(), STRICT, nights={"n1": 0}).open


def test_only_the_three_reasons_are_gaps():
    for code in (Code.NODE_LOST, Code.BUDGET, Code.NO_RECORD, Code.UNREACHABLE_SCALE, Code.NO_MEASUREMENT):
        assert not decide(gap(code), NIGHTLY, nights={"n1": 0}).open


def test_a_group_is_as_old_as_its_oldest_node():
    found = gap(node=None, launch_id="nccl_tests-n2-g0-r1")
    launches = {"nccl_tests-n2-g0-r1": ("n1", "n2")}
    assert decide(found, NIGHTLY, nights={"n1": 1, "n2": 2}, launch_nodes=launches).open
    assert not decide(found, NIGHTLY, nights={"n1": 1, "n2": 9}, launch_nodes=launches).open
    assert not decide(found, NIGHTLY, nights={"n1": 1}, launch_nodes=launches).open
    rung = gap(node=None, launch_id="derived-nccl_tests-n2")
    assert decide(rung, NIGHTLY, nights={"n1": 1, "n2": 2}, launch_nodes=launches).open
    assert not decide(rung, NIGHTLY, nights={"n1": 1, "n2": 2}, launch_nodes={}).open


def test_a_rung_ages_though_its_nodes_are_measured_elsewhere():
    """Preempted whenever the collectives of two nodes run, measured alone every night."""
    found = gap(Code.PREEMPTED, node=None, launch_id="nccl_tests-n2-g0-r1", benchmark="nccl_tests", node_count=2)
    launches, fresh = {"nccl_tests-n2-g0-r1": ("n1", "n2")}, {"n1": 1, "n2": 1}

    def at(**nights: int):
        named = {key.replace("__", "/").replace("_n2", "-n2"): age for key, age in nights.items()}
        return decide(found, NIGHTLY, nights={**fresh, **named}, launch_nodes=launches)

    assert at(nccl_tests_n2=7).open
    stale = at(nccl_tests_n2=8)
    assert not stale.open and stale.reasons[0].code is Code.TOO_OLD
    assert "n1 in nccl_tests at 2 nodes was not measured for 8 nights" in stale.reasons[0].message
    assert not at().open and at().verdict is VerdictKind.NOT_RUN  # never measured: no tolerated gap
    one_node = at(nccl_tests_n2=1, nccl_tests_n2__n2=9)
    assert not one_node.open and "n2 in nccl_tests at 2 nodes" in one_node.reasons[0].message
    assert at(nccl_tests_n2=1, nccl_tests_n2__n3=9).open
    unknown = decide(found, NIGHTLY, nights={"n1": 1, "nccl_tests-n2": 1}, launch_nodes=launches)
    assert not unknown.open  # the rung is young, and nobody knows how old its second node is


def test_a_row_of_one_node_ages_with_its_benchmark():
    found = gap(benchmark="fio", node_count=1, launch_id="fio-n1-g0-r1")
    assert decide(found, NIGHTLY, nights={"n1": 1, "fio-n1": 1}).open
    assert not decide(found, NIGHTLY, nights={"n1": 1, "fio-n1": 1, "fio-n1/n1": 8}).open
    assert not decide(found, NIGHTLY, nights={"n1": 1}).open


def test_a_rung_left_out_whole_is_as_old_as_it_is():
    found = gap(Code.EXCLUDED, node=None, benchmark="fio", node_count=4)
    assert decide(found, NIGHTLY, nights={"fio-n4": 7, "fio": 30}).open
    assert not decide(found, NIGHTLY, nights={"fio-n4": 8, "fio": 1}).open
    assert not decide(found, NIGHTLY, nights={"fio": 1}).open


def test_a_benchmark_left_out_is_as_old_as_it_is():
    found = gap(Code.EXCLUDED, node=None, benchmark="fio")
    assert decide(found, NIGHTLY, nights={"fio": 1}).open
    assert not decide(found, NIGHTLY, nights={"fio": 8}).open
    assert not decide(found, NIGHTLY, nights={}).open


# -- the policy itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALWAYS_BLOCKING)
def test_a_suite_cannot_leave_out_a_kind_that_blocks(kind: VerdictKind):
    left = [k.value for k in ALWAYS_BLOCKING if k is not kind]
    with pytest.raises(ConfigError, match=kind.value):
        parse(Gate, {"blocks": left}, "suite.yaml")


def test_a_misspelt_kind_is_an_error():
    with pytest.raises(ConfigError, match="blocks"):
        parse(Gate, {"blocks": ["FAIL", "INVALD", "NOT_RUN", "STALE"]}, "suite.yaml")
    with pytest.raises(ConfigError, match="did you mean"):
        parse(Gate, {"block": ["FAIL"]}, "suite.yaml")


def test_a_gate_forged_around_its_check_still_closes():
    forged = Gate.model_construct(blocks=(), coverage_gaps_allowed=False, max_age_nights=7)
    found = replace(all_good(), others=(verdict(Code.TIMEOUT, "x", "hung"),))
    assert not decide(found, forged, nights={}).open


# -- alarm -------------------------------------------------------------------------------------------------------


def test_what_was_there_last_night_is_not_news():
    slow = verdict(Code.OUTSIDE_REFERENCE, "all_reduce at 2 nodes, group 0", "slow", benchmark="nccl_tests", group=0,
                   indicator="bus_bandwidth", node_count=2, params="{}")  # fmt: skip
    moved = replace(slow, group=3, place="all_reduce at 2 nodes, group 3")
    assert alarm([slow], None).news and alarm([slow], []).new == (slow,)
    assert not alarm([moved], [slow]).news and alarm([moved], [slow]).ongoing == (moved,)
    assert alarm([], [slow]).gone == (slow,) and alarm([], [slow]).news


def test_gaps_and_warnings_alarm_nobody():
    quiet = [verdict(Code.BUSY, "node n1", "in use", node="n1"), verdict(Code.NO_BASELINE, "x", "none yet")]
    assert not alarm(quiet, None).news


@given(st.lists(verdicts(), max_size=6))
def test_a_run_is_no_news_against_itself(items: list[Verdict]):
    assert not alarm(items, items).news


# -- grouping ----------------------------------------------------------------------------------------------------


def row(code: Code, launch_id: str, indicator: str, number: int) -> Verdict:
    return verdict(
        code, f"place {number}", "why", benchmark="fio", launch_id=launch_id, indicator=indicator, params="{}"
    )


def test_a_reason_of_many_indicators_names_four_and_says_how_many_more():
    rows = tuple(row(Code.NO_MEASUREMENT, "fio-n1-g0-r1", f"i{n}", n) for n in range(6))
    decision = decide(Judged(expected=6, measured=0, passed=0, rows=rows, others=()), NIGHTLY, nights={})
    assert decision.reasons[0].message.startswith("6 rows (i0, i1, i2, i3 and 2 more), first place 0")


def test_rows_of_one_cause_are_one_reason_and_all_counted():
    rows = [row(Code.NO_MEASUREMENT, "fio-n1-g0-r1", f"i{n % 2}", n) for n in range(9)]
    rows += [row(Code.NO_BASELINE, f"fio-n1-g{n}-r1", "iops", n) for n in range(5)]
    rows += [row(Code.OUTSIDE_REFERENCE, "fio-n1-g0-r1", "iops", n) for n in range(6)]
    rows += [row(Code.NO_BASELINE, f"fio-n1-g{n}-r1", "lat", n) for n in range(3)]
    decision = decide(Judged(expected=23, measured=14, passed=0, rows=tuple(rows), others=()), NIGHTLY, nights={})
    codes = [item.code for item in decision.reasons]
    assert codes.count(Code.OUTSIDE_REFERENCE) == 6 and codes.count(Code.NO_MEASUREMENT) == 1
    assert codes.count(Code.NO_BASELINE) == 4
    missing = next(item for item in decision.reasons if item.code is Code.NO_MEASUREMENT)
    assert missing.message.startswith("9 rows (i0, i1), first place 0") and missing.place == "fio-n1-g0-r1"
    assert decision.counts["NOT_RUN"] == 9 and decision.counts["WARN"] == 8 and not decision.open
    assert len(decision.coverage["missing"]) == 9
    blocks = [item["blocks"] for item in decision.data()["reasons"]]
    assert blocks == [True] * 7 + [False] * 4


def test_one_reason_for_many_nodes_names_none_of_them():
    rows = [replace(row(Code.NO_BASELINE, f"fio-n1-g{n}-r1", "iops", n), node=f"n{n}") for n in range(5)]
    [one] = grouped(rows)
    assert one.node is None
    [one] = grouped([replace(item, node="n1") for item in rows])
    assert one.node == "n1"


@given(st.lists(verdicts(), max_size=12))
def test_grouping_loses_no_kind(items: list[Verdict]):
    assert {item.kind for item in grouped(items)} == {item.kind for item in items}


def test_rows_told_as_one_decide_as_each_of_them_would():
    rows = [replace(row(Code.NO_BASELINE, f"fio-n1-g{n}-r1", "iops", n), node=f"n{n}") for n in range(6)]
    rows += [row(Code.NO_LIMITS, f"fio-n1-g{n}-r1", "lat", n) for n in range(4)]
    one_by_one = Judged(expected=12, measured=12, passed=2, rows=tuple(rows), others=())
    alike = (
        Alike(first=replace(rows[0], node=None), count=6),
        Alike(first=rows[6], count=4),
    )
    together = replace(one_by_one, rows=(), alike=alike)
    for gate in (NIGHTLY, STRICT):
        assert decide(together, gate, nights={}).data() == decide(one_by_one, gate, nights={}).data()
    only_warnings = replace(together, expected=8, measured=8, alike=alike[:1])
    assert decide(only_warnings, NIGHTLY, nights={}).open and not decide(only_warnings, STRICT, nights={}).open
    lost = decide(replace(together, alike=alike[:1]), NIGHTLY, nights={})
    assert not lost.open and Code.JUDGE_ERROR in {item.code for item in lost.reasons}


@pytest.mark.parametrize("code", [code for code in Code if code not in (Code.NO_BASELINE, Code.NO_LIMITS)])
def test_no_row_with_a_value_of_its_own_is_told_with_others(code: Code):
    with pytest.raises(ValueError, match="aren't told as one"):
        Alike(first=row(code, "fio-n1-g0-r1", "iops", 0), count=9)
