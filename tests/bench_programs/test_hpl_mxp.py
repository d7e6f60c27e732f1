"""Plumbline's own HPL-MxP: the right matrix, the right solution, and no pass with wrong factors. Small N, no timing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.bench_programs.bench_python import NEEDED, PROGRAMS, run_python

from plumbline.readers import hpl_mxp
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.readers.source import Source

pytestmark = NEEDED

NUMERICS = """
import json
import numpy, torch
from plumbline_bench import mxp_matrix, mxp_products, mxp_solver

torch.set_num_threads(1)
cpu = torch.device("cpu")
found = {}

matrix, b = mxp_matrix.generate(7, 1, cpu)
found["matrix"], found["b"] = matrix.tolist(), b.tolist()

matrix, b = mxp_matrix.generate(300, 1, cpu)
exact = numpy.linalg.solve(matrix.numpy(), b.numpy())
norm = mxp_matrix.row_sums(matrix).max().item()
found["dominance"] = (2 * matrix.diagonal().abs() - mxp_matrix.row_sums(matrix)).abs().max().item()


def solve(kind, spoil=None, nb=64):
    factors = mxp_solver.to_low_precision(matrix, nb, kind)
    told = []
    mxp_solver.factorize(factors, told.append)
    if spoil:
        spoil(factors)
    reports = []
    x, check, iterations = mxp_solver.refine(matrix, b, factors.solve, norm, lambda k, c: reports.append(k))
    error = numpy.abs(x.numpy() - exact).max() / numpy.abs(exact).max()
    return factors, {"error": float(error), "scaled": check.scaled, "passed": check.passed, "iterations": iterations,
                     "columns": told, "reports": reports}


for name, kind in mxp_products.PRECISIONS.items():
    factors, found[name] = solve(kind)
    first = factors.solve(b)
    found[name]["first_error"] = ((first - torch.from_numpy(exact)).norm() / numpy.linalg.norm(exact)).item()
_, found["one block"] = solve(torch.float32, nb=300)


def zero_block(factors):
    factors.upper_inverses[2].zero_()


def nan_block(factors):
    factors.low[64:128, 128:192] = float("nan")



for spoil in (zero_block, nan_block):
    _, found[spoil.__name__] = solve(torch.bfloat16, spoil)

needs_pivots = matrix.clone()
needs_pivots[0, 0] = 1e-3
try:
    mxp_solver.factorize(mxp_solver.to_low_precision(needs_pivots, 64, torch.float32), lambda columns: None)
except mxp_solver.PivotError:
    found["pivot"] = "refused"

step, taken = mxp_solver._gmres_cycle(matrix, b, lambda v: v, 1e-10, 50)
found["identity"] = {"taken": taken, "residual": (b - matrix @ step).norm().item()}
print(json.dumps(found))
"""

FAILING_RUN = """
import sys
from plumbline_bench import hpl_mxp, mxp_solver

factorize = mxp_solver.factorize

def spoiled(factors, progress):
    factorize(factors, progress)
    factors.upper_inverses[1].zero_()

hpl_mxp.factorize = spoiled
sys.exit(hpl_mxp.main(["--n", "256", "--nb", "64", "--precision", "bf16", "--device", "cpu", "--rate-sizes", "128",
                       "--rate-seconds", "0.1"]))
"""


def python(*argv, check=True):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": PROGRAMS, "OMP_WAIT_POLICY": "PASSIVE"}
    done = run_python(*argv, env=env)
    if check:
        assert done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def numerics():
    return json.loads(python("-c", NUMERICS).stdout)


def reference_matrix(n, seed):
    """The reference's generator in plain integers: one linear congruential sequence, column after column."""
    state, mask = seed, (1 << 64) - 1
    matrix = [[0.0] * n for _ in range(n)]
    for j in range(n):
        for i in range(n):
            state = (state * 6364136223846793005 + 1) & mask
            matrix[i][j] = state * 2.0**-64 - 0.5
    for i in range(n):
        matrix[i][i] = sum(abs(matrix[i][j]) for j in range(n)) - abs(matrix[i][i])
    state, vector = seed + 1, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1) & mask
        vector.append(state * 2.0**-64 - 0.5)
    return matrix, vector


def test_the_matrix_is_the_references(numerics):
    matrix, vector = reference_matrix(7, 1)
    for mine, theirs in zip([*numerics["matrix"], numerics["b"]], [*matrix, vector], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-15)
    assert numerics["dominance"] < 1e-12


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_solution_has_double_accuracy_whatever_the_factors_precision(numerics, precision):
    found = numerics[precision]
    assert found["error"] < 1e-12
    assert found["scaled"] < 1
    assert found["passed"] is True
    assert 0 <= found["iterations"] <= 6
    assert found["columns"] == [64, 128, 192, 256, 300]
    assert found["reports"][0] == 0
    assert found["reports"][-1] == found["iterations"]


def test_the_factors_precision_shows_before_refinement(numerics):
    assert numerics["fp32"]["first_error"] < 1e-6
    assert 1e-6 < numerics["bf16"]["first_error"] < 1e-2
    assert numerics["fp16"]["first_error"] < numerics["bf16"]["first_error"]
    assert numerics["one block"]["error"] < 1e-12


@pytest.mark.parametrize("spoiled", ["zero_block", "nan_block"])
def test_wrong_factors_fail(numerics, spoiled):
    assert numerics[spoiled]["passed"] is False
    assert numerics[spoiled]["iterations"] <= 50


def test_a_matrix_that_needs_pivots_is_refused(numerics):
    assert numerics["pivot"] == "refused"


def test_gmres_converges_without_a_preconditioner(numerics):
    assert numerics["identity"]["residual"] < 1e-9
    assert 1 < numerics["identity"]["taken"] <= 50


def read(text, **expect):
    items = list(hpl_mxp.read(Source.of_text(text), expect))
    return items, {item.indicator: item for item in items if isinstance(item, Reading)}


def test_a_run_reads_as_complete():
    done = python("-m", "plumbline_bench.hpl_mxp", "--n", "384", "--nb", "64", "--rate-sizes", "256,512",
                  "--device", "cpu", "--precision", "bf16", "--rate-seconds", "0.1")  # fmt: skip
    items, found = read(done.stdout, n=384, nb=64, p=1, q=1, precision="bf16", tests=1)
    assert items[-1].status is Status.COMPLETE, items[-1]
    assert found["performance"].params == {"N": 384, "NB": 64, "P": 1, "Q": 1, "precision": "BF16"}
    assert 0 < found["performance"].value < found["performance_lu"].value
    assert found["matmul_rate"].value > 0
    assert found["residual"].value < 16
    seconds = (2 / 3 * 384**3 - 384**2 / 2) / found["performance_lu"].value / 1e9
    assert seconds == pytest.approx(found["time_lu"].value, rel=1e-3, abs=2e-4)
    facts = {item.name: item.value for item in items if isinstance(item, Fact)}
    assert (facts["program"], facts["verdict"]) == ("HPL-MxP-Plumbline", "PASSED")
    assert "not a vendor's" in done.stdout


def test_loops_and_auto_precision():
    done = python("-m", "plumbline_bench.hpl_mxp", "--n", "256", "--nb", "256", "--rate-sizes", "256",
                  "--device", "cpu", "--loops", "2", "--rate-seconds", "0.1")  # fmt: skip
    items, _ = read(done.stdout, tests=2)
    assert items[-1].status is Status.COMPLETE
    facts = {item.name: item.value for item in items if isinstance(item, Fact)}
    assert facts["precision"] in ("BF16", "FP16", "FP32")


def test_a_failed_residual_ends_with_status_1_and_says_so():
    done = python("-c", FAILING_RUN, check=False)
    assert done.returncode == 1
    items, found = read(done.stdout)
    assert items[-1].status is Status.FAILED
    assert found["residual"].value > 16


WRONG_USE = {
    "at least 8": ["--n", "4"],
    "larger than --n": ["--n", "64", "--nb", "128"],
    "are free; --n": ["--n", "400000"],
    "invalid choice": ["--n", "64", "--nb", "64", "--precision", "fp8"],
    "no CUDA device": ["--n", "64", "--nb", "64", "--device", "cuda"],
}
ALL_WRONG_USE = """
import contextlib, io, json, sys
from plumbline_bench import hpl_mxp

told = []
for argv in json.loads(sys.argv[1]):
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = hpl_mxp.main(argv)
        except SystemExit as error:
            status = error.code
    told.append([status, output.getvalue()])
print(json.dumps(told))
"""


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_wrong_use_ends_with_status_2():
    found = json.loads(python("-c", ALL_WRONG_USE, json.dumps(list(WRONG_USE.values()))).stdout)
    for (status, output), told in zip(found, WRONG_USE, strict=True):
        assert status == 2, output
        assert told in output


def test_mpi_ranks_writes_the_command():
    probe = (
        "import json, plumbline_bench.mpi_ranks as m;"
        "e = {'NCCL_DEBUG': 'INFO', 'PATH': '/bin', 'HOME': '/x', 'PLUMBLINE_MPIRUN_ARGS': '--mca btl tcp'};"
        "print(json.dumps([m.mpirun_argv(['a'], 1, e, True), m.mpirun_argv(['a'], 8, e, False),"
        " m.mpirun_argv(['a', 'b'], 8, e, True)]))"
    )
    alone, node, two = json.loads(python("-c", probe).stdout)
    assert alone == []
    assert node == ["mpirun", "-np", "8", "--bind-to", "none", "--mca", "btl", "tcp"]
    assert two == [
        "mpirun", "-np", "16", "--bind-to", "none", "--map-by", "ppr:8:node", "--host", "a:8,b:8",
        "-x", "NCCL_DEBUG", "-x", "PATH", "--allow-run-as-root", "--mca", "btl", "tcp",
    ]  # fmt: skip


def test_mpi_ranks_becomes_the_program_or_says_why_not():
    argv = ["-m", "plumbline_bench.mpi_ranks", "--hosts", "here", "--per-node", "1", "--"]
    done = python(*argv, "/bin/echo", "--n", "7")
    assert done.stdout.splitlines()[-1] == "--n 7"
    done = python(*argv, "/nowhere/hpl-mxp.sh", check=False)
    assert done.returncode == 127
    assert "No such file" in done.stderr
