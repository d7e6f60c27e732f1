"""perftest: text and JSON of all versions, both sides in one file, damage."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import parts, values
from tests.readers.perftest_text import LINE, banner, bw_header, bw_row, invalid, lat_header, lat_row, one, report

from plumbline.errors import ConfigError, OutputError
from plumbline.readers import Status, _perftest_scan, perftest, reader

parse = partial(parts, perftest)


def test_bandwidth_in_mebibytes_whatever_it_is_called():
    for unit in ("MB/sec", "MiB/sec"):
        readings, facts, status = parse(one(unit=unit))
        assert status.status is Status.COMPLETE, status.reason
        assert values(readings, "bandwidth_average") == [pytest.approx(24056.72 * 2**20 * 8 / 1e9)]
        assert facts["unit"] == unit
        assert (facts["bw_average_at_max_bytes"], facts["bw_peak_at_max_bytes"]) == (24056.72, 24057.22)
        assert values(readings, "message_rate") == [pytest.approx(384907.52, abs=1)]
    assert readings[0].params == {"test": "write_bw", "message_bytes": 65536}
    assert (facts["device"], facts["link_type"], facts["qps"], facts["mtu"]) == ("mlx5_0", "IB", 1, 4096)


def test_gigabits_are_taken_as_printed():
    text = banner() + bw_header("Gb/sec") + bw_row(65536, 394.61, unit=125e6) + LINE
    readings, _, status = parse(text)
    assert status.status is Status.COMPLETE
    assert values(readings, "bandwidth_average") == [394.61]
    assert values(readings, "bandwidth_peak") == [395.11]


def test_tiny_bandwidths_have_six_decimals():
    text = banner() + bw_header("Gb/sec")
    text += " 2          5000           0.142947            0.012281            0.767588\n"
    assert values(parse(text + LINE)[0], "bandwidth_average") == [0.012281]


def test_duration_mode_measures_no_peak():
    text = banner() + bw_header("Gb/sec") + bw_row(65536, 98.02, peak=0.0, iterations=560845, unit=125e6) + LINE
    readings, facts, status = parse(text)
    assert status.status is Status.COMPLETE
    assert values(readings, "bandwidth_peak") == []
    assert values(readings, "bandwidth_average") == [98.02]
    assert "bw_peak_at_max_bytes" not in facts


def test_server_and_client_in_one_file_are_one_result():
    client = banner(local="0xd06", remote="0xd07") + bw_header("MB/sec") + bw_row(8388608, 24056.72)
    waiting = "*" * 36 + "\n* Waiting for client to connect... *\n" + "*" * 36 + "\n"
    server = waiting + banner(local="0xd07", remote="0xd06") + bw_header("MB/sec") + bw_row(8388608, 24056.72)
    readings, facts, status = parse(client + server + LINE + LINE)
    assert status.status is Status.COMPLETE, status.reason
    assert (facts["tables"], facts["rows"]) == (2, 2)
    assert len(values(readings, "bandwidth_average")) == 1
    other = server.replace("24056.72", "11111.11")
    readings, _, status = parse(client + other + LINE)
    assert [r.params["table"] for r in readings if r.indicator == "bandwidth_average"] == [0, 1]
    assert parse(client + waiting + banner())[2].status is Status.INCOMPLETE


def test_a_server_that_waits_for_rdma_cm_begins_no_second_table():
    waits = " Waiting for client rdma_cm QP to connect\n Please run the same command with the IB/RoCE interface IP\n"
    text = "*" * 36 + "\n* Waiting for client to connect... *\n" + "*" * 36 + "\n"
    text += banner("Send BW Test").replace(" local", f"{waits}{LINE} local", 1)
    readings, facts, status = parse(text + bw_header("Gb/sec") + bw_row(65536, 6.19, peak=0.0) + LINE)
    assert (status.status, facts["tables"], facts["tests"]) == (Status.COMPLETE, 1, ["send_bw"])
    assert values(readings, "bandwidth_average") == [6.19]


def test_server_and_client_that_print_at_the_same_time():
    """Their banners and headers interleave; after the sweep the server prints its last row."""
    client, server = (
        banner(local="0x1", remote="0x2").splitlines(True),
        banner(local="0x2", remote="0x1").splitlines(True),
    )
    both = "".join(line for pair in zip(client, server, strict=True) for line in pair)
    rows = [bw_row(2 << i, 10.0 + i) for i in range(23)]
    waiting = "*" * 36 + "\n* Waiting for client to connect... *\n" + "*" * 36 + "\n"
    text = waiting + both + bw_header() * 2 + "".join(rows) + LINE + rows[-1] + LINE
    readings, facts, status = parse(text, test="write_bw", device="mlx5_0", rows=23, qps=1)
    assert status.status is Status.COMPLETE, status.reason
    assert (facts["tables"], facts["rows"]) == (2, 24)
    assert len(values(readings, "bandwidth_average")) == 23
    assert "table" not in readings[0].params
    assert parse(text[: -len(rows[-1]) - len(LINE)])[2].status is Status.INCOMPLETE


def test_all_sizes_and_where_they_end():
    sizes = [2 << i for i in range(23)]
    text = banner() + bw_header() + "".join(bw_row(size, 10.0 + i) for i, size in enumerate(sizes))
    readings, facts, status = parse(text + LINE, rows=23, min_bytes=2, max_bytes="8M", test="write_bw", qps=1)
    assert status.status is Status.COMPLETE, status.reason
    assert (facts["rows"], facts["min_bytes"], facts["max_bytes"], facts["best_bw_average"]) == (23, 2, 8 << 20, 32.0)
    shorter = banner() + bw_header() + "".join(bw_row(size, 10.0) for size in sizes[:20]) + LINE
    assert "ends at 1048576 instead of 8388608" in parse(shorter)[2].reason
    assert values(readings, "bandwidth_average", message_bytes=8 << 20)


@pytest.mark.parametrize(
    ("title", "test", "both"),
    [
        ("RDMA_Read BW Test", "read_bw", False),
        ("Send Bidirectional BW Test", "send_bw", True),
        ("RDMA_Write Post List BW Test", "write_bw", False),
        ("RDMA_Write Bidirectional Post List BW Test", "write_bw", True),
        ("Atomic FETCH_AND_ADD BW Test", "atomic_bw", False),
        ("Send BW Multicast Test", "send_bw", False),
    ],
)
def test_titles(title, test, both):
    readings, facts, status = parse(one(title=title))
    assert status.status is Status.COMPLETE
    assert facts["tests"] == [test]
    assert ("bidirectional" in readings[0].params) == both
    assert parse(one(title=title), bidirectional=1)[2].status is (Status.COMPLETE if both else Status.INCOMPLETE)


def test_latency():
    text = banner("RDMA_Write Latency Test") + lat_header() + lat_row(2) + lat_row(4) + LINE
    assert parse(text)[2].status is Status.INCOMPLETE  # 2, 4 is the beginning of a sweep of all sizes
    single = banner("RDMA_Read Latency Test") + lat_header() + lat_row(8) + LINE
    readings, facts, status = parse(single, test="read_lat")
    assert status.status is Status.COMPLETE, status.reason
    assert values(readings, "latency_typical") == [1.47]
    assert values(readings, "latency_p99") == [1.57]
    assert values(readings, "latency_p999") == [1.93]
    assert facts["t_typical_at_min_bytes"] == 1.47
    old = banner("Send Latency Test") + " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n"
    readings, _, status = parse(old + " 2       1000          1.42           1.93         1.47   \n" + LINE)
    assert (values(readings, "latency_max"), status.status) == ([1.93], Status.COMPLETE)
    duration = banner("Send Latency Test") + " #bytes        #iterations       t_avg[usec]    tps average\n"
    readings, _, _ = parse(duration + " 2             1000            1.47           680272.11\n" + LINE)
    assert values(readings, "transactions") == [680272.11]


def test_glued_cells_are_told_apart_by_their_decimals():
    glued = banner("Send Latency Test") + lat_header()
    glued += (
        " 2       1000          453.06         37330.73     692.41       928.05           2465.901216.65   37330.73\n"
    )
    readings, _, status = parse(glued + LINE)
    assert status.status is Status.COMPLETE, status.reason
    assert values(readings, "latency_stdev") == [2465.9]
    assert values(readings, "latency_p99") == [1216.65]


def test_ports_service_levels_and_cpu():
    head = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]   BW Port1[MB/sec]"
    head += "   MsgRate Port1[Mpps]   BW Port2[MB/sec]   MsgRate Port2[Mpps]\n"
    row = " 65536      5000         9000.50            9000.25\t\t   0.144004        4500.12            0.072002"
    readings, _, status = parse(banner() + head + row + "              4500.13            0.072002\n" + LINE)
    assert status.status is Status.COMPLETE
    assert len(values(readings, "bandwidth_port2")) == 1
    qos = " #bytes    #sl      #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    qos += " 65536      3           5000           95.10              95.00                  0.181198\n"
    assert parse(banner() + qos + LINE)[0][0].params["service_level"] == 3
    cpu = banner() + bw_header(cpu=True) + bw_row(65536, 9000.0, cpu=12.5) + LINE
    assert values(parse(cpu)[0], "cpu_utilization") == [12.5]


def test_warnings_between_header_and_row_and_complaints_beside_a_whole_table():
    text = banner() + bw_header() + "Conflicting CPU frequency values detected: 1500.000000 != 3300.016000.\n"
    _, facts, status = parse(text + bw_row(65536, 9000.0) + LINE)
    assert status.status is Status.COMPLETE
    assert facts["warnings"][0].startswith("Conflicting")
    assert parse("Unable to open file descriptor vendor_id\n" + one())[2].status is Status.COMPLETE


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (banner() + bw_header(), Status.INCOMPLETE),
        (banner(), Status.NOT_STARTED),
        (banner() + bw_header() + bw_row(65536, 9000.0), Status.INCOMPLETE),
        (banner() + " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n", Status.FAILED),
        (banner() + "Couldn't connect to 10.0.0.1:18515\n", Status.FAILED),
        (one() + "Error: BW result is below bw limit\n", Status.FAILED),
        (one() + " Completion with error at client\n", Status.FAILED),
        (banner() + bw_header("GB/sec") + bw_row(65536, 9000.0) + LINE, Status.INCOMPLETE),
        (banner() + bw_header() + " 65536      5000           12.3\n" + LINE, Status.INCOMPLETE),
        (banner() + bw_header() + " 65536      5000       nan   inf   0.1\n" + LINE, Status.INCOMPLETE),
        (banner() + bw_header() + " 65536      5000       -1.00   -1.00   0.100000\n" + LINE, Status.INCOMPLETE),
        (banner() + bw_header() + " 65536      5000       9000.00   9000.00   0.144\n" + LINE, Status.INCOMPLETE),
    ],
)
def test_what_is_not_whole(text, status):
    readings, _, found = parse(text)
    assert found.status is status, found.reason
    assert found.reason
    assert len(values(readings, "bandwidth_average")) <= 1


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: ", "2026-01-01T00:00:00.000000000Z stdout F "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_prefixes_and_line_ends(prefix, end):
    text = "".join(prefix + line + end for line in one().splitlines())
    assert parse(text)[0] == parse(one())[0]
    assert parse(text)[2].status is Status.COMPLETE


# -- damage -----------------------------------------------------------------------------------------------------------

SWEEP = banner() + bw_header() + "".join(bw_row(2 << i, 10.0 + i) for i in range(23)) + LINE
WHOLE = {
    "one": one() + LINE,
    "sweep": SWEEP,
    "latency": banner("RDMA_Read Latency Test") + lat_header() + lat_row(8) + LINE,
    "report": report() + "\n",
    "invalid": invalid(report()),
}


@pytest.mark.parametrize("name", WHOLE)
def test_cut_anywhere(name):
    whole = WHOLE[name].encode()
    expected, facts, _ = parse(whole)
    known = {(r.indicator, json.dumps(dict(r.params), sort_keys=True), r.value) for r in expected}
    for cut in range(len(whole)):
        try:
            readings, found, status = parse(whole[:cut])
        except OutputError:
            continue
        assert {(r.indicator, json.dumps(dict(r.params), sort_keys=True), r.value) for r in readings} <= known, cut
        if found["rows"] < facts["rows"]:
            assert status.status is not Status.COMPLETE, cut


@pytest.mark.parametrize("junk", ["", "hello\n", '{"results": []}\n', "\x00\xff" * 50, "1 2 3\n" * 100])
def test_other_formats_are_refused(junk):
    with pytest.raises(OutputError):
        parse(junk.encode("utf-8", "surrogateescape"))


def test_tables_of_the_intel_mpi_benchmarks_are_refused():
    imb = (
        "#---------------------------------------------------\n# Benchmarking Allreduce\n# #processes = 4\n"
        "#---------------------------------------------------\n"
        "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
        "            0         1000         0.04         0.05         0.04\n"
        "            4         1000         1.31         2.12         1.70\n"
    )
    assert reader("perftest").sniff(imb) == 0.0
    with pytest.raises(OutputError):
        parse(imb.encode())


@pytest.mark.parametrize(
    "said",
    [
        "Couldn't connect to 192.0.2.7:18515\nUnable to open file descriptor for socket connection\n",
        "IB device mlx5_7 not found\n Unable to find the Infiniband/RoCE device\n",
        " Port number 2 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n",
        "Did not detect devices \nIf device exists, check if driver is up\n",
    ],
)
def test_no_device_or_server(said):
    readings, facts, status = parse(said)
    assert not readings
    assert status.status is Status.FAILED
    assert said.splitlines()[0].strip() in status.reason
    assert facts["errors"][0] == said.splitlines()[0].strip()
    assert reader("perftest").sniff(said) == 0.3


def test_expectations_are_checked():
    for key, value in {"test": "read_bw", "rows": 2, "max_bytes": "8M", "device": "mlx5_9", "link_type": "Ethernet",
                       "qps": 4, "bidirectional": "yes"}.items():  # fmt: skip
        status = parse(one(), **{key: value})[2]
        assert status.status is Status.INCOMPLETE, key
        assert status.reason
    with pytest.raises(ConfigError):
        parse(one(), rows="many")


PIECES = st.sampled_from(
    [*SWEEP.splitlines(True), *report().splitlines(True), *invalid(report()).splitlines(True),
     *WHOLE["latency"].splitlines(True), "* Waiting for client to connect... *\n", "{", "}", "\t", "\r", "0.0"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=10)), max_size=40))
def test_any_mixture_is_read_or_refused(pieces):
    try:
        readings, _, _ = parse("".join(pieces).encode("utf-8", "surrogatepass"))
    except OutputError:
        return
    assert all(0 <= r.value < 1e25 for r in readings)


ROWS = st.sampled_from(
    [bw_row(65536, 24056.72), bw_row(65536, 24050.5, peak=0), bw_row(2, 11.25), "  7: " + bw_row(8, 40.5), "\n",
     " 65536      5000\n", bw_row(65536, 1.5)[:-4] + "\n", bw_row(16, 80.5).replace("  ", " \t"), "12, 2.35\n", LINE,
     bw_header(), "Failed to modify QP\n"]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, max_size=60), st.integers(0, 9))
def test_rows_that_are_taken_many_at_once_are_read_as_one_by_one(monkeypatch, lines, cut):
    whole = banner() + bw_header() + "".join(lines)
    whole = whole[: len(whole) - cut]
    monkeypatch.setattr(_perftest_scan, "_HELD_ROWS", 3)
    at_once = parse(whole)
    monkeypatch.setattr(_perftest_scan.Table, "whole_rows", lambda self, lines: [])
    assert parse(whole) == at_once
    monkeypatch.undo()


def test_a_long_table_keeps_every_row():
    text = banner() + bw_header("Gb/sec") + "".join(bw_row(65536, 390 + i / 100) for i in range(6000)) + LINE
    readings, facts, status = parse(text)
    assert (facts["rows"], status.status) == (6000, Status.COMPLETE)
    averages = sorted(values(readings, "bandwidth_average"))
    assert averages == [pytest.approx(390 + i / 100, abs=0.006) for i in range(6000)]
    assert len({r.params.get("repeat", 0) for r in readings if r.indicator == "iterations"}) == 6000


@pytest.mark.parametrize("kept", range(1, 4))
def test_a_run_cut_in_its_table_before_a_whole_one_is_missed(kept):
    """The line of dashes that the second banner begins with doesn't close the first table."""
    whole = banner() + bw_header() + "".join(bw_row(65536 << i, 10.0 + i) for i in range(4)) + LINE
    rows = whole.splitlines(keepends=True)
    first = rows.index(bw_header()) + 1
    cut = "".join(rows[: first + kept])
    for text in (cut + whole, whole + cut, whole + cut + whole):
        _, _, status = parse(text)
        assert status.status is Status.INCOMPLETE and "stops before the line that closes it" in status.reason
    assert parse(whole + whole)[2].status is Status.COMPLETE


def test_the_other_side_s_whole_table_makes_up_for_a_closing_line():
    row = bw_header() + bw_row(65536, 24056.72)
    client = banner(local="0x01", remote="0x02") + row
    assert parse(client + banner(local="0x02", remote="0x01") + row + LINE)[2].status is Status.COMPLETE
    assert parse(client + banner(local="0x03", remote="0x04") + row + LINE)[2].status is Status.INCOMPLETE
