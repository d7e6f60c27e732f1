"""perftest's reports: JSON, what was JSON in name only until 2022, and units that they don't say."""

from __future__ import annotations

import json
from functools import partial

import pytest
from tests.readers.infra_outputs import parts, values
from tests.readers.perftest_text import invalid, report

from plumbline.readers import Status, perftest

parse = partial(parts, perftest)


def test_report():
    readings, facts, status = parse(report() + "\n")
    assert status.status is Status.COMPLETE, status.reason
    assert values(readings, "bandwidth_average") == [pytest.approx(2229.27 * 2**20 * 8 / 1e9)]
    assert (facts["device"], facts["link_type"], facts["unit"], facts["rows"]) == ("mlx5_11", "Ethernet", "MiB/sec", 1)
    assert readings[0].params == {"test": "write_bw", "message_bytes": 65536}
    compact = json.dumps(json.loads(report()))
    assert parse(compact + "\n")[0] == readings
    assert parse("Starting\n" + report() + "\nDone\n")[0] == readings


def test_report_that_is_no_json():
    readings, facts, status = parse(invalid(report()))
    assert status.status is Status.COMPLETE, status.reason
    assert readings == parse(report() + "\n")[0]
    assert facts["device"] == "mlx5_11"


def test_unit_of_a_report_is_told_by_its_message_rate():
    gbits = report(average=18.70, rate=0.035668)
    assert values(parse(gbits + "\n")[0], "bandwidth_average") == [18.70]
    readings, _, status = parse(report(average=5.0, rate=0.035668) + "\n")
    assert status.status is Status.INCOMPLETE
    assert "unit" in status.reason
    assert values(readings, "bandwidth_average") == []


def test_report_with_braces_too_many():
    text = report().replace("}\n}", "}}}\n}")
    assert parse(text + "\n" + report() + "\n")[1]["rows"] == 2
    assert parse("{\n test_info: {\n },\n x: {\n }}},\n BW_average: 3.00,\n}\n")[2].status is Status.INCOMPLETE


def test_latency_report():
    data = json.loads(report(test="RDMA_Read_Latency_Test"))
    data["results"] = {
        "MsgSize": 2, "n_iterations": 1000, "t_min": 1.42, "t_max": 9.93, "t_typical": 1.47, "t_avg": 1.48,
        "t_stdev": 0.02, "percentile_99": 1.57, "percentile_99.9": 1.93,
    }  # fmt: skip
    readings, _, status = parse(json.dumps(data, indent=1) + "\n")
    assert status.status is Status.COMPLETE, status.reason
    assert values(readings, "latency_p999", test="read_lat") == [1.93]
    data["results"]["t_avg"] = "nan"
    assert parse(json.dumps(data, indent=1) + "\n")[2].status is Status.INCOMPLETE
