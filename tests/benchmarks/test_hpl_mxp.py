"""The HPL-MxP benchmark: its commands, its rows, and what its output says against it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.benchmarks.launches import launch as planned
from tests.benchmarks.launches import record

from plumbline.benchmarks import benchmark, resolve_params
from plumbline.benchmarks.benchmark import Placement
from plumbline.errors import ConfigError, OutputError
from plumbline.model import Code, Device, LaunchSpec, Origin, canonical_params
from plumbline.readers import Status
from plumbline.units import UNITS

MODULE = benchmark("hpl_mxp")
launch = partial(planned, MODULE)
DATA = Path(__file__).resolve().parents[1] / "data" / "hpl_mxp"


def gpus(nodes=1, per_node=8, accelerator="H100-SXM5-80GB", launcher="kubernetes") -> Placement:
    return Placement(
        launcher=launcher,
        device=Device.GPU,
        origin=Origin.MEASURED,
        nodes=tuple(f"node{i + 1}" for i in range(nodes)),
        accelerators_per_node=per_node,
        accelerator=accelerator,
        fabric="ndr-8x400g",
        python="/usr/bin/python3",
        programs=Path("/opt/plumbline"),
        storage_dir="/scratch",
    )


def this_machine(nodes=1) -> Placement:
    return Placement(
        launcher="local",
        device=Device.CPU,
        origin=Origin.MEASURED,
        nodes=tuple(f"n{i + 1}" for i in range(nodes)),
        accelerators_per_node=1,
        accelerator="cpu",
        fabric="loopback",
        python="/p/.venv-bench/bin/python",
        programs=Path("/p/docker/bench"),
        storage_dir="/p/storage",
    )


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    monkeypatch.setattr("plumbline.benchmarks._mxp_problem.machine_bytes", lambda: 16 << 30)


def command(place: Placement, **given):
    return MODULE.command(place, resolve_params(MODULE, given, "test"))


def measure(tmp_path: Path, text: str, spec: LaunchSpec):
    (tmp_path / "stdout").write_text(text)
    return MODULE.measure(spec, record(spec), tmp_path)


def text_of(name: str) -> str:
    return (DATA / name).read_text()


TWO_LOOPS = {"n": 380000, "nb": 2048, "nprow": 4, "npcol": 2, "precision": "fp16", "loops": 2}


# -- commands ---------------------------------------------------------------------------------------------------------


def test_nvidias_program_gets_the_whole_problem():
    made = command(gpus(), n=380000, sloppy_spelling="number")
    assert made.argv == (
        "/usr/bin/python3", "-m", "plumbline_bench.mpi_ranks", "--hosts", "node1", "--per-node", "8", "--",
        "/workspace/hpl-mxp.sh", "--gpu-affinity", "0:1:2:3:4:5:6:7", "--n", "380000", "--nb", "2048",
        "--nprow", "4", "--npcol", "2", "--nporder", "row", "--sloppy-type", "2", "--test-loop", "1",
    )  # fmt: skip
    assert made.expect == {"n": 380000, "nb": 2048, "p": 4, "q": 2, "tests": 1, "precision": "FP16"}
    assert made.env == {"PYTHONPATH": "/opt/plumbline"}


def test_affinities_and_options_follow():
    argv = command(
        gpus(), cpu_affinity="0-13:14-27", ucx_affinity="mlx5_0", options="--fill-device 1", precision="fp8"
    ).argv
    assert argv[-6:] == ("--cpu-affinity", "0-13:14-27", "--ucx-affinity", "mlx5_0", "--fill-device", "1")
    assert argv[argv.index("--sloppy-type") + 1] == "FP8"


def _n(place: Placement, **given) -> int:
    return int(str(command(place, **given).expect["n"]))


def test_the_matrix_fills_the_gpus_and_grows_with_the_nodes():
    one = _n(gpus())
    assert one == 368640
    assert one % (2048 * 4) == 0
    assert 0.8 < 4 * one**2 / (8 * 80e9) < 0.86
    four = command(gpus(nodes=4)).expect
    assert (four["p"], four["q"]) == (8, 4)
    assert four["n"] == pytest.approx(2 * one, rel=0.03)
    assert int(str(four["n"])) % (2048 * 8) == 0
    assert _n(gpus(nodes=4), n=380000, scaling="strong") == 380000
    assert _n(gpus(nodes=4), n=380000) == pytest.approx(760000, rel=0.03)
    assert _n(gpus(accelerator="H200-SXM-141GB")) > 1.3 * one
    assert _n(gpus(per_node=1)) < one


def test_this_machine_runs_our_own_program():
    made = command(this_machine())
    assert made.argv == (
        "/p/.venv-bench/bin/python", "-m", "plumbline_bench.hpl_mxp", "--n", "16384", "--nb", "256",
        "--precision", "auto", "--device", "cpu", "--loops", "1",
    )  # fmt: skip
    assert made.env == {"PYTHONPATH": "/p/docker/bench", "OMP_WAIT_POLICY": "PASSIVE"}
    assert made.expect == {"n": 16384, "nb": 256, "p": 1, "q": 1, "tests": 1}, "auto may choose: it is not asserted"
    assert command(this_machine(), precision="bf16").expect["precision"] == "BF16"


def test_a_small_machine_gets_a_smaller_matrix(monkeypatch):
    monkeypatch.setattr("plumbline.benchmarks._mxp_problem.machine_bytes", lambda: 4 << 30)
    assert _n(this_machine()) == 8192


def test_one_gpu_may_run_our_own_program():
    argv = command(gpus(per_node=1), program="own", precision="fp16").argv
    assert argv[2] == "plumbline_bench.hpl_mxp"
    assert argv[argv.index("--device") + 1] == "cuda"


@pytest.mark.parametrize(
    ("place", "given", "told"),
    [
        (this_machine(nodes=2), {}, "node_counts"),
        (this_machine(), {"precision": "fp8"}, "knows auto, bf16, fp16, fp32"),
        (this_machine(), {"program": "nvidia"}, "program: own"),
        (this_machine(), {"options": "--fill-device 1"}, "takes none"),
        (this_machine(), {"nb": 20000}, "less than one block"),
        (this_machine(), {"n": 100}, "larger than n 100"),
        (gpus(), {"program": "own"}, "program: nvidia"),
        (gpus(), {"precision": "bf16"}, "fp16, fp8 and fp4"),
        (gpus(), {"nprow": 3}, "3 × 2"),
        (gpus(), {"nprow": 16}, "16 × 0"),
        (gpus(accelerator="unknown"), {}, "not in its name"),
        (gpus(), {"n": "many"}, "hpl_mxp.n must be a whole number"),
        (gpus(), {"nb": 0}, "hpl_mxp.nb must be a whole number"),
        (gpus(), {"n": True}, "hpl_mxp.n must be a whole number"),
        (gpus(), {"options": "'open"}, "as in a shell"),
        (gpus(), {"precision": "fp4", "sloppy_spelling": "number"}, "fp8 or fp16"),
        (gpus(nodes=2), {"n": 1000}, "less than one block"),
    ],
)
def test_what_cannot_be_is_refused(place, given, told):
    with pytest.raises(ConfigError, match=told):
        command(place, **given)


# -- rows -------------------------------------------------------------------------------------------------------------


def test_expected_rows_are_those_that_a_good_run_yields(tmp_path):
    spec = launch(gpus(), **TWO_LOOPS)
    wanted = {(row.indicator, canonical_params(row.params)) for row in MODULE.expected(spec)}
    measured = measure(tmp_path, text_of("nvidia_26.2_two_loops.txt"), spec)
    assert {(value.indicator, canonical_params(value.params)) for value in measured.values} == wanted
    assert len(measured.values) == len(wanted) == 8
    assert measured.findings == ()
    assert [statement.status for statement in measured.completeness] == [Status.COMPLETE]
    by_loop = {(v.indicator, v.params["loop"]): v.value for v in measured.values}
    assert by_loop["effective_flops", 0] == 1301800.0
    assert by_loop["lu_flops", 1] == 2235800.0


def test_our_own_run_yields_efficiency_too(tmp_path):
    spec = launch(this_machine(), n=4096, nb=256, precision="bf16")
    measured = measure(tmp_path, text_of("plumbline_cpu_bf16.txt"), spec)
    assert measured.findings == ()
    values = {value.indicator: value.value for value in measured.values}
    assert set(values) == {row.indicator for row in MODULE.expected(spec)}
    assert values["lu_efficiency"] == pytest.approx(values["lu_flops"] / values["matmul_rate"])
    assert values["effective_flops"] < values["lu_flops"] < values["matmul_rate"]
    wanted = {canonical_params(row.params) for row in MODULE.expected(spec)}
    assert {canonical_params(value.params) for value in measured.values} == wanted


def test_units_are_the_indicators():
    known = {item.name: item for item in MODULE.INDICATORS}
    assert all(item.unit in UNITS for item in MODULE.INDICATORS)
    assert known["effective_flops"].headline
    assert not known["residual"].judged


# -- findings ---------------------------------------------------------------------------------------------------------


def test_a_failed_residual_is_a_finding(tmp_path):
    spec = launch(gpus(), n=360000, nb=4096, nprow=4, npcol=2, precision="fp8")
    measured = measure(tmp_path, text_of("nvidia_25.4_failed.txt"), spec)
    assert [finding.code for finding in measured.findings] == [Code.RESIDUAL_FAILED]
    assert "8.123456E+09" in measured.findings[0].message
    assert measured.completeness[0].status is Status.FAILED


def test_a_loosened_threshold_does_not_let_a_wrong_solution_pass(tmp_path):
    text = text_of("nvidia_26.2_two_loops.txt").replace("1.600000E+01", "1.600000E+09")
    text = text.replace("4.462302E-04 ...... PASSED", "4.462302E+04 ...... PASSED")
    measured = measure(tmp_path, text, launch(gpus(), **TWO_LOOPS))
    assert {finding.code for finding in measured.findings} == {Code.RESIDUAL_FAILED}
    assert "1600000000" in measured.findings[0].message


@pytest.mark.parametrize(
    "asked", [{"n": 370000}, {"nb": 1024}, {"nprow": 2, "npcol": 4}, {"precision": "fp8"}]
)  # fmt: skip
def test_another_problem_than_asked_is_a_finding_and_no_row_of_it(tmp_path, asked):
    spec = launch(gpus(), **{**TWO_LOOPS, **asked})
    measured = measure(tmp_path, text_of("nvidia_26.2_two_loops.txt"), spec)
    assert [finding.code for finding in measured.findings] == [Code.WRONG_PARAMETERS]
    assert "asked was" in measured.findings[0].message
    wanted = {canonical_params(row.params) for row in MODULE.expected(spec)}
    assert not wanted & {canonical_params(value.params) for value in measured.values}
    assert measured.completeness[0].status is Status.INCOMPLETE


def test_missing_and_foreign_output(tmp_path):
    spec = launch(gpus(), **TWO_LOOPS)
    with pytest.raises(OutputError, match="no stdout"):
        MODULE.measure(spec, record(spec), tmp_path)
    with pytest.raises(OutputError):
        measure(tmp_path, "hello\n", spec)
    double = (DATA.parent / "hpl" / "nvidia_25.9_two_sizes.txt").read_text()
    with pytest.raises(OutputError, match="use reader hpl"):
        measure(tmp_path, double, spec)


def test_a_cut_output_is_incomplete(tmp_path):
    text = text_of("nvidia_26.2_two_loops.txt")
    measured = measure(tmp_path, text[: text.rindex("LU GFLOPS")], launch(gpus(), **TWO_LOOPS))
    assert measured.completeness[0].status is Status.INCOMPLETE
    assert len(measured.values) < 8


# -- whose output it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lasted", [0.0, 0.03, 5.0])
def test_a_solve_that_took_longer_than_the_launch_is_an_earlier_ones(tmp_path, lasted):
    spec = launch(gpus(), **TWO_LOOPS)
    (tmp_path / "stdout").write_text(text_of("nvidia_26.2_two_loops.txt"))
    [finding] = MODULE.measure(spec, record(spec, duration_s=lasted), tmp_path).findings
    assert finding.code is Code.OLD_OUTPUT
    assert "another launch's output" in finding.message


def test_the_matrix_takes_its_time_too(tmp_path):
    text = text_of("nvidia_26.2_two_loops.txt")
    spec = launch(gpus(), **TWO_LOOPS)
    assert measure(tmp_path, text, spec).findings == ()
    matrix = "matgen seconds: AVG = 9.05, MAX = 59.05 (0->node1), MIN = 9.05 (0->node1)\n"
    [finding] = measure(
        tmp_path, text.replace(" ****** test loop 1", f"{matrix}\n ****** test loop 1", 1), spec
    ).findings
    assert finding.code is Code.OLD_OUTPUT
