import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.errors import ConfigError, OutputError
from plumbline.model import Device, Origin
from plumbline.tracking.comparison import Change, Comparison, changes_by_node, compare, tolerances, values_by_key
from plumbline.tracking.comparison_text import comparison_lines
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.run_directory import RunDirectory

BASE = Scenario(nodes=2)


def pair(results: Path, first: Scenario = BASE, **changes) -> tuple[RunDirectory, RunDirectory]:
    second = replace(first, when=first.when + timedelta(days=1), seed=first.seed + 1)
    return build_run(results, first), build_run(results, replace(second, **changes))


def text_of(found) -> str:
    return "\n".join(comparison_lines(found))


def test_a_run_is_the_same_as_itself(tmp_path: Path):
    run = build_run(tmp_path, BASE)
    found = compare(run, run)
    assert found.changes and {change.direction for change in found.changes} == {"same"}
    assert found.warnings == found.surroundings == found.not_comparable == ()
    assert "no change in" in text_of(found)


def test_a_slower_benchmark_is_worse_in_rates_and_in_times(tmp_path: Path):
    a, b = pair(tmp_path, speed={"fio": 0.5})
    found = {(c.benchmark, c.indicator): c for c in compare(a, b).changes}
    rate, wait = found["fio", "read_iops"], found["fio", "read_latency_p99"]
    assert rate.direction == wait.direction == "worse"
    assert rate.change == pytest.approx(-0.5, abs=0.03) and wait.change == pytest.approx(1.0, abs=0.1)
    assert rate.a > rate.b and (rate.values_a, rate.values_b, rate.unit) == (1, 1, "IOPS")
    assert compare(a, b).changes[0].benchmark == "fio", "the largest change comes first"
    faster = {(c.benchmark, c.indicator): c.direction for c in compare(b, a).changes}
    assert faster["fio", "read_iops"] == "better"


def test_one_value_each_allows_no_statement_on_chance(tmp_path: Path):
    a, b = pair(tmp_path, speed={"fio": 0.5})
    assert all(c.p_value is None and c.significant is None for c in compare(a, b).changes if c.benchmark == "fio")


def test_repeats_tell_a_change_from_scatter(tmp_path: Path):
    a, b = pair(tmp_path, replace(BASE, repeats=5), speed={"fio": 0.8})
    found = {(c.benchmark, c.indicator): c for c in compare(a, b).changes}
    assert found["fio", "read_iops"].significant is True
    assert found["hpl_mxp", "effective_flops"].significant is False


def test_many_nodes_tell_a_change_from_scatter(tmp_path: Path):
    base = Scenario(cluster="h100", nodes=12, device=Device.GPU)
    a, b = pair(tmp_path, base, speed={"hpl_mxp": 0.95})
    found = {(c.benchmark, c.indicator): c for c in compare(a, b).changes if c.node_count == 1}
    assert found["hpl_mxp", "effective_flops"].significant is True
    assert found["fio", "read_iops"].significant is False


def test_one_slow_node_is_found_by_node(tmp_path: Path):
    base = Scenario(cluster="h100", nodes=4, device=Device.GPU)
    a, b = pair(tmp_path, base, slow_nodes={"n0003": 0.6})
    found = changes_by_node(values_by_key(a), values_by_key(b), tolerances(JudgedRun(a), JudgedRun(b)))
    assert {change.node for change in found[:8]} == {"n0003"} and found[0].direction == "worse"
    assert {change.node for change in found if change.direction != "same"} == {"n0003"}


def test_another_benchmark_version_is_not_comparable(tmp_path: Path):
    a, b = pair(tmp_path, version="2")
    found = compare(a, b)
    assert found.changes == ()
    assert {item.item: item.reason for item in found.not_comparable}["fio"] == "benchmark version 1 → 2"


def test_other_parameters_are_not_comparable_and_named(tmp_path: Path):
    a, b = pair(tmp_path, params={"fio": {"iodepth": 32}, "nccl_tests": {"operations": "all_reduce,all_gather"}})
    found = compare(a, b)
    assert {c.benchmark for c in found.changes} == {"nccl_tests", "hpl_mxp", "mlperf_gpt3"}
    assert [(i.item, i.reason) for i in found.not_comparable] == [("fio", "parameters differ: iodepth: absent → 32")]


def test_what_only_one_run_has_is_said(tmp_path: Path):
    a, b = pair(tmp_path, replace(BASE, nodes=4), nodes=2)
    items = {item.item: item.reason for item in compare(a, b).not_comparable}
    reason = f"2 values only in {a.run_id}: step_time [s], tokens_per_s_per_gpu [tokens/s]"
    assert items["mlperf_gpt3 at 4 nodes"] == reason
    assert len(items) == len(compare(a, b).not_comparable), "one line for a benchmark and rung"


def test_clusters_origins_and_devices_are_never_compared_in_silence(tmp_path: Path):
    a = build_run(tmp_path, BASE)
    other = Scenario(cluster="sim", nodes=2, origin=Origin.SIMULATED, device=Device.GPU, suite="acceptance")
    b = build_run(tmp_path, other)
    found = compare(a, b)
    text = " | ".join(found.warnings)
    for words in ("different clusters: local and sim", "different devices: cpu and gpu", "different suites"):
        assert words in text
    assert "is measured and" in text and "say nothing about hardware" in text
    assert all(f"! {warning}" in text_of(found) for warning in found.warnings)


def test_what_differs_around_the_runs_is_said(tmp_path: Path):
    a, b = pair(tmp_path, kernel="6.9-other")
    assert compare(a, b).surroundings == ("kernel: 6.1.0-test → 6.9-other",)


def test_invalid_rows_are_not_compared(tmp_path: Path):
    a, b = pair(tmp_path, invalid=["fio-n1-g0-r1"])
    assert "fio" not in {c.benchmark for c in compare(a, b).changes}


def test_runs_without_values_or_verdicts_are_refused(tmp_path: Path):
    a = build_run(tmp_path, replace(BASE, nodes=1))
    launches = [spec.launch_id for spec in a.plan().launches]
    empty = build_run(tmp_path, replace(BASE, nodes=1), seed=2, missing_launches=launches)
    with pytest.raises(ConfigError, match=f"{empty.run_id} has no valid measurement"):
        compare(a, empty)
    (a.derived / "verdicts.parquet").unlink()
    with pytest.raises(OutputError, match="not judged yet"):
        compare(a, empty)


def test_the_comparison_is_plain_data_and_a_table(tmp_path: Path):
    a, b = pair(tmp_path, replace(BASE, repeats=3), speed={"fio": 0.5})
    found = compare(a, b)
    data = json.loads(json.dumps(found.to_plain(), allow_nan=False))
    first = data["changes"][0]
    assert (data["run_a"], data["run_b"]) == (a.run_id, b.run_id)
    assert first["significant"] is True and first["direction"] == "worse"
    lines = text_of(found).splitlines()
    assert lines[0] == f"{a.run_id} → {b.run_id}"
    assert any("fio read_iops [IOPS] at 1 node" in line and "-50" in line and "worse" in line for line in lines)


def test_a_shift_within_the_suites_tolerance_is_the_same(tmp_path: Path):
    a, b = pair(tmp_path, speed={"hpl_mxp": 0.98})
    found = compare(a, b)
    assert found.tolerance == 0.03
    assert {c.direction for c in found.changes if c.benchmark == "hpl_mxp"} == {"same"}
    assert "same: " in text_of(found) or "no change in" in text_of(found)
    assert not [line for line in text_of(found).splitlines() if "hpl_mxp effective_flops" in line]


def test_the_largest_change_is_shown_whichever_its_direction(tmp_path: Path):
    base = replace(BASE, nodes=8)
    a, b = pair(tmp_path, base, speed={"nccl_tests": 0.9, "fio": 3.0})
    lines = text_of(compare(a, b)).splitlines()
    rows = [line for line in lines if " worse" in line or " better" in line]
    assert rows[0].split()[0] == "fio" and " better" in rows[0]
    assert any("nccl_tests" in row and " worse" in row for row in rows)
    assert max(map(len, rows)) <= 150


def test_many_rows_of_one_direction_hide_none_of_the_other():
    def change(number: int, new: float) -> Change:
        return Change(
            benchmark="fio", indicator="read_iops", node_count=1, node=None, params=json.dumps({"job": number}),
            unit="IOPS", a=100.0, b=new, values_a=1, values_b=1, change=new / 100 - 1, tolerance=0.03,
            direction="worse" if new < 100 else "better", p_value=None,
        )  # fmt: skip

    changes = (*(change(n, 50.0) for n in range(60)), *(change(n, 110.0) for n in range(60, 80)))
    found = Comparison(
        run_a="a", run_b="b", word_a="", word_b="", warnings=(), settings=(), surroundings=(), tolerance=0.03,
        changes=changes, worst=(), not_comparable=(),
    )  # fmt: skip
    text = text_of(found)
    assert (text.count("  worse"), text.count("  better")) == (30, 10)
    assert "40 of 80 rows that moved (60 worse, 20 better)" in text


def test_one_bad_group_is_seen_though_the_median_stands(tmp_path: Path):
    base = Scenario(cluster="h100", nodes=12, device=Device.GPU)
    a, b = pair(tmp_path, base, slow_nodes={"n0003": 0.6})
    found = compare(a, b)
    key = ("hpl_mxp", "effective_flops", 1)
    (median,) = [c for c in found.changes if (c.benchmark, c.indicator, c.node_count) == key]
    (worst,) = [c for c in found.worst if (c.benchmark, c.indicator, c.node_count) == key]
    assert (median.direction, worst.direction) == ("same", "worse")
    assert worst.place == "worst of 12 nodes (n0003)" and worst.change == pytest.approx(-0.4, abs=0.05)
    pairs = [c.place for c in found.worst if c.indicator == "bus_bandwidth" and c.node_count == 2]
    assert pairs and all(place.startswith("worst of 6 groups (") and "n0003" in place for place in pairs)
    assert any("hpl_mxp effective_flops" in line and "n0003" in line for line in text_of(found).splitlines())
    assert [item["place"] for item in found.to_plain()["worst"]] == [change.place for change in found.worst]


def test_verdicts_and_settings_are_in_the_head(tmp_path: Path):
    a, b = pair(tmp_path, omitted=("mlperf_bert",))
    lines = text_of(compare(a, b)).splitlines()
    assert (
        lines[1] == f"  A: {JudgedRun(a).verdict.value}, the gate is {'open' if JudgedRun(a).gate_open else 'closed'}"
    )
    assert "  ≠ omitted: none → mlperf_bert" in lines


def test_other_planted_faults_are_in_the_head(tmp_path: Path):
    a, b = pair(tmp_path)
    path = b.evidence / "environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "planted": {"active": ["slow_nic at n0001 rail 3"]}}))
    assert compare(a, b).settings == ("planted faults: none active → slow_nic at n0001 rail 3",)


def test_a_table_says_the_parameters_that_tell_rows_apart(tmp_path: Path):
    a, b = pair(tmp_path, params={}, speed={"mlperf_gpt3": 0.5, "nccl_tests": 0.5})
    rows = [line for line in text_of(compare(a, b)).splitlines() if " worse" in line]
    assert any("nccl_tests" in row and "iB" in row for row in rows)
    training = [row for row in rows if "mlperf_gpt3" in row]
    assert training and not any("layers" in row or "hidden" in row for row in training)
