"""nccl-tests' and rccl-tests' reports in JSON and CSV, alone and beside the table of the same run."""

from __future__ import annotations

import json
from functools import partial

import pytest
from tests.readers import nccl_text as text
from tests.readers.infra_outputs import parts, values

from plumbline.readers import Status, nccl_tests

parse = partial(parts, nccl_tests)


def test_report():
    readings, facts, status = parse(text.report(ranks=16) + "\n")
    assert status.status is Status.COMPLETE, status.reason
    us, _, busbw = text.numbers(1 << 20, 16, "all_reduce", False)
    at = {"message_bytes": 1 << 20, "in_place": False, "operation": "all_reduce"}
    assert values(readings, "bus_bandwidth", **at) == [round(busbw, 6)]
    assert values(readings, "time", **at) == [round(us, 6)]
    assert (facts["nranks"], facts["nccl_version"], facts["rows"]) == (16, "2.29.7", 11)
    assert facts["environment"] == {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0"}
    assert "hunter2" not in repr(facts)
    assert facts["arguments"][:4] == ["-b", "1048576", "-e", "1073741824"]


def test_report_with_several_gpus_a_process_lists_one_of_them():
    config = json.loads(text.report(ranks=2))["config"] | {"ngpus": 8}
    assert parse(text.report(ranks=2, config=config))[1]["nranks"] == 16


def test_report_of_early_2026_misspells_its_average():
    data = json.loads(text.report())
    average = data.pop("average_bus_bandwidth")
    data["average_bus_bandwidith"] = {"bandwidith": average["bandwidth"], "okay": "unchecked"}
    readings, _, status = parse(json.dumps(data))
    assert status.status is Status.COMPLETE
    assert values(readings, "average_bus_bandwidth") == [average["bandwidth"]]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"end_time": None}, Status.INCOMPLETE),
        ({"out_of_bounds": {"count": 3, "okay": "false"}}, Status.FAILED),
        ({"average_bus_bandwidth": {"bandwidth": 1.0, "okay": "false"}}, Status.FAILED),
        ({"results": None}, Status.INCOMPLETE),
        ({"results": []}, Status.INCOMPLETE),
        ({"out_of_bounds": None}, Status.INCOMPLETE),
    ],
)
def test_reports_that_say_so(changes, status):
    assert parse(text.report(**changes))[2].status is status


def test_report_with_values_that_json_has_not():
    whole = text.report()
    damaged = whole.replace('"alg_bw":', '"alg_bw":inf,"x":', 1)
    readings, _, status = parse(damaged)
    assert status.status is Status.INCOMPLETE
    assert values(readings, "bus_bandwidth", message_bytes=1 << 20) == []
    unchecked = whole.replace('"nwrong":0.0', '"nwrong":null')
    readings, facts, status = parse(unchecked)
    assert status.status is Status.COMPLETE
    assert facts["wrong_NA_cells"] == 22


def test_report_beside_the_text_of_the_same_run_is_told_once():
    whole, exact = text.output("2026"), text.report()
    for both in (whole + exact + "\n", exact + "\n" + whole):
        readings, facts, status = parse(both)
        assert status.status is Status.COMPLETE, status.reason
        assert facts["rows"] == 11
        assert len(values(readings, "time")) == 22
    assert values(parse(whole + exact)[0], "time")[0] == round(text.numbers(1 << 20, 8, "all_reduce", False)[0], 6)
    other = text.report("all_gather")
    assert parse(whole + other + "\n")[1]["rows"] == 22


def test_pretty_printed_report_between_other_lines():
    pretty = json.dumps(json.loads(text.report()), indent=2)
    assert parse("Starting\n" + pretty + "\nDone # really\n")[2].status is Status.COMPLETE
    assert parse("".join(f"0: {line}\n" for line in pretty.splitlines()))[2].status is Status.COMPLETE


def test_rccl_records():
    records = [text.rccl_record(size, place) for size in text.sizes(1 << 20, 1 << 24) for place in (0, 1)]
    for whole in ("\n".join(records) + "\n", "[\n" + ",\n".join(records) + "\n]\n", "[" + ", ".join(records) + "]"):
        readings, facts, status = parse(whole)
        assert status.status is Status.UNKNOWN
        assert (facts["rows"], facts["nranks"], facts["operations"]) == (5, 16, ["all_reduce"])
        assert len(values(readings, "bus_bandwidth")) == 10
        assert parse(whole, rows=5)[2].status is Status.COMPLETE
        assert parse(whole, rows=6)[2].status is Status.INCOMPLETE
    assert parse(text.rccl_record(8, 0, '"3"') + "\n")[2].status is Status.FAILED
    assert parse(text.rccl_record(8, 0, "N/A") + "\n")[1]["wrong_NA_cells"] == 1
    assert parse("\n".join(records)[:-30])[2].status is Status.INCOMPLETE
    assert parse(text.output("2026", ranks=16, most=1 << 24) + "\n".join(records) + "\n")[1]["rows"] == 5


def test_rccl_csv():
    head = "numCycle, collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, "
    head += "time, algbw, busbw, #wrong\n"
    rows = "".join(
        f"0, AllReduce, 2, 16, 8, 1, {size}, float, sum, {place}, 10.5, 1.25, 2.34, 0\n"
        for size in (8, 16)
        for place in (0, 1)
    )
    readings, facts, status = parse(head + rows)
    assert status.status is Status.UNKNOWN
    assert (facts["rows"], facts["nranks"]) == (2, 16)
    assert values(readings, "bus_bandwidth") == [2.34] * 4
    assert parse(head + rows[:-8])[2].status is Status.INCOMPLETE
