"""HPL-MxP and HPL-AI: the reportable figure and the factorization's are never swapped, a failed check never passes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers import item_lists
from tests.readers.item_lists import WRAPS, beginnings, cut_points, facts, figures, mangled, readings, values

from plumbline.errors import OutputError
from plumbline.readers import hpl, hpl_mxp
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.readers.source import Source
from plumbline.units import UNITS

DATA = Path(__file__).parents[1] / "data" / "hpl_mxp"
items = partial(item_lists.items, hpl_mxp)


def text_of(name):
    return (DATA / name).read_text()


FILES = {
    # file: (reportable GFLOPS, LU GFLOPS, residuals, precision, status)
    "nvidia_26.2_two_loops.txt": (
        [1301800.0, 1305400.0], [2258100.0, 2235800.0], [4.462302e-4] * 2, "FP16", Status.COMPLETE,
    ),
    "nvidia_25.4_failed.txt": ([1323600.0], [3418000.0], [8.123456e9], "FP8", Status.FAILED),
    "nvidia_24.03_bare_block.txt": ([411960.0], [933210.0], [4.462302e-4], "FP16", Status.COMPLETE),
    "nvidia_hpl_ai_20.10.txt": ([11220.0], [15190.0], [2.774020e-3], None, Status.COMPLETE),
    "nvidia_hpl_ai_21.4_nan.txt": ([453800.0, 9055.0], [676200.0, 21010.0], [2.774020e-3], None, Status.FAILED),
    "rochpl_mxp.txt": ([215000.0], [], [0.00121], None, Status.COMPLETE),
    "icl_reference.txt": ([132.044801], [], [4.531977], None, Status.COMPLETE),
    "fugaku.txt": ([31316.746480470], [], [0.181652325], None, Status.COMPLETE),
    "plumbline_cpu_bf16.txt": (None, None, None, "BF16", Status.COMPLETE),
    "plumbline_cpu_failed.txt": (None, None, None, "BF16", Status.FAILED),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_variant_gives_its_figures(name):
    reportable, lu, residuals, precision, status = FILES[name]
    found = items((DATA / name).read_bytes())
    if reportable is not None:
        assert values(found, "performance") == reportable
        assert values(found, "performance_lu") == lu
        assert values(found, "residual") == residuals
    assert facts(found).get("precision") == precision
    assert found[-1].status is status
    for pair in zip(values(found, "performance"), values(found, "performance_lu"), strict=False):
        assert pair[0] < pair[1]


BEGUN = {
    # file: (what the first line that tells of a run holds, what the last one without a whole result holds)
    "nvidia_26.2_two_loops.txt": ("HPL-MxP-NVIDIA", "test 1 of 1 starts"),
    "nvidia_24.03_bare_block.txt": ("LU seconds", "HPL MxP Result"),
    "nvidia_hpl_ai_20.10.txt": ("HPL-AI-NVIDIA", "Finished "),
    "rochpl_mxp.txt": ("HPLinpack", "Finished "),
    "icl_reference.txt": ("Mixed-Precision Benchmark", "Computational tests pass"),
    "fugaku.txt": ("n=115200", "#END__"),
    "plumbline_cpu_bf16.txt": ("HPL-MxP-Plumbline", "test 1 of 1 starts"),
}
KILLED = "mpirun noticed that process rank 3 with PID 0 on node n7 exited on signal 9 (Killed).\n"


@pytest.mark.parametrize("name", BEGUN)
def test_a_run_that_began_beside_a_whole_one_is_missed(name):
    whole = text_of(name)
    rates = values(items(whole), "performance")
    for cut in beginnings(whole, *BEGUN[name]):
        for text in (whole + cut, cut + whole):
            found = items(text)
            assert found[-1].status is Status.INCOMPLETE, cut[-80:]
            assert set(rates) <= set(values(found, "performance"))
        assert items(whole + cut + KILLED)[-1].status is Status.ABORTED


def test_progress_after_the_last_result_is_of_a_solve_that_has_none():
    whole = text_of("nvidia_24.03_bare_block.txt")
    progress = whole.splitlines(keepends=True)[0]
    assert items(whole + progress)[-1].reason == "a run after the last result began and gave none"


@pytest.mark.parametrize("double", ["netlib_1.0a_three_checks.txt", "nvidia_21.4.txt"])
def test_a_whole_run_of_the_other_precision_beside_it_is_not_missed(double):
    fp64, mixed = (DATA.parent / "hpl" / double).read_text(), text_of("nvidia_26.2_two_loops.txt")
    for text in (fp64 + mixed, mixed + fp64):
        assert items(text)[-1].status is Status.COMPLETE
    for text in (fp64 + text_of("rochpl_mxp.txt"), text_of("rochpl_mxp.txt") + fp64):
        assert list(hpl.read(Source.of_text(text), {}))[-1].status is Status.COMPLETE


def test_all_fixtures_are_listed():
    assert {path.name for path in DATA.iterdir()} == set(FILES)


def test_nvidia_block_in_full():
    found = items(text_of("nvidia_25.4_failed.txt"))
    assert values(found, "performance_per_gpu") == [165447.84]
    assert values(found, "performance_lu_per_gpu") == [427255.42]
    assert (values(found, "time_lu"), values(found, "time_solver")) == ([9.1], [14.41])
    assert (values(found, "gemm_per_gpu"), values(found, "gemm_per_gpu_min")) == ([352502.11], [340111.75])
    assert values(found, "iterations") == [2]
    params = next(item.params for item in found if isinstance(item, Reading))
    assert params == {"N": 360000, "NB": 4096, "P": 4, "Q": 2, "precision": "FP8"}
    told = facts(found)
    assert told["mxp"] == {
        "N": 360000, "NB": 4096, "NPROW": 4, "NPCOL": 2, "sloppy": "1", "gflops": 1323600.0,
        "lu_gflops": 3418000.0, "per_gpu": 165447.84, "lu_per_gpu": 427255.42,
    }  # fmt: skip
    assert told["gemm_slowest"] == {"rank": 3, "host": "gpu-a01"}
    assert (told["version"], told["verdict"], told["failed"], told["passed"]) == ("25.4.0", "FAILED", 1, 0)
    for item in found:
        if isinstance(item, Reading):
            assert hpl_mxp.INDICATORS[item.indicator][0] == item.unit
            assert item.unit in UNITS
        elif isinstance(item, Fact):
            assert item.name in hpl_mxp.FACTS


def test_hpl_ai_tables_name_both_rates():
    found = items(text_of("nvidia_hpl_ai_20.10.txt"))
    assert (values(found, "time_lu"), values(found, "time_solver")) == ([3.74], [1.32214])
    assert facts(found)["mxp"]["tv"] == "WR03L2L2"
    table = text_of("nvidia_hpl_ai_20.10.txt").replace("          FGMRES          Gflops_IRS", "")
    table = table.replace("          1.32214           1.122e+04", "")
    shortened = items(table)
    assert values(shortened, "performance") == [], "without the reportable column there is no reportable figure"
    assert values(shortened, "performance_lu") == [15190.0]
    assert shortened[-1].status is Status.INCOMPLETE


def test_fugaku_has_no_verdict_so_the_bound_decides():
    text = text_of("fugaku.txt")
    assert items(text.replace("= 0.181652325", "= 16.181652325"))[-1].status is Status.FAILED
    assert items(text.replace("= 0.181652325", "= nan"))[-1].status is Status.FAILED


def test_plumblines_own_output_tells_the_matrix_product_rate_and_what_it_is():
    found = items(text_of("plumbline_cpu_bf16.txt"))
    assert len(values(found, "matmul_rate")) == 1
    assert 0 < values(found, "performance_lu")[0] < values(found, "matmul_rate")[0]
    assert values(found, "residual")[0] < 16
    assert facts(found)["program"] == "HPL-MxP-Plumbline"
    assert "performance_per_gpu" not in {item.indicator for item in found if isinstance(item, Reading)}
    assert facts(items(text_of("plumbline_cpu_failed.txt")))["verdict"] == "FAILED"


@pytest.mark.parametrize("name", [name for name, row in FILES.items() if row[-1] is Status.COMPLETE])
def test_cut_anywhere_never_fewer_results_called_complete(name):
    whole = (DATA / name).read_bytes()
    full = figures(items(whole))
    known = {key[:2] for key in full}
    for cut in cut_points(len(whole), 110):
        try:
            found = items(whole[:cut])
        except OutputError:
            continue
        part = figures(found)
        assert {key[:2] for key in part} <= known, f"a cut at {cut} made up a number"
        assert part == full or found[-1].status is not Status.COMPLETE, f"fewer results complete at {cut}"


def test_the_result_lines_cut_byte_by_byte():
    whole = text_of("nvidia_26.2_two_loops.txt")
    start = whole.index("       GFLOPS = ")
    end = whole.index("HPL MxP Result", start)
    for cut in range(start, end):
        found = items(whole[:cut])
        assert set(values(found, "performance")) <= {1301800.0}
        assert set(values(found, "performance_lu")) <= {2258100.0}
        assert set(values(found, "performance_per_gpu")) <= {162729.31}
        assert set(values(found, "performance_lu_per_gpu")) <= {282265.05}
        assert found[-1].status is not Status.COMPLETE


_PASSED = "4.462302E-04 ...... PASSED"
NASTY = {
    "reportable line is gone": ("       GFLOPS = 1.3018e+06", "       GIFLOPS = 1.3018e+06"),
    "LU line is gone": ("    LU GFLOPS = 2.2581e+06", "    LU GIFLOPS = 2.2581e+06"),
    "rate is nan": ("GFLOPS = 1.3018e+06", "GFLOPS = nan"),
    "rate is inf": ("GFLOPS = 1.3018e+06", "GFLOPS = inf"),
    "rate is negative": ("GFLOPS = 1.3018e+06", "GFLOPS = -1.3018e+06"),
    "rate lost its exponent": ("GFLOPS = 1.3018e+06", "GFLOPS = 1.3018e+"),
    "residual is gone": (_PASSED, "4.462302E-04"),
    "verdict is cut": (_PASSED, "4.462302E-04 ...... PASS"),
    "a third loop never came": (" of 2 ", " of 3 "),
    "a loop has no end": (" ****** test loop 2 of 2 done   ****** \n", ""),
    "the test has no end": (" ****** test 1 of 1 done   ****** \n", ""),
    "a second test never came": ("test 1 of 1", "test 1 of 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_damage_is_never_complete(name):
    old, new = NASTY[name]
    text = text_of("nvidia_26.2_two_loops.txt")
    assert old in text
    found = items(text.replace(old, new, -1 if "of" in old and "done" not in old else 1))
    assert found[-1].status is Status.INCOMPLETE
    assert set(values(found, "performance")) <= {1301800.0, 1305400.0}


FAILED = {
    "FAILED": (_PASSED, "4.462302E-04 ...... FAILED"),
    "nan that claims to pass": (_PASSED, "nan ...... PASSED"),
    "-nan": (_PASSED, "-nan ...... FAILED"),
}


@pytest.mark.parametrize("name", FAILED)
def test_one_failed_check_of_two_fails_the_output(name):
    found = items(text_of("nvidia_26.2_two_loops.txt").replace(*FAILED[name], 1))
    assert found[-1].status is Status.FAILED
    assert facts(found)["failed"] == 1


WRAPPED = ("CRLF", "pdsh", "mpirun tag", "kubernetes", "NCCL between")


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("file", ["nvidia_26.2_two_loops.txt", "rochpl_mxp.txt", "icl_reference.txt"])
def test_wrapped_lines_read_the_same(name, file):
    text = text_of(file)
    wrapped = items("\n".join(WRAPS[name](line) for line in text.splitlines()) + "\n")
    plain = items(text)
    assert readings(wrapped) == readings(plain)
    assert wrapped[-1].status is plain[-1].status


def test_hpl_and_hpl_mxp_in_one_log_do_not_mix():
    double = (DATA.parent / "hpl" / "nvidia_25.9_two_sizes.txt").read_text()
    mixed = text_of("nvidia_26.2_two_loops.txt")
    for text in (double + mixed, mixed + double):
        found = items(text)
        assert values(found, "performance") == [1301800.0, 1305400.0]
        assert found[-1].status is Status.COMPLETE


def test_progress_only_is_incomplete():
    whole = text_of("nvidia_26.2_two_loops.txt")
    found = items(whole[: whole.index("LU seconds")])
    assert values(found, "performance") == []
    assert found[-1].status is Status.INCOMPLETE
    assert facts(found)["last_progress"]["fraction"] == pytest.approx(0.9)


def test_before_the_loop_nothing_ran():
    whole = text_of("nvidia_26.2_two_loops.txt")
    found = items(whole[: whole.index(" ****** Matrix Generation")] + "CUDA error: out of memory\n")
    assert found[-1].status is Status.NOT_STARTED
    assert "out of memory" in found[-1].reason


def test_expectations():
    text = text_of("nvidia_26.2_two_loops.txt")
    assert items(text, tests=2, n=380000, nb=2048, p=4, q=2, precision="fp16")[-1].status is Status.COMPLETE
    for wrong in ({"n": 370000}, {"precision": "FP8"}, {"p": 2}, {"tests": 1}):
        assert items(text, **wrong)[-1].status is Status.INCOMPLETE


@pytest.mark.parametrize("text", ["", "hello\n", "\x00\xff", "GPU0 X NV18\n"])
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        items(text)


def test_double_precision_is_refused_by_name():
    with pytest.raises(OutputError, match="use reader hpl"):
        items((DATA.parent / "hpl" / "nvidia_25.9_two_sizes.txt").read_text())


def test_sniff_prefers_its_own():
    assert all(hpl_mxp.sniff(text_of(name)) > 0.9 for name in FILES)
    assert hpl_mxp.sniff((DATA.parent / "hpl" / "nvidia_25.9_two_sizes.txt").read_text()) == 0.0


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
