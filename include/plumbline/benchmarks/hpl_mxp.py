"""Mixed-precision dense linear algebra: HPL-MxP, the figure that theoretical FLOPS are held against.

On clusters NVIDIA's `hpl-mxp.sh`, one process a GPU; on this machine, or on one GPU when asked, Plumbline's own
program docker/bench/plumbline_bench/hpl_mxp.py, which also measures the device's matrix-product rate in the same run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from plumbline.benchmarks._mxp_problem import OWN_PROGRAM, Problem, problem
from plumbline.benchmarks._mxp_results import read_launch
from plumbline.benchmarks.benchmark import Command, Expected, Measured, Parameter, Placement
from plumbline.model import Better, Contends, Device, Indicator, LaunchSpec, Params, RunRecord, Scope

NAME = "hpl_mxp"
VERSION = "1"
TITLE = "Mixed-precision linear algebra (HPL-MxP)"
SCOPE = Scope.GROUP
CONTENDS = Contends.FABRIC
READER = "hpl_mxp"
COVERS = "the accelerators' matrix units, clocks and memory, and between nodes the fabric"

_RULES = "https://hpl-mxp.org/rules.md"
_OPERATIONS = "2/3 N³ + 3/2 N² operations"

INDICATORS = (
    Indicator(
        name="effective_flops", unit="GFLOPS", better=Better.HIGHER, title="HPL-MxP, reportable",
        formula=f"{_OPERATIONS} ÷ (factorization + refinement to FP64 accuracy)", source=_RULES, headline=True,
        display="{:,.0f}",
    ),
    Indicator(
        name="lu_flops", unit="GFLOPS", better=Better.HIGHER, title="HPL-MxP, factorization alone",
        formula="2/3 N³ operations ÷ time of the low-precision factorization; never the reportable figure",
        source=_RULES, display="{:,.0f}",
    ),
    Indicator(
        name="residual", unit="1", better=Better.LOWER, title="HPL-MxP scaled residual",
        formula="‖Ax-b‖ ÷ (ε (‖A‖ ‖x‖ + ‖b‖) N) in infinity norms; a run that is not below 16 is a FAIL",
        source=_RULES, display="{:.3g}", judged=False,
    ),
    Indicator(
        name="iterations", unit="count", better=Better.LOWER, title="HPL-MxP refinement iterations",
        formula="iterations of the FP64 solver with the factors as preconditioner; a jump means worse factors",
        source=_RULES, display="{:.0f}", valid_upper=50, judged=False,
    ),
    Indicator(
        name="matmul_rate", unit="GFLOPS", better=Better.HIGHER, title="Dense matrix-product rate",
        formula="2 n³ ÷ the best time of square products in the same precision and run",
        source="docker/bench/plumbline_bench/mxp_products.py", display="{:,.0f}",
    ),
    Indicator(
        name="lu_efficiency", unit="1", better=Better.HIGHER, title="Factorization ÷ matrix-product rate",
        formula="lu_flops ÷ matmul_rate of the same run", source=_RULES, display="{:.1%}",
    ),
)  # fmt: skip

PARAMETERS: Mapping[str, Parameter] = {
    "n": Parameter(
        default=None,
        meaning="order of the matrix at one node; none: 16384 on a CPU (8192 below 8 GiB), on GPUs what their memory "
        "holds (by the accelerator's name, such as H100-SXM5-80GB)",
    ),
    "scaling": Parameter(
        default="weak", meaning="n over more nodes: weak keeps the matrix per GPU, strong keeps n",
        choices=("weak", "strong"),
    ),
    "nb": Parameter(default=None, meaning="block size; none: 256 on a CPU, 2048 on GPUs"),
    "nprow": Parameter(default=None, meaning="process rows; none: the most nearly square grid, more rows than columns"),
    "npcol": Parameter(default=None, meaning="process columns; nprow × npcol is the number of GPUs"),
    "nporder": Parameter(default="row", meaning="order of ranks in the grid", choices=("row", "column")),
    "precision": Parameter(
        default="auto",
        meaning="of the factorization; auto: the fastest on a CPU, fp16 on GPUs. Below 16 bits is outside the rules",
        choices=("auto", "fp16", "bf16", "fp32", "fp8", "fp4"),
    ),
    "loops": Parameter(default=1, meaning="how often the system is solved, each a row of its own", least=1, most=1000),
    "program": Parameter(
        default="auto", meaning="nvidia's hpl-mxp.sh or Plumbline's own; auto: own on this machine, else nvidia's",
        choices=("auto", "nvidia", "own"),
    ),
    "program_path": Parameter(default="/workspace/hpl-mxp.sh", meaning="where hpl-mxp.sh is in the image"),
    "sloppy_spelling": Parameter(
        default="word", meaning="how this image names the precision: FP16, or 2 as images up to 25.4 do",
        choices=("word", "number"),
    ),
    "cpu_affinity": Parameter(default="", meaning="hpl-mxp.sh --cpu-affinity, such as 0-13:14-27; empty leaves it out"),
    "mem_affinity": Parameter(default="", meaning="hpl-mxp.sh --mem-affinity, such as 0:0:1:1"),
    "ucx_affinity": Parameter(default="", meaning="hpl-mxp.sh --ucx-affinity, such as mlx5_0:mlx5_1"),
    "options": Parameter(default="", meaning="further options of hpl-mxp.sh, written as in a shell"),
    "timeout_s": Parameter(default=1800.0, meaning="seconds that the run may take", least=1),
}  # fmt: skip


def command(placement: Placement, params: Params) -> Command:
    """Write the command. Raises ConfigError for a matrix or grid that cannot be."""
    asked = problem(placement, params)
    argv = _own(placement, params, asked) if asked.own else _nvidia(placement, params, asked)
    env = {"PYTHONPATH": str(placement.programs)}
    if asked.own and placement.device is Device.CPU:
        env["OMP_WAIT_POLICY"] = "PASSIVE"  # threads that spin while they wait take the cores from those at work
    return Command(argv=argv, env=env, timeout_s=float(str(params["timeout_s"])), expect=asked.expectations())


def _own(placement: Placement, params: Params, asked: Problem) -> tuple[str, ...]:
    return (
        placement.python, "-m", OWN_PROGRAM,
        "--n", str(asked.n),
        "--nb", str(asked.nb),
        "--precision", asked.precision,
        "--device", "cuda" if placement.device is Device.GPU else "cpu",
        "--loops", str(params["loops"]),
    )  # fmt: skip


def _nvidia(placement: Placement, params: Params, asked: Problem) -> tuple[str, ...]:
    argv = [
        placement.python, "-m", "plumbline_bench.mpi_ranks",
        "--hosts", ",".join(placement.nodes),
        "--per-node", str(placement.accelerators_per_node),
        "--", str(params["program_path"]),
        "--gpu-affinity", ":".join(str(gpu) for gpu in range(placement.accelerators_per_node)),
        "--n", str(asked.n),
        "--nb", str(asked.nb),
        "--nprow", str(asked.p),
        "--npcol", str(asked.q),
        "--nporder", str(params["nporder"]),
        "--sloppy-type", asked.sloppy_type(str(params["sloppy_spelling"])),
        "--test-loop", str(params["loops"]),
    ]  # fmt: skip
    for name in ("cpu_affinity", "mem_affinity", "ucx_affinity"):
        if params[name]:
            argv += [f"--{name.replace('_', '-')}", str(params[name])]
    return (*argv, *asked.options)


def expected(spec: LaunchSpec) -> Iterable[Expected]:
    """Name every row, once a loop."""
    asked = Problem.of(spec)
    names = ["effective_flops", "lu_flops", "residual", "iterations"]
    if asked.own:
        names += ["matmul_rate", "lu_efficiency"]
    for loop in range(asked.loops):
        for name in names:
            yield Expected(indicator=name, params=asked.row_params(loop))


def measure(spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read the launch's output. Raises OutputError when it is not HPL-MxP's, or absent."""
    return read_launch(spec, record, raw_dir)
