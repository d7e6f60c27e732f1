from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.model import Code, Device, verdict
from plumbline.reports.counts import compared_in_words
from plumbline.reports.findings import findings
from plumbline.reports.terminal import NARROWEST, NO_TERMINAL, WIDEST, terminal_width, verdict_lines
from plumbline.tracking.run_directory import RunDirectory

CLUSTER = Scenario(cluster="h100", nodes=8, device=Device.GPU)
SOURCE = "published reference for H100: a table of some length that nobody wants to read on a terminal, 2025-06-30"
COMPARED = {"approved_runs": 1, "history": 80, "beyond": 2, "references": 10, "nothing": 6, "shown": 4, "left_out": []}


def told(run: RunDirectory, width: int = NO_TERMINAL, **more: Any) -> list[str]:
    data = {**run.read_derived("verdict.json"), **more.pop("data", {})}
    return list(verdict_lines(data, findings(run), Path("report.html"), approvable=False, width=width, **more))


def slow(**fields: Any) -> Any:
    given = {
        "benchmark": "nccl_tests", "indicator": "bus_bandwidth", "node_count": 4, "group": 0, "actual": 218.8,
        "unit": "GB/s", "expected": f"≥ 391.5 GB/s ({SOURCE})", "launch_id": "nccl_tests-n4-g0-r1",
    }  # fmt: skip
    text = "bus_bandwidth of 218.8 GB/s is 44.1% below the limit of its reference"
    return verdict(Code.OUTSIDE_REFERENCE, "all_reduce 8 GiB at 4 nodes, group 0", text, **{**given, **fields})


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal_and_every_word_is_there(tmp_path: Path, width: int):
    long = "the reason " * 12 + "ends here"
    extra = [slow(), verdict(Code.BENCHMARK_FAILED, "nccl_tests at 8 nodes", long, launch_id="nccl_tests-n8-g0-r1")]
    extra += [verdict(Code.NO_BASELINE, "fio", "has no history", benchmark="fio", indicator="write_iops")]
    lines = told(build_run(tmp_path, CLUSTER, extra=extra, missing_launches=["hpl_mxp-n1-g0-r1"]), width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for words in ("all_reduce 8 GiB at 4 nodes, group 0: bus_bandwidth of 218.8 GB/s is 44.1% below", "ends here"):
        assert words in text
    assert text.count("the reason") == 12


def test_a_run_that_was_asked_for_less_than_its_suite_says_so(tmp_path: Path):
    asked = ({"setting": "fio.jobs", "run": "seq_read", "suite": "seq_read,rand_read"},)
    words = "not the suite as it is: fio.jobs seq_read (the suite: seq_read,rand_read)"
    run = build_run(tmp_path, CLUSTER, asked=asked)
    assert f"asked:    {words}" in told(run)


def test_a_limit_is_shown_without_its_source_and_the_table_says_so(tmp_path: Path):
    text = "\n".join(told(build_run(tmp_path, CLUSTER, extra=[slow()])))
    assert "expected ≥ 391.5 GB/s" in text and SOURCE[:20] not in text
    assert "left out above: where limits come from" in text
    assert "left out above" not in "\n".join(told(build_run(tmp_path / "b", CLUSTER, extra=[slow(expected="≥ 1")])))


def test_a_number_and_its_unit_stay_on_one_line(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER, extra=[slow()])
    assert all("≥ 391.5 GB/s" in "\n".join(told(run, width)) for width in range(60, 130))


def test_a_text_without_end_is_cut_and_the_table_says_so(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER, extra=[verdict(Code.BENCHMARK_FAILED, "fio", "word " * 400, benchmark="fio")])
    lines = told(run, 80)
    assert len(lines) < 30 and any(line.endswith("…") for line in lines)
    assert "the ends of long texts" in " ".join(lines)


def test_a_value_and_a_name_are_told_though_the_message_has_their_letters_elsewhere(tmp_path: Path):
    reasons = [
        verdict(
            Code.BENCHMARK_FAILED, "fio", "slower on n0001 than 300 expected", benchmark="fio", actual=1.0, unit="s"
        ),
        verdict(Code.BENCHMARK_FAILED, "mpi", "timeout of launch", benchmark="fio", indicator="time", actual=3.0),
        verdict(Code.BENCHMARK_FAILED, "gpu", "time of 2.5 s, not 9", benchmark="fio", indicator="time", actual=2.5),
    ]
    text = " ".join(" ".join(told(build_run(tmp_path, CLUSTER, extra=reasons), 160)).split())
    assert "than 300 expected; measured 1 s" in text and "mpi: time: timeout of launch; measured 3" in text
    assert "gpu: time of 2.5 s, not 9" in text and "measured 2.5" not in text


def test_control_characters_of_a_tool_do_not_reach_the_terminal(tmp_path: Path):
    run = build_run(
        tmp_path, CLUSTER, extra=[verdict(Code.BENCHMARK_FAILED, "fio", "\x1b[2JPASS\x07", benchmark="fio")]
    )
    assert not {"\x1b", "\x07"} & set("".join(told(run)))


def test_what_closes_the_gate_is_told_from_what_does_not(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER, excluded={"n0003": "GPU replaced"}, missing_launches=["hpl_mxp-n1-g0-r1"])
    lines = told(run)
    first, second = (lines.index(words) for words in ("what closes the gate:", "what does not close the gate:"))
    assert first < next(i for i, line in enumerate(lines) if "no_record" in line) < second
    assert second < next(i for i, line in enumerate(lines) if "excluded" in line)
    measured = " ".join(" ".join(lines).split())
    assert "left out, which does not close the gate: " in measured and "; missing: " in measured
    assert "n0003" in measured.partition("left out, which does not close the gate: ")[2].partition("what closes")[0]


def test_the_same_gap_closes_an_acceptance_and_is_told_so(tmp_path: Path):
    lines = told(build_run(tmp_path, CLUSTER, suite="acceptance", excluded={"n0003": "GPU replaced"}))
    assert "what closes the gate:" in lines and "what does not close the gate:" not in lines
    assert "left out" not in "\n".join(lines)


def test_warnings_alone_need_no_heading(tmp_path: Path):
    extra = [verdict(Code.NO_BASELINE, "fio", "has no history", benchmark="fio", indicator="write_iops")]
    lines = told(build_run(tmp_path, CLUSTER, extra=extra))
    assert not any("the gate:" in line for line in lines)
    assert any("1 indicator has no reference here" in line for line in lines)


def test_many_reasons_are_counted_and_leave_room_for_the_others(tmp_path: Path):
    extra = [slow(group=n) for n in range(30)]
    extra += [verdict(Code.NEAR_LIMIT, "fio", f"near its limit {n}", benchmark="fio") for n in range(7)]
    lines = told(build_run(tmp_path, CLUSTER, extra=extra))
    assert "  … and 15 more in the report" in lines and "  … and 2 more in the report" in lines


def test_suspects_are_said_once(tmp_path: Path):
    text = " ".join(" ".join(told(build_run(tmp_path, CLUSTER, slow_nodes={"n0002": 0.5}))).split())
    assert text.count("Suspect: n0002 (leaf01): in all 10 bad groups") == 1


def test_a_partial_run_says_what_was_compared_and_what_the_baseline_has_beside_it(tmp_path: Path):
    rungs = [{"benchmark": "nccl_tests", "node_count": count} for count in (4, 8)]
    data = {"compared": {**COMPARED, "left_out": rungs}}
    text = " ".join(" ".join(told(build_run(tmp_path, CLUSTER), data=data)).split())
    assert "80 with 1 approved run (2 beyond its limits), 10 with references alone, 6 with nothing yet" in text
    assert "approved and not measured this time: nccl_tests at 4 and 8 nodes" in text


def test_what_history_measured_otherwise_is_named_once_whatever_the_runs():
    threads = {"benchmark": "mlperf_gpt3", "reason": "threads: 1 → 2"}
    peak = {"benchmark": "nccl_tests", "reason": "max_bytes: 1M → 16K", "indicators": ["bus_bandwidth_peak"]}
    otherwise = [{**item, "run_id": run_id} for run_id in ("a", "b") for item in (threads, peak)]
    found = {**COMPARED, "measured_otherwise": otherwise}
    words = compared_in_words({"compared": found, "coverage": {"rows_measured": 20}})
    assert words.endswith(
        "; approved and measured otherwise, so not compared: mlperf_gpt3 (threads: 1 → 2), "
        "nccl_tests bus_bandwidth_peak (max_bytes: 1M → 16K)"
    )


def test_without_an_approved_run_that_is_said():
    found = {**COMPARED, "approved_runs": 0, "history": 0, "beyond": 0}
    words = compared_in_words({"compared": found, "coverage": {"rows_measured": 20}})
    assert words == (
        "of 20 values, 10 with references, 6 with nothing yet, 4 only shown; no run was approved before it began"
    )


def test_an_approved_run_with_nothing_to_compare_with_is_told_as_such():
    found = {**COMPARED, "history": 0, "beyond": 0, "approved_runs": 2}
    words = compared_in_words({"compared": found, "coverage": {"rows_measured": 20}})
    assert words.startswith("of 20 values, 0 with 2 approved runs, 10 with references alone")


def test_an_older_verdict_says_nothing_of_it(tmp_path: Path):
    assert not any(line.startswith("compared") for line in told(build_run(tmp_path, CLUSTER)))


@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("20", NARROWEST), ("400", WIDEST)])
def test_the_width_is_that_of_the_terminal_within_reason(monkeypatch: pytest.MonkeyPatch, columns: str, width: int):
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width
