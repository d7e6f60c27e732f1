"""fio's formats: real recordings of 3.33, older layouts in the words of their printf formats, and expectations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.readers.fio_outputs import OLD_TEXT, RECORDED, Output, document, recorded, text_of

from plumbline.readers import detect, fio
from plumbline.readers.reading import Status
from plumbline.readers.source import Source
from plumbline.units import UNITS

# -- what recordings hold


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_recorded_output_is_found_by_itself_and_in_known_units(path: Path) -> None:
    if path.name != "missing_directory.txt":
        assert detect(path).NAME == "fio"
    output = Output(path.read_bytes())
    for reading in output.readings:
        assert fio.INDICATORS[reading.indicator][0] == reading.unit
        assert reading.unit in UNITS
    assert output.facts.keys() <= fio.FACTS.keys()
    params = [(r.indicator, *sorted(r.params.items())) for r in output.readings]
    assert len(params) == len(set(params)), "two readings have the same coordinates"


def test_json_plus_keeps_full_precision_and_its_histogram() -> None:
    raw = json.loads(recorded("seq_write_json_plus.json"))["jobs"][0]["write"]
    output = Output(recorded("seq_write_json_plus.json"))
    assert output.end.status is Status.COMPLETE
    assert output.value("bandwidth") == raw["bw_bytes"] / 1e6
    assert output.value("iops") == raw["iops"]
    assert output.value("completion_latency", percentile=99) == raw["clat_ns"]["percentile"]["99.000000"] / 1000
    assert output.value("completion_latency", percentile=99.9) == raw["clat_ns"]["percentile"]["99.900000"] / 1000
    assert output.value("total_bytes") == raw["io_bytes"]
    assert output.value("runtime") == raw["runtime"]
    runs, _ = fio.examine(Source.of_bytes(recorded("seq_write_json_plus.json")), {})
    bins = runs[0].jobs[0].transfer("write").latency["completion"].bins  # type: ignore[union-attr]
    assert sum(bins.values()) == raw["total_ios"]


def test_client_server_json_counts_the_sum_of_all_clients_once() -> None:
    output = Output(recorded("client_server.json"))
    entries = json.loads(recorded("client_server.json"))["client_stats"]
    assert entries[-1]["jobname"] == "All clients"
    assert output.facts["n_jobs"] == 4
    assert output.facts["n_job_entries"] == 5
    assert output.facts["has_all_clients_entry"] is True
    assert output.facts["read_sum_bw_KiBps"] == sum(e["read"]["bw"] for e in entries[:-1])
    assert output.facts["read_all_clients_bw_KiBps"] == entries[-1]["read"]["bw"]
    assert not [r for r in output.readings if r.params["job"] == "All clients"]
    assert {r.params["hostname"] for r in output.readings} == {"127.0.0.1"}
    assert {r.params["instance"] for r in output.readings} == {0, 1, 2, 3}


def test_a_client_that_did_not_report_is_missed() -> None:
    document = json.loads(recorded("client_server.json"))
    document["client_stats"] = document["client_stats"][:3]
    assert Output(text_of(document)).end.status is Status.INCOMPLETE
    banner = "hostname=h{}, be=0, 64-bit, os=Linux, arch=x86-64, fio=fio-3.33, flags=1\n"
    document["client_stats"] = document["client_stats"][:2]
    assert Output(banner.format(1) + text_of(document)).end.status is Status.COMPLETE
    assert Output(banner.format(1) + banner.format(2) + text_of(document)).end.status is Status.INCOMPLETE


def test_client_server_text_knows_the_hosts() -> None:
    output = Output(recorded("client_server.txt"))
    assert output.end.status is Status.COMPLETE
    assert output.facts["n_jobs"] == 4
    assert output.value("iops", hostname="node2", instance=1, direction="write") == 2874
    assert output.facts["all_clients"]["read_iops"] == 11000
    one_gone = recorded("client_server.txt").decode().replace("<node2> \n", "").encode()
    assert Output(one_gone[: one_gone.rindex(b"reader: (groupid")]).end.status is not Status.COMPLETE


@pytest.mark.parametrize(("name", "iops"), [("status_interval.json", None), ("status_interval.txt", 87000)])
def test_interim_reports_are_not_results_again(name: str, iops: float | None) -> None:
    output = Output(recorded(name))
    assert output.end.status is Status.COMPLETE
    assert output.facts["n_jobs"] == 1
    assert output.value("runtime") == 2001
    if iops is not None:
        assert output.value("iops") == iops


def test_a_second_format_of_the_same_report_is_not_a_second_result() -> None:
    output = Output(recorded("all_formats.txt"))
    assert output.facts["container"] == "jobs"
    assert output.facts["n_jobs"] == 3
    assert output.end.status is Status.COMPLETE


def test_a_report_that_was_captured_twice_counts_once() -> None:
    once = recorded("two_groups.json")
    assert Output(once + once).rows() == Output(once).rows()
    assert Output(once + once).facts["json_docs"] == 2
    text = recorded("two_groups.txt")
    assert Output(text + text).rows() == Output(text).rows()


def test_repetitions_of_equal_runtime_are_all_read() -> None:
    text = [OLD_TEXT.replace("iops=33415", f"iops={iops}") for iops in (33415, 33999, 33111)]
    output = Output("".join(text))
    assert [r.value for r in output.readings if r.indicator == "iops" and r.params["direction"] == "read"] == [
        33415, 33999, 33111,
    ]  # fmt: skip
    assert output.facts["n_jobs"] == 3
    assert output.end.status is Status.COMPLETE
    assert Output("".join([*text, text[1]])).rows() == output.rows()


def test_repetitions_in_two_formats_are_told_once_each() -> None:
    both = recorded("all_formats.txt").decode()
    other = both.replace("IOPS=", "IOPS=1").replace('"iops" : ', '"iops" : 1')
    assert Output(both + other).facts["n_jobs"] == 2 * Output(both).facts["n_jobs"]


def test_a_run_that_only_began_after_a_whole_one_is_missed() -> None:
    begun = "".join(OLD_TEXT.splitlines(keepends=True)[:1])
    for more in (begun, begun + "fio-2.1.11\nStarting 1 process\n"):
        output = Output(OLD_TEXT + more)
        assert output.rows() == Output(OLD_TEXT).rows()
        assert output.end.status is Status.INCOMPLETE
        assert output.end.reason == "a run that began after the others reported nothing"


@pytest.mark.parametrize("name", ["two_groups.txt", "client_server.txt", "status_interval.txt"])
@pytest.mark.parametrize("slower", [False, True])
def test_a_cut_run_beside_a_whole_one_is_missed(name: str, slower: bool) -> None:
    whole = recorded(name).decode()
    lines = whole.splitlines(keepends=True)
    rows = Output(whole).rows(("instance", "run"))
    other = [re.sub(r"pid=(\d)", r"pid=9\1", line).replace("IOPS=", "IOPS=1" if slower else "IOPS=") for line in lines]
    for kept in range(1, len(lines)):
        cut = "".join(other[:kept])
        if "err= 0" in cut and Output(cut).end.status is Status.COMPLETE:
            continue  # what follows is no part of the report
        for text in (whole + cut, cut + whole):
            found = Output(text)
            assert found.end.status is Status.INCOMPLETE, (kept, text.startswith(whole))
            assert rows <= found.rows(("instance", "run"))


def test_a_run_that_only_began_is_missed_beside_one_in_two_formats() -> None:
    both = recorded("all_formats.txt").decode()
    begun = both[: both.index("3;fio")]
    for text in (begun + both, both + begun):
        found = Output(text)
        assert found.end.status is Status.INCOMPLETE
        assert found.end.reason.startswith("a run that began ")
        assert found.end.reason.endswith(" reported nothing")


def test_two_different_runs_in_one_file_are_both_read() -> None:
    output = Output(recorded("two_groups.txt") + recorded("seq_write_json_plus.json") + recorded("sigterm.txt"))
    assert {r.params["run"] for r in output.readings} == {0, 1, 2}
    assert output.facts["n_jobs"] == 5
    assert output.end.status is Status.ABORTED, "the worst of the runs"


def test_text_units_are_the_printed_ones() -> None:
    output = Output(recorded("two_groups.txt"))
    assert output.value("bandwidth", job="writer") == 357 * (1 << 20) / 1e6
    assert output.value("iops", job="writer") == 91300
    assert output.value("submission_latency_mean", job="writer") == pytest.approx(4.41569)
    assert output.value("completion_latency", job="reader", instance=0, percentile=99) == 334
    assert output.value("total_bytes", job="writer") == 357 << 20


def test_a_whole_last_line_counts_although_a_torn_one_follows_it() -> None:
    text = recorded("two_groups.txt")
    ends = text.index(b"99.99th=[")
    torn = text[: text.index(b"\n", ends) + len(b"\n   bw (  Ki")]
    params = {"job": "reader", "direction": "read", "percentile": 99.99}
    assert Output(torn).value("completion_latency", **params) == 453.0
    assert Output(torn).end.status is Status.INCOMPLETE
    unended = [row for row in Output(text[: text.index(b"]", ends) + 1]).rows() if "99.99" in str(row)]
    assert not unended  # its own end is missing: more may have followed


def test_signal_and_short_runtime() -> None:
    for name in ("sigterm.json", "sigterm.txt"):
        output = Output(recorded(name))
        assert output.end.status is Status.ABORTED
        assert "signal 15" in output.end.reason
    quiet = recorded("sigterm.json").split(b"\n", 2)[2]
    assert b"signal" not in quiet
    output = Output(quiet)
    assert output.end.status is Status.INCOMPLETE, "error is 0, only the runtime tells"
    assert "1.021 s of the 30 s" in output.end.reason
    assert output.facts["asked_runtime_s"] == 30


@pytest.mark.parametrize("name", ["no_space.json", "no_space.txt"])
def test_job_errors_fail_with_their_meaning(name: str) -> None:
    output = Output(recorded(name))
    assert output.end.status is Status.FAILED
    assert "error 28 (No space left on device)" in output.facts["errors"][0]


def test_messages_without_any_result_are_a_failure() -> None:
    output = Output(recorded("missing_directory.txt"))
    assert output.end.status is Status.FAILED
    assert output.end.reason.startswith("/tmp/fiodata/missing is not a directory")
    assert output.facts["json_docs"] == 0
    assert Output("{}\n").end.status is Status.FAILED
    assert Output("fio: engine libaio not loadable\nfio: failed to load engine\n").end.status is Status.FAILED


@pytest.mark.parametrize(
    "line",
    [
        "verify: bad header numberio 12, wanted 3 at file /f offset 4096, length 512 (requested block: offset=4096)",
        "crc32c: verify failed at file /data/f offset 8192, length 4096",
        "verify: bad magic header 0, wanted acca at file /data/f offset 0, length 0",
    ],
)
def test_a_block_that_is_not_as_written_fails_even_without_the_report(line: str) -> None:
    start = "job: (g=0): rw=randrw, bs=(R) 64.0KiB-64.0KiB, ioengine=libaio, iodepth=16\nfio-3.40\nStarting 2 threads\n"
    output = Output(f"{start}{line}\n")
    assert output.facts["errors"] == [line]
    assert output.end.status is Status.FAILED
    assert Output(f"{start}  verify=crc32c in the job file\n").facts["errors"] == []


def test_lat_percentiles_and_grouping() -> None:
    output = Output(recorded("randrw_grouped_lat_percentiles.json"))
    assert output.facts["n_jobs"] == 1
    assert output.value("total_latency", direction="read", percentile=99) > 0
    both = Output(recorded("unified_both.json"))
    assert both.value("total_bytes", direction="mixed") == pytest.approx(
        both.value("total_bytes", direction="read") + both.value("total_bytes", direction="write")
    )


@pytest.mark.parametrize("name", ["terse_v3.txt", "terse_v5.txt"])
def test_terse_is_whole_only_when_the_number_of_jobs_is_known(name: str) -> None:
    output = Output(recorded(name))
    assert output.end.status is Status.UNKNOWN
    assert output.facts["n_jobs"] == 3
    assert Output(recorded(name), jobs=3).end.status is Status.COMPLETE
    assert Output(recorded(name), jobs=4).end.status is Status.INCOMPLETE
    cut = Output(recorded(name)[:-200], jobs=3)
    assert cut.end.status is Status.INCOMPLETE


# -- other versions, in the words of their printf formats


def test_text_of_fio_2() -> None:
    output = Output(OLD_TEXT)
    assert output.end.status is Status.COMPLETE
    assert output.value("bandwidth", direction="read") == 133662 * 1024 / 1e6
    assert output.value("total_bytes", direction="read") == 784996 * 1024
    assert output.value("iops", direction="write") == 11200
    assert output.value("bandwidth", direction="write") == 44.5 * (1 << 20) / 1e6
    assert output.value("completion_latency_mean", direction="read") == 2500
    assert output.value("completion_latency", percentile=99.99) == 8000
    assert output.value("submission_latency_mean", direction="read") == pytest.approx(3.1)
    assert output.facts["options"] == {"rw": "randrw", "bs": "4K", "iodepth": "64", "ioengine": "libaio"}
    assert Output(
        OLD_TEXT.replace("err= 0", "err= 5 (file:io_u.c:1, func=f, error=Input/output error)")
    ).end.reason == ("old: error 5 (Input/output error)")
    without_write_status = OLD_TEXT[: OLD_TEXT.rindex("  WRITE: io")]
    assert Output(without_write_status).end.status is Status.INCOMPLETE


def old_json(**read: Any) -> dict[str, Any]:
    data = {
        "io_bytes": 361984, "bw": 68118, "iops": 133, "runtime": 5314,
        "clat": {"max": 900000, "mean": 477734.84, "stddev": 1.0, "percentile": {"99.000000": 823296, "0.00": 0}},
        "lat": {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0},
        **read,
    }  # fmt: skip
    return {"fio version": "fio-2.1.4", "jobs": [{"jobname": "j", "error": 0, "read": data}]}


def test_json_of_fio_2_counts_kib_and_microseconds() -> None:
    output = Output(text_of(old_json()))
    assert output.value("total_bytes") == 361984 * 1024
    assert output.value("bandwidth") == 69.753785, "from bytes and runtime, which give the printed 68118 KiB/s"
    assert Output(text_of(old_json(io_bytes=3))).value("bandwidth") == 68118 * 1024 / 1e6
    assert output.value("completion_latency_mean") == 477734.84
    assert output.value("completion_latency", percentile=99) == 823296
    assert not [r for r in output.readings if r.indicator == "total_latency_mean"], "no sample was taken"
    assert output.facts["io_bytes_unit"] == "KiB"
    assert "read_total_ios" not in output.facts
    floppy = old_json(io_bytes=1474560, io_kbytes=1440, bw=10, iops=2.657297, runtime=135476)
    assert Output(text_of(floppy)).value("bandwidth") == pytest.approx(0.010884)


def test_percentiles_of_total_latency_that_old_versions_printed_under_clat() -> None:
    doc = document()
    doc["jobs"][0]["job options"]["lat_percentiles"] = "1"
    output = Output(text_of(doc))
    assert output.value("total_latency", percentile=99) == 8.0
    assert output.value("completion_latency_mean") == 4.0


# -- what the jobs were to do


def with_options(runtime_ms: float = 10000, io_bytes: int = 1 << 30, **options: str) -> str:
    doc = document(runtime=runtime_ms, io_bytes=io_bytes)
    doc["jobs"][0]["job options"] |= options
    doc["jobs"][0]["job_runtime"] = runtime_ms
    return text_of(doc)


@pytest.mark.parametrize(
    ("options", "runtime_ms", "status"),
    [
        ({"runtime": "10"}, 10001, Status.COMPLETE),
        ({"runtime": "10s", "time_based": "1"}, 9990, Status.COMPLETE),
        ({"runtime": "30", "time_based": "1"}, 10000, Status.INCOMPLETE),
        ({"runtime": "30", "time_based": ""}, 10000, Status.INCOMPLETE),
        ({"runtime": "1m", "time_based": "0", "size": "1G"}, 10000, Status.COMPLETE),
        ({"runtime": "30", "size": "4G"}, 10000, Status.INCOMPLETE),
        ({"runtime": "30", "size": "64M"}, 10000, Status.INCOMPLETE),
        ({"runtime": "30", "size": "64M", "loops": "16"}, 10000, Status.COMPLETE),
        ({"runtime": "30", "size": "100%"}, 10000, Status.COMPLETE),
        ({"runtime": "30", "size": "4G", "exitall": "1"}, 10000, Status.COMPLETE),
        ({"rw": "write"}, 10000, Status.INCOMPLETE),
        ({"rw": "randrw"}, 10000, Status.INCOMPLETE),
        ({"rw": "randrw", "rwmixread": "100"}, 10000, Status.COMPLETE),
    ],
)
def test_a_run_that_ended_early_is_not_complete(options: dict[str, str], runtime_ms: float, status: Status) -> None:
    output = Output(with_options(runtime_ms, **options))
    assert output.end.status is status, output.end.reason


def test_a_job_without_io_is_not_complete() -> None:
    doc = document(io_bytes=0, io_kbytes=0, bw_bytes=0, bw=0, iops=0.0, runtime=0, total_ios=0)
    output = Output(text_of(doc))
    assert output.end.status is Status.INCOMPLETE
    assert output.readings == []


@pytest.mark.parametrize(
    ("expect", "status"),
    [
        ({"jobs": 1, "bs": "1024k", "rw": "read", "direct": 0, "iodepth": 1}, Status.COMPLETE),
        ({"runtime_s": 10, "bs": "1M"}, Status.FAILED),
        ({"bs": "4k"}, Status.FAILED),
        ({"direct": 1}, Status.FAILED),
        ({"rw": "randread"}, Status.FAILED),
        ({"jobs": 2}, Status.INCOMPLETE),
        ({"ioengine": "libaio"}, Status.UNKNOWN),
        ({"errors": 0}, Status.COMPLETE),
    ],
)
def test_expectations(expect: dict[str, Any], status: Status) -> None:
    assert Output(text_of(document()), **expect).end.status is status


def test_expectations_that_text_cannot_meet_are_unknown() -> None:
    text = recorded("two_groups.txt")
    assert Output(text, direct=1).end.status is Status.UNKNOWN
    assert Output(text, runtime_s=1).end.status is Status.COMPLETE
    assert Output(text, runtime_s=30).end.status is Status.FAILED
