"""stress-ng's layouts: 0.15.06 recorded, 0.05 and 0.19 in the words of their printf formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import Outcome, outcome

from plumbline.errors import OutputError
from plumbline.readers import detect, stress_ng
from plumbline.readers.reading import Status

DATA = Path(__file__).parents[1] / "data" / "stress_ng"
RECORDED = sorted(DATA.iterdir())


def output_of(data: bytes | str, **expect: Any) -> Outcome:
    return outcome(stress_ng, data, expect)


def recorded(name: str) -> str:
    return (DATA / name).read_text()


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_recorded_output_is_found_by_itself_and_in_known_units(path: Path) -> None:
    assert detect(path).NAME == "stress_ng"
    assert output_of(path.read_bytes()).readings


def test_brief_metrics() -> None:
    output = output_of(recorded("brief_0.15.06.txt"))
    assert output.status is Status.COMPLETE
    assert output.value("bogo_ops", stressor="vm") == 2599
    assert output.value("bogo_ops_per_s_real", stressor="vm") == 2521.57
    assert output.value("bogo_ops_per_s_usrsys", stressor="cpu") == 1196.32
    assert output.value("run_time") == 1.04
    assert output.facts["dispatched"] == {"cpu": 1, "vm": 1}


def test_full_metrics_have_more_columns_and_a_list_below() -> None:
    output = output_of(recorded("metrics_0.15.06.txt"))
    assert output.status is Status.COMPLETE
    assert output.value("cpu_used_per_instance", stressor="switch") == 79.43
    assert output.value("rss_max", stressor="cpu") == 6344
    assert output.facts["metrics"][0]["value"] == 3215.77
    assert output.facts["stressor"] == ["cpu", "switch"]


def test_yaml_says_the_same_with_more_digits() -> None:
    text, yaml = output_of(recorded("brief_0.15.06.txt")), output_of(recorded("metrics_0.15.06.yaml"))
    assert yaml.status is Status.COMPLETE
    for reading in text.readings:
        if reading.indicator != "run_time":
            assert round(yaml.value(reading.indicator, **reading.params), 2) == reading.value
    assert yaml.facts["stress_ng_version"] == "0.15.06"


def test_yaml_of_single_instances_is_not_added() -> None:
    instances = "      instances:\n          - instance: 0\n            bogo-ops: 228\n            max-rss: 1\n"
    yaml = recorded("metrics_0.15.06.yaml").replace("max-rss: 6444\n", f"max-rss: 6444\n{instances}")
    assert output_of(yaml).value("bogo_ops", stressor="cpu") == 228
    assert output_of(yaml).value("rss_max", stressor="vm") == 34948


def test_the_old_layout_has_its_table_after_the_end() -> None:
    output = output_of(recorded("old_0.05.txt"))
    assert output.status is Status.COMPLETE
    assert output.value("bogo_ops_per_s_usrsys", stressor="cache") == 468.77
    assert output_of(recorded("old_0.05.txt").rsplit("\n", 2)[0] + "\n").status is Status.INCOMPLETE
    bare = recorded("old_0.05.txt").rstrip("\n")
    assert output_of(bare).status is Status.COMPLETE
    assert output_of(bare[:-1]).status is Status.INCOMPLETE, "a decimal is missing"


@pytest.mark.parametrize("name", ["brief_0.15.06.txt", "metrics_0.15.06.txt", "old_0.05.txt"])
def test_a_run_that_was_cut_is_missed_beside_a_whole_one(name: str) -> None:
    lines = recorded(name).splitlines(keepends=True)
    alone = output_of(recorded(name)).rows()
    for kept in range(1, len(lines)):
        cut = "".join(lines[:kept])
        for place, both in enumerate((cut + recorded(name), recorded(name) + cut)):
            output = output_of(both)
            ended = "run completed" in cut and "bogo ops" not in cut  # perhaps no metrics were asked for
            assert output.status is (Status.UNKNOWN if ended else Status.INCOMPLETE), (kept, place)
            assert output.end.reason.startswith(f"run {place}: ")
            whole = [r for r in output.readings if r.params["run"] == 1 - place]
            assert replace(output, readings=whole).rows() == alone


def test_the_new_layout_summarises_and_skip_is_not_pass() -> None:
    output = output_of(recorded("summary_0.19.txt"))
    assert output.status is Status.INCOMPLETE
    assert "rdrand" in output.end.reason
    assert output.value("usr_time", stressor="cpu") == 239.8
    assert output.value("run_time") == 60.5
    assert output.facts["passed"] == {"cpu": 4, "vm-rw": 1}
    failed = recorded("summary_0.19.txt").replace("failed: 0", "failed: 1: cpu (1)")
    assert output_of(failed).status is Status.FAILED
    assert output_of(failed).facts["status"] == "failed"
    doubtful = recorded("summary_0.19.txt").replace("untrustworthy: 0", "untrustworthy: 2: cpu (2)")
    assert output_of(doubtful).status is Status.FAILED


def test_an_unsuccessful_run_fails_with_its_words() -> None:
    output = output_of(recorded("failed_0.15.06.txt"))
    assert output.status is Status.FAILED
    assert "corrupted bogo-ops counter" in output.end.reason
    assert len(output.facts["failures"]) == 3


def test_a_run_without_a_table_is_unknown() -> None:
    text = recorded("no_metrics_0.15.06.txt")
    assert output_of(text).status is Status.UNKNOWN
    assert output_of(text, rows=0).status is Status.COMPLETE
    assert output_of(text, rows=1).status is Status.INCOMPLETE


def test_behind_a_summary_no_table_can_be_missing() -> None:
    lines = recorded("summary_0.19.txt").replace("skipped: 2: rdrand (2)", "skipped: 0").splitlines(keepends=True)
    bare = [line for line in lines if "metrc:" not in line]
    assert output_of("".join(bare)).status is Status.COMPLETE
    assert output_of("".join(bare), rows=1).status is Status.INCOMPLETE
    for gone in ("dispatching", "untrustworthy"):
        assert output_of("".join(line for line in bare if gone not in line)).status is Status.UNKNOWN


def test_a_metric_between_the_rows_is_no_damaged_row() -> None:
    """0.13 and 0.14 print them behind the stressor's row, without a heading."""
    row = "stress-ng: info: [912] cache               7.25 nanoseconds per call (average per stressor)\n"
    output = output_of(recorded("old_0.05.txt") + row)
    assert output.status is Status.COMPLETE
    assert output.value("bogo_ops", stressor="cache") == 18221
    assert output.facts["metrics"] == [
        {"stressor": "cache", "value": 7.25, "description": "nanoseconds per call (average per stressor)"}
    ]
    assert output_of(recorded("old_0.05.txt") + row.replace(" (average per stressor)", "")).status is Status.INCOMPLETE


@pytest.mark.parametrize(
    ("expect", "status"),
    [
        ({"rows": 2, "stressors": "cpu,vm", "run_time_s": 1}, Status.COMPLETE),
        ({"rows": 3}, Status.INCOMPLETE),
        ({"stressors": "cpu,matrix"}, Status.INCOMPLETE),
        ({"run_time_s": 60}, Status.INCOMPLETE),
        ({"run_time_s": "long"}, Status.INCOMPLETE),
    ],
)
def test_expectations(expect: dict[str, Any], status: Status) -> None:
    assert output_of(recorded("brief_0.15.06.txt"), **expect).status is status


def test_a_row_of_a_stressor_that_was_started_may_not_be_missing() -> None:
    text = recorded("brief_0.15.06.txt")
    lines = [line for line in text.splitlines(keepends=True) if "] vm " not in line]
    output = output_of("".join(lines))
    assert output.status is Status.INCOMPLETE
    assert "no row for vm" in output.end.reason


@pytest.mark.parametrize(
    ("find", "put"),
    [("227.93", "nan"), ("227.93  ", ""), ("0.19      0.00", "0.19"), ("228 ", "-228"), ("228 ", "2 28")],
)
def test_a_damaged_row_is_no_row(find: str, put: str) -> None:
    assert find in recorded("brief_0.15.06.txt")
    output = output_of(recorded("brief_0.15.06.txt").replace(find, put, 1))
    assert output.status is Status.INCOMPLETE
    assert not [r for r in output.readings if r.params.get("stressor") == "cpu"]


def test_without_the_second_header_nobody_knows_which_rate_is_which() -> None:
    lines = [line for line in recorded("brief_0.15.06.txt").splitlines(keepends=True) if "(secs)" not in line]
    output = output_of("".join(lines))
    assert output.status is Status.INCOMPLETE
    assert output.value("bogo_ops", stressor="cpu") == 228
    assert not [r for r in output.readings if "per_s" in r.indicator]


def test_several_runs_are_told_apart_and_the_worst_counts() -> None:
    output = output_of(recorded("brief_0.15.06.txt") + recorded("failed_0.15.06.txt"))
    assert output.status is Status.FAILED
    assert output.value("bogo_ops", stressor="cpu", run=1) == 1162


@pytest.mark.parametrize("prefix", ["2026-01-01T00:00:00.123456789Z stdout F ", "[1,0]<stdout>:", "node1: "])
def test_prefixes(prefix: str) -> None:
    plain = recorded("metrics_0.15.06.txt")
    framed = "".join(prefix + line for line in plain.splitlines(keepends=True))
    assert output_of(framed).rows() == output_of(plain).rows()


def test_a_line_behind_another_programs_brackets_is_read() -> None:
    line = "logger [7] stress-ng: info:  [9] successful run completed in 5.00s\n"
    assert output_of("stress-ng: info:  [9] dispatching hogs: 1 cpu\n" + line).value("run_time") == 5.0


def test_crlf_and_colours_change_nothing() -> None:
    plain = recorded("brief_0.15.06.txt")
    assert output_of(plain.replace("\n", "\r\n")).rows() == output_of(plain).rows()
    assert output_of(plain.replace("stress-ng:", "\x1b[1mstress-ng:\x1b[0m")).rows() == output_of(plain).rows()


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_cut_output_never_gives_fewer_rows_as_complete(path: Path) -> None:
    data = path.read_bytes()
    whole = output_of(data).rows()
    for point in range(len(data)):
        try:
            output = output_of(data[:point])
        except OutputError:
            continue
        assert output.rows() <= whole, point
        if output.status is Status.COMPLETE:
            assert output.rows() == whole, point


@pytest.mark.parametrize("text", ["", "hello\n", "{}", "stressor\n", "bogo ops\n"])
def test_what_is_not_stress_ng_is_refused(text: str) -> None:
    with pytest.raises(OutputError):
        output_of(text)


LINES = st.sampled_from([line for path in RECORDED for line in path.read_text().splitlines(keepends=True)])


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES | st.text(max_size=10), max_size=20))
def test_any_mixture_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        output = output_of("".join(lines))
    except OutputError:
        return
    assert all(reading.value >= 0 for reading in output.readings)


def test_a_stressor_that_the_system_cannot_run_was_not_run() -> None:
    lines = [
        "stress-ng: info:  [10] dispatching hogs: 2 rdrand, 2 cpu",
        "stress-ng: info:  [11] stress-ng-rdrand: this stressor is not implemented on this system: aarch64 Linux 4.9",
        "stress-ng: info:  [12] stress-ng-rdrand: this stressor is not implemented on this system: aarch64 Linux 4.9",
        "stress-ng: info:  [10] successful run completed in 5.02s",
        "stress-ng: info:  [10] stressor      bogo ops real time  usr time  sys time   bogo ops/s   bogo ops/s",
        "stress-ng: info:  [10]                          (secs)    (secs)    (secs)   (real time) (usr+sys time)",
        "stress-ng: info:  [10] rdrand               0      0.00      0.00      0.00         0.00         0.00",
        "stress-ng: info:  [10] cpu               4000      5.00      9.98      0.01       800.00       400.40",
    ]
    output = output_of("\n".join(lines) + "\n")
    assert output.facts["skipped"] == {"rdrand": 2}
    assert output.status is Status.INCOMPLETE
    assert output.end.reason == "not implemented on this system: rdrand"
    assert (
        output_of("\n".join([lines[0].replace("2 rdrand, ", ""), *lines[3:6], lines[7]]) + "\n").status
        is Status.COMPLETE
    )
