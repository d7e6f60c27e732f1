"""nccl-tests of every generation, whole and damaged: right numbers, or the right refusal."""

from __future__ import annotations

from functools import partial

import pytest
from tests.readers import nccl_text as text
from tests.readers.infra_outputs import parts, values

from plumbline.errors import ConfigError, OutputError
from plumbline.readers import Status, nccl_tests, reader

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv")
parse = partial(parts, nccl_tests)


@pytest.mark.parametrize("generation", text.GENERATIONS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_generation_and_operation(generation, operation):
    if generation == "2017" and operation != "all_reduce":
        pytest.skip("not written for the tests of 2017")
    readings, facts, status = parse(text.output(generation, operation, ranks=16))
    assert status.status is Status.COMPLETE, status.reason
    assert facts["nranks"] == 16
    assert facts["hosts"] == ["node1", "node2"]
    assert facts["rows"] == 11
    assert facts["operations"] in ([operation], [None])
    place = generation == "rccl_in_place"
    for size in text.sizes(1 << 20, 1 << 30):
        us, algbw, busbw = text.numbers(size, 16, operation, place)
        at = {"message_bytes": size, "in_place": place}
        assert values(readings, "bus_bandwidth", **at) == [pytest.approx(busbw, abs=0.0051)]
        assert values(readings, "algorithm_bandwidth", **at) == [pytest.approx(algbw, abs=0.0051)]
        assert values(readings, "time", **at) == [pytest.approx(us, rel=0.005, abs=0.6)]
    if generation == "rccl_in_place":
        assert values(readings, "bus_bandwidth", in_place=False) == []
    checked = "rounding_error" if generation in ("2017", "2019", "2021", "rccl2019") else "wrong"
    assert values(readings, checked)


def test_a_named_operation_is_never_guessed_at():
    assert parse(text.output("2026", "alltoall"))[1]["operations"] == ["alltoall"]
    plain = text.output("2022", "alltoall")
    assert parse(plain)[1]["operations"] == [None]
    assert parse("+ mpirun -np 8 ./build/alltoall_perf_mpi -b 1M -e 1G -f 2\n" + plain)[1]["operations"] == ["alltoall"]
    two = "./all_reduce_perf -b 8\n./alltoall_perf -b 8\n"
    assert parse(two + plain)[1]["operations"] == [None]
    # With two ranks, all_reduce and sendrecv look alike.
    assert parse(text.output("2022", "all_reduce", ranks=2))[1]["operations"] == [None]
    assert parse(text.output("2021", "all_gather", ranks=2))[1]["operations"] == ["all_gather"]


def test_coordinates_hold_what_is_printed_and_nothing_else():
    readings, _, _ = parse(text.output("2022", "reduce", least=1024, most=1024))
    assert readings[0].params == {
        "operation": "reduce", "message_bytes": 1024, "dtype": "float", "count": 256, "redop": "sum", "root": 0,
        "in_place": False,
    } or "operation" not in readings[0].params  # fmt: skip
    readings, _, _ = parse(text.output("2026", "all_gather", least=1024, most=1024))
    assert "redop" not in readings[0].params
    assert "root" not in readings[0].params


@pytest.mark.parametrize("wrong", ["N/A", 0])
def test_unchecked_is_absent_and_not_zero(wrong):
    readings, facts, status = parse(text.output("2022", wrong=wrong))
    assert status.status is Status.COMPLETE
    assert facts["wrong_NA_cells"] == (22 if wrong == "N/A" else 0)
    assert facts["wrong_or_error_max"] == (None if wrong == "N/A" else 0.0)
    assert values(readings, "wrong") == ([] if wrong == "N/A" else [0.0] * 22)
    assert parse(text.output("2022", wrong=wrong), check=1)[2].status is (
        Status.INCOMPLETE if wrong == "N/A" else Status.COMPLETE
    )


def test_wrong_results_fail():
    readings, facts, status = parse(text.output("2022", wrong=524288, out_of_bounds=22))
    assert status.status is Status.FAILED
    assert "wrong results" in status.reason
    assert values(readings, "wrong")[0] == 524288
    assert facts["out_of_bounds"] == 22
    # The footer alone, and the cell alone.
    assert parse(text.output("2022", out_of_bounds=4))[2].status is Status.FAILED
    assert parse(text.output("2022", wrong=1))[2].status is Status.FAILED
    assert parse(text.output("2022", wrong=1048576))[2].status is Status.FAILED  # printed as 1.04858e+06


def test_a_rounding_error_is_no_wrong_result_but_an_asterisk_is():
    whole = text.output("rccl2019", wrong=3e-07)
    readings, facts, status = parse(whole)
    assert status.status is Status.COMPLETE
    assert facts["wrong_or_error_max"] == 3e-07
    assert values(readings, "wrong") == []
    flagged = whole.replace("3e-07\n", "3e-01*\n", 1)
    assert parse(flagged)[2].status is Status.FAILED


def test_the_average_below_the_minimum_fails():
    low = text.output("2022").replace("Avg bus bandwidth    : 87.8123", "Avg bus bandwidth    : 87.8123")
    low = "\n".join(line + "FAILED" if "Avg bus" in line else line for line in low.splitlines()) + "\n"
    _, facts, status = parse(low)
    assert status.status is Status.FAILED
    assert facts["average_status"] == "FAILED"


def test_one_rank_by_mistake_is_named():
    alone = text.output("2022", ranks=1)
    readings, facts, status = parse(alone)
    assert set(values(readings, "bus_bandwidth")) == {0.0}
    assert facts["single_rank"] is True
    assert "one rank" in status.reason
    assert parse(alone, nranks=8)[2].status is Status.INCOMPLETE
    assert "1 ranks, expected 8" in parse(alone, nranks=8)[2].reason


def test_rows_left_out_by_hand():
    lines = text.output("2022").splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["8388608"])
    assert parse("".join(lines[:at] + lines[at + 1 :]))[2].status is Status.INCOMPLETE
    assert parse("".join([*lines[:at], "         ...\n", *lines[at + 3 :]]))[2].status is Status.INCOMPLETE
    # Without the banner, the printed average is the witness.
    headless = "".join(line for line in lines if "nThread" not in line)
    assert parse(headless)[2].status is Status.COMPLETE
    first = next(i for i, line in enumerate(lines) if line.split()[:1] == ["1048576"])
    beheaded = "".join(line for i, line in enumerate(lines) if "nThread" not in line and not first <= i < first + 6)
    assert parse(beheaded)[2].status is Status.INCOMPLETE


def test_memory_limit_lowers_what_is_announced():
    whole = text.output("2022", most=1 << 28).replace("maxBytes 268435456", "maxBytes 8589934592")
    assert parse(whole)[2].status is Status.INCOMPLETE
    said = whole.replace("#\n#  ", "#\n# Reducing maxBytes to 268435456 due to memory limitation\n#  ", 1)
    assert "Reducing" in said
    assert parse(said)[2].status is Status.COMPLETE


def test_failure_before_the_banner():
    said = "gpu7: Test CUDA failure common.cu:75 'invalid device ordinal'\n .. gpu7 pid 4: Test failure common.cu:73\n"
    readings, _, status = parse(said)
    assert not readings
    assert status.status is Status.FAILED
    assert "invalid device ordinal" in status.reason
    assert reader("nccl_tests").sniff(said) == 0.5


def test_a_row_cut_in_the_middle_of_a_number_is_none():
    lines = text.output("2022").splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["4194304"])
    for cut in (20, 47, 58, 66, 75, 90, 104, 112):
        damaged = [*lines[:at], lines[at][:cut], "mpirun: something else", *lines[at + 1 :]]
        readings, _, status = parse("\n".join(damaged) + "\n")
        assert status.status is Status.INCOMPLETE, cut
        assert values(readings, "time", message_bytes=4194304) == []


@pytest.mark.parametrize("bad", ["nan", "inf", "-nan", "-1.00", "1e+400", "12.3.4", "1_0", "１２"])
def test_cells_that_nobody_would_accept(bad):
    lines = text.output("2022").splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["4194304"])
    lines[at] = lines[at][:66] + f"{bad:>8}" + lines[at][74:]
    readings, _, status = parse("\n".join(lines) + "\n")
    assert status.status is Status.INCOMPLETE
    assert values(readings, "bus_bandwidth", message_bytes=4194304) == []
    assert len(values(readings, "bus_bandwidth")) == 20


def test_wide_cells():
    big = 1 << 41
    whole = text.banner("2026", 8, big, big, "all_reduce") + text.header("2026", "all_reduce")
    line = text.row("2026", "all_reduce", big, 8, cells={False: (1e6, 12345.67, 1e5), True: (2e9, 1.0, 2.0)})
    readings, _, status = parse(whole + line + text.footer("2026", 50001.0))
    assert values(readings, "bus_bandwidth") == [1e5, 2.0]
    assert values(readings, "time") == [1e6, 2e9]
    assert status.status is Status.COMPLETE
    rounded = line.replace(f"{2e9:7.0f}", "2.0e+09")
    assert values(parse(whole + rounded + text.footer("2026", 50001.0))[0], "time") == [1e6, 2e9]


def test_timestamps_and_per_iteration_columns():
    stamp = "2026-07-10 10:00:00"
    whole = text.banner("2026", 8, 1024, 2048, "all_reduce") + text.header("2026", "all_reduce", timestamp=True)
    whole += "".join(text.row("2026", "all_reduce", size, 8, stamp=stamp) for size in (1024, 2048))
    readings, _, status = parse(whole + text.footer("2026", 0.12))
    assert status.status is Status.COMPLETE, status.reason
    assert len(values(readings, "time")) == 4

    head = (
        text.banner("2026", 8, 1024, 1024, "all_reduce")
        + "#\n#    out-of-place (+ per-iteration)   in-place (+ per-iteration)\n"
    )
    names = "     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
    head += "#       size         count      type   redop    root" + names * 2 + "\n"
    cells = "    20.01    0.05    0.09       0    19.00    31.50    31.00     4.25"
    row = "        1024           256     float     sum      -1" + cells * 2 + "\n"
    readings, _, status = parse(head + row + text.footer("2026", 0.09))
    assert status.status is Status.COMPLETE, status.reason
    assert values(readings, "iteration_max", in_place=True) == [31.5]
    assert values(readings, "iteration_p99", in_place=False) == [31.0]
    assert values(readings, "iteration_cv", in_place=False) == [4.25]


def test_cpu_time_is_not_time():
    whole = text.banner("2026", 8, 1024, 1024, "all_reduce") + text.header("2026", "all_reduce", cputime=True)
    readings, _, _ = parse(whole + text.row("2026", "all_reduce", 1024, 8) + text.footer("2026", 0.09))
    assert values(readings, "time") == []
    assert len(values(readings, "cpu_time")) == 2


def test_sizes_that_round_to_the_same_one_are_told_apart():
    whole = text.banner("2019", 8, 1, 8, "all_reduce") + text.header("2019", "all_reduce")
    rows = [text.row("2019", "all_reduce", size, 8) for size in (0, 0, 4, 8)]
    readings, facts, status = parse(whole + "".join(rows) + text.footer("2019", 0.0))
    assert status.status is Status.COMPLETE, status.reason
    assert [r.params.get("repeat") for r in readings if r.indicator == "time" and not r.params["in_place"]] == [
        None, 1, None, None,
    ]  # fmt: skip
    assert facts["min_size"] == 0


def test_several_data_types_in_one_table():
    whole = text.banner("2022", 8, 1024, 2048, "all_reduce") + text.header("2022", "all_reduce")
    rows = [
        text.row("2022", "all_reduce", s, 8, dtype=d) for d in ("float", "f8e4m3", "bfloat16") for s in (1024, 2048)
    ]
    _, facts, status = parse(whole + "".join(rows) + text.footer("2022", 0.12))
    assert status.status is Status.COMPLETE
    assert facts["dtypes"] == ["float", "f8e4m3", "bfloat16"]
    assert parse(whole + "".join(rows[:-1]) + text.footer("2022", 0.12))[2].status is Status.INCOMPLETE
    assert "data type" in parse(whole + "".join(rows) + text.footer("2022", 0.12), dtype="float")[2].reason


def test_several_runs_in_one_file():
    whole = "".join(text.output("2026", operation) for operation in ("all_reduce", "all_gather"))
    readings, facts, status = parse(whole)
    assert status.status is Status.COMPLETE
    assert {(r.params["run"], r.params["operation"]) for r in readings} == {(0, "all_reduce"), (1, "all_gather")}
    assert facts["rows"] == 22
    assert [run["operation"] for run in facts["runs"]] == ["all_reduce", "all_gather"]
    assert len(values(readings, "average_bus_bandwidth")) == 2
    cut = whole[: whole.rindex("# Avg")]
    readings, _, status = parse(cut)
    assert status.status is Status.INCOMPLETE
    assert status.reason.startswith("all_gather: ")
    assert parse(whole, operations="all_reduce,all_gather")[2].status is Status.COMPLETE
    assert "no run of alltoall" in parse(whole, operations="all_reduce,alltoall")[2].reason
    bad = text.output("2026", "all_reduce", wrong=3) + text.output("2026", "all_gather")
    assert parse(bad)[2].status is Status.FAILED


def test_runs_of_several_nodes_interleaved():
    one = text.output("2026", "all_reduce").splitlines()
    two = text.output("2026", "all_reduce", wrong=7).splitlines()
    mixed = [
        f"{tag}: {line}" for pair in zip(one, two, strict=True) for tag, line in zip(("0", "1"), pair, strict=True)
    ]
    readings, facts, status = parse("\n".join(mixed) + "\n")
    assert status.status is Status.FAILED
    assert facts["rows"] == 22
    assert set(values(readings, "wrong", run=0)) == {0.0}
    assert set(values(readings, "wrong", run=1)) == {7.0}
    hosts = "\n".join(
        f"node{i % 2 + 1}: {line}" for i, line in enumerate(x for p in zip(one, one, strict=True) for x in p)
    )
    assert parse(hosts + "\n")[1]["rows"] == 22


def test_rows_told_twice_and_an_average_that_is_no_number():
    whole = text.output("2022")
    doubled = "".join(line * 2 if line[:1] == " " else line for line in whole.splitlines(keepends=True))
    assert parse(doubled)[2].status is Status.INCOMPLETE
    assert "twice" in parse(doubled)[2].reason
    again = "".join(line * 2 for line in whole.splitlines(keepends=True))
    assert parse(again)[2].status is not Status.COMPLETE
    for word in ("-nan", "nan", "inf"):
        line = next(line for line in whole.splitlines() if "Avg" in line)
        readings, _, status = parse(whole.replace(line, f"# Avg bus bandwidth    : {word} "))
        assert status.status is Status.INCOMPLETE
        assert values(readings, "average_bus_bandwidth") == []


def test_cycles_are_told_apart():
    head = text.banner("2022", 8, 1024, 4096, "all_reduce") + text.header("2022", "all_reduce")
    cycle = "".join(text.row("2022", "all_reduce", size, 8) for size in (1024, 2048, 4096))
    readings, facts, status = parse(head + cycle * 3 + text.footer("2022", 0.18))
    assert status.status is Status.COMPLETE, status.reason
    assert facts["rows"] == 9
    repeats = [r.params.get("repeat") for r in readings if r.indicator == "time" and r.params["in_place"]]
    assert repeats == [None] * 3 + [1] * 3 + [2] * 3


def test_footers_told_twice_and_footers_alone():
    whole = text.output("2022")
    tail = whole[whole.index("# Out of bounds") :]
    assert parse(whole + tail)[2].status is Status.COMPLETE
    assert parse(whole + tail.replace("0 OK", "4 FAILED"))[2].status is Status.FAILED
    assert parse(tail)[2].status is Status.INCOMPLETE


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("node1: Test NCCL failure all_reduce.cu:44 'unhandled cuda error / '", Status.FAILED),
        (" .. node1 pid 123: Test failure common.cu:401", Status.FAILED),
        ("node1: Test timeout (60s) common.cu:523", Status.FAILED),
        (
            "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
            Status.ABORTED,
        ),
        ("mpirun noticed that process rank 3 with PID 1 on node n2 exited on signal 9 (Killed).", Status.ABORTED),
    ],
)
def test_runs_that_say_how_they_ended(line, status):
    whole = text.output("2022")
    cut = whole[: whole.index("   134217728")] + line + "\n"
    readings, _, found = parse(cut)
    assert found.status is status
    assert line.strip() in found.reason
    assert len(values(readings, "time")) == 14
    assert parse(whole + line + "\n")[2].status is Status.FAILED


def test_a_test_that_never_began():
    _, facts, status = parse("+ srun all_reduce_perf -b 8\nsrun: error: Unable to create step: no processors\n")
    assert (status.status, status.reason) == (Status.FAILED, "srun: error: Unable to create step: no processors")
    assert (facts["nranks"], facts["rows"]) == (0, 0)
    assert parse("+ srun all_reduce_perf -b 8\n")[2].status is Status.NOT_STARTED
    assert parse(text.banner("2022", 8, 8, 1024, "all_reduce"))[2].status is Status.NOT_STARTED


@pytest.mark.parametrize(
    "junk", ["", "\n\n", "hello\n", '{"a": 1}\n', "\x00\xff" * 100, "[[[[[" * 5000, '{"jobs": []}']
)
def test_other_formats_are_refused(junk):
    with pytest.raises(OutputError):
        parse(junk.encode("utf-8", "surrogateescape"))


def test_expectations():
    whole = text.output("2026", ranks=16)
    good = {
        "operations": "all_reduce", "rows": 11, "min_bytes": "1M", "max_bytes": "1G", "step_factor": 2, "nranks": 16,
        "nodes": 2, "dtype": "float", "redop": "sum", "check": 1, "iterations": 20, "warmup": "5",
    }  # fmt: skip
    assert parse(whole, **good)[2].status is Status.COMPLETE, parse(whole, **good)[2].reason
    bad = {"operations": "sendrecv", "rows": 12, "min_bytes": 1024, "max_bytes": "8G", "nranks": 8, "nodes": 1,
           "dtype": "half", "redop": "max", "iterations": 100, "warmup": 1, "transport": "NET/IB"}  # fmt: skip
    for key, value in bad.items():
        status = parse(whole, **{key: value})[2]
        assert status.status is Status.INCOMPLETE, key
        assert status.reason
    with pytest.raises(ConfigError):
        parse(whole, ranks=16)
    with pytest.raises(ConfigError):
        parse(whole, max_bytes="much")


def test_sizes_rounded_down_by_the_ranks_are_the_sizes_asked_for():
    whole = text.output("2026", "all_gather", ranks=24, least=1 << 20, most=1 << 20)
    shown = (1 << 20) // (24 * 16) * 24 * 16
    whole = whole.replace(f"{1 << 20:12d}  ", f"{shown:12d}  ")
    assert parse(whole, min_bytes="1M", max_bytes="1M")[2].status is Status.COMPLETE
    assert parse(whole, min_bytes="2M", max_bytes="2M")[2].status is Status.INCOMPLETE
