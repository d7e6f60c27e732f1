"""HPL in double precision: every vendor's table, and nothing that only looks like a result."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers import item_lists
from tests.readers.item_lists import WRAPS, beginnings, cut_points, facts, figures, mangled, readings, values

from plumbline.errors import OutputError
from plumbline.readers import hpl
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.units import UNITS

DATA = Path(__file__).parents[1] / "data" / "hpl"
items = partial(item_lists.items, hpl)


def text_of(name):
    return (DATA / name).read_text()


FILES = {
    # file: (rates in GFLOPS, largest residuals, status)
    "nvidia_25.9_two_sizes.txt": ([310400.0, 331400.0], [0.000341216009, 0.000195009244], Status.COMPLETE),
    "nvidia_21.4.txt": ([2238.0], [0.0029328], Status.COMPLETE),
    "rochpl_three_iterations_one_failed.txt": (
        [22890.0, 23060.0, 22970.0], [2.1e-6, 31.4159265, 2.1e-6], Status.FAILED,
    ),
    "amd_zen_swp_column.txt": ([7457.8], [0.0031192717], Status.COMPLETE),
    "hpl_gpu_cpu_column.txt": ([972.0], [0.0031415], Status.COMPLETE),
    "netlib_1.0a_three_checks.txt": ([21.92, 21.80], [0.0185612, 0.0170302], Status.COMPLETE),
    "netlib_2.3_interrupted.txt": ([4.6229e-6, 4.4696e-6, 3.9373e-6], [0.0172533487] * 3, Status.ABORTED),
    "intel_shared_memory.txt": ([184.8577, 271.5662, 338.8296], [0.0325581, 0.0325581, 0.0377555], Status.COMPLETE),
    "hpcc_1.5_plain.txt": ([0.3955], [0.0072510], Status.COMPLETE),
    "hpcc_1.5_failed.txt": ([0.4342], [0.0072510], Status.FAILED),
    "hpcc_1.5_several.txt": (
        [0.1216, 0.1544, 0.3794, 0.3028], [0.0081691, 0.0076585, 0.0055245, 0.0078308], Status.COMPLETE,
    ),
    "hpcc_1.5_unchecked.txt": ([0.4350], [], Status.INCOMPLETE),
    "hpcc_1.5_too_few_processes.txt": ([], [], Status.NOT_STARTED),
}  # fmt: skip


BEGUN = {
    # file: (what the first line that tells of a run holds, what the first after its results holds)
    "nvidia_25.9_two_sizes.txt": ("HPL-NVIDIA", "skipped because"),
    "nvidia_21.4.txt": ("HPL-NVIDIA", "skipped because"),
    "amd_zen_swp_column.txt": ("AMD Zen HPL", "skipped because"),
    "netlib_1.0a_three_checks.txt": ("HPLinpack", "skipped because"),
    "hpl_gpu_cpu_column.txt": ("HPLinpack", "skipped because"),
    "intel_shared_memory.txt": ("LINPACK Benchmark data", "Residual checks"),
    "hpcc_1.5_several.txt": ("HPLinpack", "skipped because"),
}


@pytest.mark.parametrize("name", BEGUN)
def test_a_run_that_began_beside_a_whole_one_is_missed(name):
    whole = text_of(name)
    rates = values(items(whole), "performance")
    for cut in beginnings(whole, *BEGUN[name], most=100):
        for text in (whole + cut, whole + cut + "Segmentation fault\n", cut + whole):
            found = items(text)
            assert found[-1].status in (Status.INCOMPLETE, Status.ABORTED), cut[-80:]
            assert set(rates) <= set(values(found, "performance"))


@pytest.mark.parametrize("name", FILES)
def test_every_variant_gives_its_rows(name):
    rates, residuals, status = FILES[name]
    found = items((DATA / name).read_bytes())
    assert values(found, "performance") == rates
    assert values(found, "residual") == residuals
    assert found[-1].status is status
    assert (found[-1].reason == "") is (status is Status.COMPLETE)


def test_all_fixtures_are_listed():
    assert {path.name for path in DATA.iterdir()} == set(FILES)


def test_coordinates_units_and_per_gpu():
    found = items(text_of("nvidia_25.9_two_sizes.txt"))
    last = [item for item in found if isinstance(item, Reading)][-4:]
    assert [item.indicator for item in last] == ["performance", "performance_per_gpu", "time", "residual"]
    shape = {"N": 264192, "NB": 1024, "P": 4, "Q": 2, "variant": "WC0", "precision": "FP64", "run": 1}
    assert last[0].params == shape
    assert values(found, "performance_per_gpu") == [38800.0, 41420.0]
    for item in found:
        if isinstance(item, Reading):
            assert hpl.INDICATORS[item.indicator][0] == item.unit
            assert item.unit in UNITS
        elif isinstance(item, Fact):
            assert item.name in hpl.FACTS


def test_a_single_test_has_no_run_number():
    found = items(text_of("amd_zen_swp_column.txt"))
    assert all("run" not in item.params for item in found if isinstance(item, Reading))
    assert facts(found)["program"] == "AMD Zen HPL"


def test_facts_answer_what_people_ask():
    found = facts(items(text_of("hpcc_1.5_several.txt")))
    assert found["tests"] == found["residuals"] == found["passed"] == found["tests_announced"] == 4
    assert (found["failed"], found["verdict"], found["max_gflops"]) == (0, "PASSED", 0.3794)
    assert found["first"] == {"tv": "WR11C2R4", "N": 400, "NB": 32, "P": 1, "Q": 2, "time_s": 0.35, "gflops": 0.1216}
    assert found["last_residual"] == "0.0078308"
    assert facts(items(text_of("nvidia_25.9_two_sizes.txt")))["version"] == "25.9.0"


def test_progress_is_never_a_result():
    whole = text_of("nvidia_25.9_two_sizes.txt")
    found = items(whole[: whole.index("T/V                N")])
    assert not [item for item in found if isinstance(item, Reading)]
    assert found[-1].status is Status.INCOMPLETE
    assert facts(found)["last_progress"]["fraction"] == pytest.approx(0.936)
    column = "host1 : Column=000576 Fraction=0.005 Kernel= 0.58 Mflops=1265648.19\n" * 3
    assert facts(items(column))["last_progress"] == {"fraction": 0.005, "gflops": 1265.64819}
    rochpl = text_of("rochpl_three_iterations_one_failed.txt")
    found = items(rochpl[: rochpl.index("T/V                N")])
    assert found[-1].status is Status.INCOMPLETE
    assert facts(found)["last_progress"]["fraction"] == pytest.approx(0.666)


@pytest.mark.parametrize("name", [name for name, (_, _, status) in FILES.items() if status is Status.COMPLETE])
def test_cut_anywhere_never_fewer_rows_called_complete(name):
    whole = (DATA / name).read_bytes()
    full = figures(items(whole))
    for cut in cut_points(len(whole), 90):
        try:
            found = items(whole[:cut])
        except OutputError:
            continue
        part = figures(found)
        assert part <= full, f"a cut at {cut} made up a number"
        assert part == full or found[-1].status is not Status.COMPLETE, f"fewer rows complete at {cut}"


def test_every_row_cut_byte_by_byte_is_refused():
    whole = text_of("nvidia_25.9_two_sizes.txt")
    start = whole.index("WC0 ")
    end = whole.index(")", start)
    for cut in range(start, end):
        assert values(items(whole[:cut]), "performance") == []
    assert values(items(whole[: end + 1]), "performance") == [310400.0]


def _broken(text, old, new, count=1):
    assert old in text
    return text.replace(old, new, count)


NASTY = {
    "row lost its exponent": ("3.104e+05 ( 3.880e+04)", "3.104e+0 ( 3.880e+04)"),
    "row lost a column": (" 1024     4     2        16.84", " 1024     4        16.84"),
    "row grew a column": ("        16.84 ", "   7    16.84 "),
    "rate is nan": ("      3.104e+05", "            nan"),
    "rate is inf": ("      3.104e+05", "            inf"),
    "rate is negative": ("      3.104e+05", "     -3.104e+05"),
    "rate is zero": ("      3.104e+05", "      0.000e+00"),
    "exponent is huge": ("      3.104e+05", "     3.104e+999"),
    "row is cut by another rank's line": ("        16.84 ", "        16.8\n[1] NCCL INFO comm 0x1 "),
    "row is gone": ("WC0            198656", "x WC0          198656"),
    "N is not a number": ("WC0            198656", "WC0            19865l"),
    "footer knows one more": ("Finished      2 tests", "Finished      3 tests"),
    "footer lost a line": ("              0 tests skipped because of illegal input values.\n", ""),
    "test was skipped": ("              0 tests skipped", "              1 tests skipped"),
    "residual check is gone": ("*N)=   0.000341216009 ...... PASSED", "*N)"),
    "residual verdict is cut": ("0.000341216009 ...... PASSED", "0.000341216009 ...... PAS"),
}  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_damage_is_never_complete(name):
    old, new = NASTY[name]
    found = items(_broken(text_of("nvidia_25.9_two_sizes.txt"), old, new))
    assert found[-1].status is Status.INCOMPLETE
    assert set(values(found, "performance")) <= {310400.0, 331400.0}
    assert 331400.0 in values(found, "performance")


FAILED = {
    "FAILED": ("0.000341216009 ...... PASSED", "0.000341216009 ...... FAILED"),
    "nan that claims to pass": ("0.000341216009 ...... PASSED", "nan ...... PASSED"),
    "NAN that failed": ("0.000341216009 ...... PASSED", "NAN ...... FAILED"),
    "huge and wrapped": ("=   0.000341216009 ...... PASSED", "=\n42820214496954887558164928727.0000000 ...... FAILED"),
    "only the footer says so": ("0 tests completed and failed", "1 tests completed and failed"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_check_fails_the_output(name):
    found = items(_broken(text_of("nvidia_25.9_two_sizes.txt"), *FAILED[name]))
    assert found[-1].status is Status.FAILED
    assert facts(found)["verdict"] == "FAILED"


@pytest.mark.parametrize("name", WRAPS)
@pytest.mark.parametrize("file", ["nvidia_25.9_two_sizes.txt", "hpcc_1.5_several.txt", "amd_zen_swp_column.txt"])
def test_wrapped_lines_read_the_same(name, file):
    text = text_of(file)
    wrapped = items("\n".join(WRAPS[name](line) for line in text.splitlines()) + "\n")
    plain = items(text)
    assert readings(wrapped) == readings(plain)
    assert wrapped[-1].status is Status.COMPLETE


def test_two_outputs_in_one_file_are_numbered_through_and_the_worst_status_wins():
    first, second = text_of("nvidia_25.9_two_sizes.txt"), text_of("hpcc_1.5_failed.txt")
    found = items(first + second)
    assert values(found, "performance") == [310400.0, 331400.0, 0.4342]
    assert [i.params["run"] for i in found if isinstance(i, Reading) and i.indicator == "time"] == [0, 1, 2]
    assert found[-1].status is Status.FAILED
    unfinished = items(first + second[: second.index("WR11C2R4")])
    assert unfinished[-1].status is Status.INCOMPLETE


def test_table_without_header_still_reads_a_plain_row():
    text = "WR11C2R4       39552   192     2     2            1243.10              3.318e+01\n"
    found = items(text + "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0049311 ...... PASSED\n")
    assert values(found, "performance") == [33.18]
    assert found[-1].status is Status.INCOMPLETE


def test_console_score_counts_only_where_there_is_no_table():
    text = text_of("rochpl_three_iterations_one_failed.txt")
    kept = [line for line in text.splitlines() if "%" in line or "Final Score" in line or "Residual Check" in line]
    found = items("\n".join(kept) + "\n")
    assert values(found, "performance") == [22888.0, 23058.0, 22972.0]
    assert found[-1].status is Status.FAILED
    assert facts(found)["residuals"] == 3


def test_expectations():
    text = text_of("hpcc_1.5_several.txt")
    assert items(text, tests=4)[-1].status is Status.COMPLETE
    short = items(text, tests=5)[-1]
    assert (short.status, short.expected["tests"], short.found["tests"]) == (Status.INCOMPLETE, 5, 4)
    assert items(text, n=400)[-1].status is Status.INCOMPLETE
    assert items(text_of("hpcc_1.5_plain.txt"), n=1000, nb=80, p=1, q=2)[-1].status is Status.COMPLETE


@pytest.mark.parametrize("text", ["", "hello\n", "\x00\x01\x02", "Finished 5 tests, with the following results:\n"])
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        items(text)


def test_mixed_precision_is_refused_by_name():
    text = (DATA.parent / "hpl_mxp" / "nvidia_26.2_two_loops.txt").read_text()
    with pytest.raises(OutputError, match="use reader hpl_mxp"):
        items(text)
    text = (DATA.parent / "hpl_mxp" / "rochpl_mxp.txt").read_text()
    with pytest.raises(OutputError, match="use reader hpl_mxp"):
        items(text)


def test_launcher_error_alone_is_a_run_that_never_started():
    found = items("There are not enough slots available in the system to satisfy the 8 slots\n")
    assert found[-1].status is Status.NOT_STARTED
    assert "not enough slots" in found[-1].reason
    with pytest.raises(OutputError):
        items("cat: /nowhere: No such file or directory\n")


def test_sniff_prefers_its_own():
    assert all(hpl.sniff(text_of(name)) >= 0.9 for name in FILES)
    assert hpl.sniff((DATA.parent / "hpl_mxp" / "nvidia_26.2_two_loops.txt").read_text()) == 0.0
    assert hpl.sniff("nothing of the kind") == 0.0


_CORPUS = [(DATA / name).read_bytes() for name in FILES]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_exception_but_output_error_on_mangled_bytes(data):
    try:
        found = items(mangled(data, _CORPUS))
    except OutputError:
        return
    for item in found:
        if isinstance(item, Reading):
            assert 0 <= item.value < float("inf")
