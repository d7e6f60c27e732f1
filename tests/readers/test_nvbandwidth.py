"""nvbandwidth: text and JSON, waived and failing tests, damage."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import check_cuts, outcome

from plumbline.errors import ConfigError, OutputError
from plumbline.readers import Status, _nvbandwidth_text, nvbandwidth

H2D = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"
FOOTER = (
    "NOTE: The reported results may not reflect the full capabilities of the platform.\n"
    "Performance can vary with software drivers, hardware clocks, and system topology.\n\n"
)


def banner(version="v0.8", gpus=2):
    text = f"nvbandwidth Version: {version}\nBuilt from Git version: {version}\n\n"
    if version < "v0.6":
        text += "NOTE: This tool reports current measured bandwidth on your system.\n"
    text += "CUDA Runtime Version: 12040\nCUDA Driver Version: 12040\nDriver Version: 550.54.15\n\nnode1\n"
    return text + "".join(f"Device {i}: NVIDIA H100 80GB HBM3 (00000000:{27 + i}:00)\n" for i in range(gpus)) + "\n"


def block(name, description, rows, old=False, total=None):
    text = description + "\n" + (" " if old else "  ") + "".join(f"{j:>10}" for j in range(len(rows[0]))) + "\n"
    for i, row in enumerate(rows):
        text += (
            (f"{i}" if old else f"{i:>2}")
            + "".join(f"{c:>10}" if isinstance(c, str) else f"{c:>10.2f}" for c in row)
            + "\n"
        )
    printed = sum(c for row in rows for c in row if not isinstance(c, str)) if total is None else total
    return text + f"\nSUM {name} {printed:.2f}\n\n"


def output(version="v0.8"):
    text = banner(version)
    text += "Running host_to_device_memcpy_ce.\n" + block("host_to_device_memcpy_ce", H2D, [[55.37, 55.36]])
    both = "memcpy CE GPU(row) <-> GPU(column) {} bandwidth (GB/s)"
    name = "device_to_device_bidirectional_memcpy_read_ce"
    text += f"Running {name}.\n"
    for part, value in (("Read1", 380.5), ("Read2", 381.5), ("Total", 762.0)):
        text += block(f"{name}_{part.lower()}", both.format(part), [["N/A", value], [value, "N/A"]])
    text += "Waiving multinode_device_to_device.\n\n" if version < "v0.5" else "Waived: \n"
    text += "Running host_device_latency_sm.\n"
    text += block("host_device_latency_sm", "memory latency SM CPU(row) <-> GPU(column) (ns)", [[772.58, 773.5]])
    return text + ("" if version < "v0.6" else FOOTER)


def parse(text, **expect):
    return outcome(nvbandwidth, text, expect)


def test_text():
    found = parse(output())
    assert found.status is Status.COMPLETE, found.end.reason
    assert found.values("bandwidth", test="host_to_device_memcpy_ce", row="0", column="1") == [55.36]
    assert found.values("bandwidth_sum", test="host_to_device_memcpy_ce") == [110.73]
    assert found.values("bandwidth", test="device_to_device_bidirectional_memcpy_read_ce_total") == [762.0, 762.0]
    assert found.values("latency") == [772.58, 773.5]
    assert {"tests": 3, "waived": 1, "driver": "550.54.15", "cuda_runtime": 12040}.items() <= found.facts.items()
    assert found.facts["sums"]["host_device_latency_sm"] == 1546.08
    assert len(found.facts["devices"]) == 2
    assert found.values("bandwidth_sum", test="host_device_latency_sm") == []


def test_old_versions_print_nothing_at_their_end():
    assert parse(output("v0.4")).status is Status.UNKNOWN
    assert parse(output("v0.5")).status is Status.UNKNOWN
    known = "host_to_device_memcpy_ce,device_to_device_bidirectional_memcpy_read_ce,host_device_latency_sm"
    assert parse(output("v0.4"), tests=known).status is Status.COMPLETE
    assert parse(output("v0.4")).facts["waived"] == 1


def test_a_test_that_fails():
    text = output().replace("Waived: \n", "Running broken_test.\nError: [an illegal memory access] in expression x\n")
    found = parse(text)
    assert found.status is Status.FAILED
    assert found.facts["errors"] == ["broken_test: [an illegal memory access] in expression x"]
    assert parse(banner() + "ERROR: Testcase nothing not found!\n").status is Status.FAILED


@pytest.mark.parametrize(
    "said",
    [
        " Invalid value when checking the pattern at <0x7fe000001000>\n Current offset [ 16/1024 ]",
        "ASSERT in expression h_errorFlag == 0 in void check(int, std::shared_ptr<Node>)() : /src/memcpy.cpp:77",
        "[CUDA_ERROR_INVALID_VALUE] invalid argument in expression cuMemSetAccess(a, 1) in void f() : /src/node.cpp:8",
        "Aborted (core dumped)",
        "terminate called after throwing an instance of 'std::string'",
    ],
)
def test_a_run_that_ends_at_once(said):
    text = output()
    stopped = text[: text.index("Waived:")] + f"Running broken_test.\n{said}\n"
    found = parse(stopped)
    assert found.status is Status.FAILED
    assert found.facts["errors"] == [f"broken_test: {said.splitlines()[0].strip()}"]
    assert found.values("bandwidth_sum", test="host_to_device_memcpy_ce") == [110.73]
    torn = stopped.replace("SUM host_to_device_memcpy_ce 110.73\n\n", said + "\n")
    assert parse(torn).status is Status.FAILED


def test_a_second_run_that_only_began():
    assert parse(output() + banner()).status is Status.INCOMPLETE


@pytest.mark.parametrize("version", ["v0.8", "v0.4"])
def test_a_cut_run_beside_a_whole_one_is_missed(version):
    whole = output(version)
    lines = whole.splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if "SUM host_device_latency" in line)
    tests = "host_to_device_memcpy_ce,device_to_device_bidirectional_memcpy_read_ce,host_device_latency_sm"
    assert parse(whole, tests=tests).status is Status.COMPLETE
    for kept in range(1, end + 1):
        cut = "".join(lines[:kept])
        for text in (cut + whole, whole + cut):
            found = parse(text, tests=tests)
            assert found.status is Status.INCOMPLETE, (kept, text.startswith(whole))
            assert len(found.readings) >= len(parse(whole).readings)


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.replace("55.37", "55.3"),
        lambda t: t.replace("55.37", "nan"),
        lambda t: t.replace("55.37", "-5.37"),
        lambda t: t.replace("55.37", "45.37"),
        lambda t: t.replace("SUM host_to_device_memcpy_ce 110.73\n", ""),
        lambda t: t.replace("SUM host_to_device_memcpy_ce 110.73", "SUM host_to_device_memcpy_ce 110"),
        lambda t: t.replace("     55.37", ""),
        lambda t: t.replace(H2D, "something else"),
        lambda t: t.replace(FOOTER, ""),
        lambda t: t + output(),
        lambda _: banner(),
    ],
)
def test_damage_is_not_complete(damage):
    text = damage(output())
    assert text != output()
    found = parse(text)
    assert found.status in (Status.INCOMPLETE, Status.NOT_STARTED)
    assert found.end.reason
    assert all(r.value > 0 for r in found.readings)


def test_expectations():
    assert parse(output(), tests="host_to_device_memcpy_ce", devices=2).status is Status.COMPLETE
    assert "no result of x" in parse(output(), tests="x").end.reason
    assert "expected 8" in parse(output(), devices=8).end.reason
    with pytest.raises(ConfigError):
        parse(output(), devices="many")


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-01-01T00:00:00.000000000Z stdout F "])
def test_prefixes(prefix):
    text = "".join(prefix + line + "\r\n" for line in output().splitlines())
    assert parse(text).readings == parse(output()).readings


def test_lines_twice_as_far_apart():
    assert parse(output().replace("\n", "\n\n")).readings == parse(output()).readings


# -- JSON -------------------------------------------------------------------------------------------------------------


def case(name="host_to_device_memcpy_ce", rows=(("55.3745", "55.3612"),), description=H2D, status="Passed", total=None):
    numbers = [float(c) for row in rows for c in row if c != "N/A"]
    return {
        "name": name, "status": status, "bandwidth_description": description,
        "bandwidth_matrix": [list(row) for row in rows], "sum": sum(numbers) if total is None else total,
    }  # fmt: skip


def report(*cases, **more):
    root = {
        "CUDA Runtime Version": 12040, "Driver Version": "550.54.15", "GPU Device list": ["0: NVIDIA H100 (…)"],
        "git_version": "v0.8", "version": "v0.8", "testcases": list(cases or (case(),)), **more,
    }  # fmt: skip
    return json.dumps({"nvbandwidth": root}, indent=3) + "\n\n"


def test_report():
    found = parse(report())
    assert found.status is Status.COMPLETE, found.end.reason
    assert found.values("bandwidth", row="0", column="0") == [55.3745]
    assert (found.facts["tests"], found.facts["version"], found.facts["driver"]) == (1, "v0.8", "550.54.15")
    assert parse("Starting\n" + report() + "done\n").readings == found.readings


def test_report_of_both_directions_holds_three_matrices_in_one():
    name = "device_to_device_bidirectional_memcpy_write_ce"
    rows = [
        ("N/A", v) if i % 2 == 0 else (v, "N/A")
        for i, v in enumerate(["380.5", "380.6", "381.5", "381.6", "762", "762.2"])
    ]
    both = case(name, rows, "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)", total=1524.2)
    found = parse(report(both))
    assert found.status is Status.COMPLETE, found.end.reason
    assert found.values("bandwidth", test=f"{name}_write1") == [380.5, 380.6]
    assert found.values("bandwidth", test=f"{name}_total") == [762.0, 762.2]
    assert found.values("bandwidth_sum") == [1524.2]
    assert found.facts["sums"] == {f"{name}_total": 1524.2}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (report(case(), case("x", status="Waived")), Status.COMPLETE),
        (report(case("x", status="Waived")), Status.NOT_STARTED),
        (report(case(), case("x", status="Error")), Status.FAILED),
        (report(case(), case("x", status="Running")), Status.FAILED),
        (report(error="no device"), Status.FAILED),
        (report(case(total=1.0)), Status.INCOMPLETE),
        (report(case(rows=(("nan", "1"),))), Status.INCOMPLETE),
        (report(case(rows=(("1", "2"), ("3",)))), Status.INCOMPLETE),
        (report(case(rows=(("-1", "2"),))), Status.INCOMPLETE),
        (report()[:-20], Status.INCOMPLETE),
        (report(error="first") + report(), Status.FAILED),
        (report(error="first") + report(error="first"), Status.FAILED),
        (report(case(status="Running")) + report(case()), Status.COMPLETE),
        (report(case()) + report(case(), case("x")), Status.COMPLETE),
        (report(case(status="Error")) + report(case()), Status.FAILED),
        (report(case(), case("x", status="Error")) + report(case()), Status.FAILED),
        (report(case("x")) + report(case()), Status.COMPLETE),
        (report(case()) + report(case(rows=(("1", "2"),), total=3.0)), Status.INCOMPLETE),
        (report(case(status="Error"))[:-60] + "\n" + report(case()), Status.INCOMPLETE),
        (report(case()) + report(case(status="Error"))[:-60] + "\nKilled\n", Status.INCOMPLETE),
        (report(case()) + report(case(status="Error")).partition("Error")[0] + "Er", Status.INCOMPLETE),
        (report(case()) + "{\n", Status.INCOMPLETE),
        ("x" + report(case(status="Error"))[1:] + report(), Status.INCOMPLETE),
        (report(case(status="Error")).replace("testcases", "test cases") + report(), Status.INCOMPLETE),
        (report(case()) + '{\n   "nvband', Status.INCOMPLETE),
    ],
)
def test_reports_that_say_so(text, status):
    if "nan" in text:
        text = text.replace('"sum": NaN', '"sum": 1.0')
    assert parse(text).status is status


OTHER = report(case("device_local_copy", (("2300.5", "2301.5"),)))


@pytest.mark.parametrize("noise", ["", '{"level": "info", "msg": "pod started"}\n'])
@pytest.mark.parametrize("turned", [False, True])
def test_a_text_run_and_a_report_in_one_output_are_both_read(noise, turned):
    parts = [output(), OTHER][:: -1 if turned else 1]
    found = parse(noise + "".join(parts))
    assert found.status is Status.COMPLETE, found.end.reason
    assert found.values("bandwidth", test="device_local_copy") == [2300.5, 2301.5]
    assert len(found.readings) == len(parse(output()).readings) + len(parse(OTHER).readings)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["v0.8", "v0.4"])
def test_a_cut_run_beside_a_whole_report_is_missed_and_a_cut_report_beside_a_whole_run(version, turned):
    def beside(first, second):
        return parse(second + first if turned else first + second)

    lines = output(version).splitlines(keepends=True)
    for kept in range(1, next(at for at, line in enumerate(lines) if "SUM host_device_latency" in line) + 1):
        assert beside("".join(lines[:kept]), OTHER).status is Status.INCOMPLETE, kept
    lines = OTHER.splitlines(keepends=True)
    for kept in range(2, len(lines) - 2):
        assert beside(output("v0.8"), "".join(lines[:kept])).status is Status.INCOMPLETE, kept
    for lost in range(1, next(at for at, line in enumerate(lines) if "bandwidth_matrix" in line)):
        assert beside(output("v0.8"), "".join(lines[lost:])).status is Status.INCOMPLETE, lost


def test_a_report_beyond_the_largest_is_not_complete(monkeypatch):
    monkeypatch.setattr(_nvbandwidth_text, "LARGEST_REPORT", len(report()) + 10)
    monkeypatch.setattr(nvbandwidth, "LARGEST_REPORT", len(report()) + 10)
    assert parse(report()).status is Status.COMPLETE
    found = parse(report() + "noise\n" * 9 + report(case(status="Error")))
    assert (found.status, "rest was not read" in found.end.reason) == (Status.INCOMPLETE, True)


@pytest.mark.parametrize("whole", [output(), report()], ids=["text", "report"])
def test_cut_anywhere(whole):
    whole = whole.encode()
    check_cuts(nvbandwidth, whole, most=len(whole))


@pytest.mark.parametrize("junk", ["", "hello\n", "{}", '{"jobs": []}', "[" * 5000])
def test_other_formats_are_refused(junk):
    with pytest.raises(OutputError):
        parse(junk)


PIECES = [*output().splitlines(keepends=True), *report().splitlines(keepends=True), "{", '"nvbandwidth"', "   0   1\n"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=10)), max_size=40))
def test_any_mixture_is_read_or_refused(pieces):
    try:
        found = parse("".join(pieces).encode("utf-8", "surrogatepass"))
    except OutputError:
        return
    assert all(r.value >= 0 for r in found.readings)
