"""Collective communication: bus bandwidth and latency of collectives over message size, results checked.

On GPUs the real `<operation>_perf` programs, started one after the other by docker/bench/plumbline_bench/nccl_sweep.py.
On this machine Plumbline's own torch.distributed program, which prints the same table. One rank alone has no bus: it
is measured for latency and right results only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from plumbline.benchmarks._nccl_rows import Sweep, bandwidth_factor, read_launch
from plumbline.benchmarks.benchmark import Command, Expected, Measured, Parameter, Placement
from plumbline.errors import ConfigError, near_match
from plumbline.model import Better, Contends, Indicator, LaunchSpec, Params, RunRecord, Scalar, Scope

NAME = "nccl_tests"
VERSION = "1"
TITLE = "Collective bus bandwidth and latency (nccl-tests)"
SCOPE = Scope.GROUP
CONTENDS = Contends.FABRIC
READER = "nccl_tests"
COVERS = "the path between accelerators: NVLink and its switches in a node, NICs, cables and switches between nodes"

_SOURCE = "nccl-tests, doc/PERFORMANCE.md; out of place, maximum time over the ranks (-a 3)"
_FORMULA = (
    "message bytes ÷ time × factor(operation, ranks); factor 2(n-1)/n for all_reduce, 1 for sendrecv, else (n-1)/n"
)

INDICATORS = (
    Indicator(
        name="bus_bandwidth", unit="GB/s", better=Better.HIGHER, title="Bus bandwidth by message size",
        formula=_FORMULA, source=_SOURCE, resolution=0.01,
    ),
    Indicator(
        name="bus_bandwidth_headline", unit="GB/s", better=Better.HIGHER, title="Bus bandwidth of the headline size",
        formula=f"bus bandwidth at headline_message_bytes, never at another size; {_FORMULA}", source=_SOURCE,
        headline=True, resolution=0.01,
    ),
    Indicator(
        name="bus_bandwidth_peak", unit="GB/s", better=Better.HIGHER, title="Highest bus bandwidth of all sizes",
        formula="maximum over message sizes of bus bandwidth", source=_SOURCE, resolution=0.01,
    ),
    Indicator(
        name="latency_smallest", unit="us", better=Better.LOWER, title="Time of the smallest message",
        formula="mean time of one operation at min_bytes", source=_SOURCE, headline=True,
    ),
    Indicator(
        name="wrong_results", unit="count", better=Better.LOWER, title="Wrong elements of all checked results",
        formula="sum of the column #wrong over all sizes; any but 0 is a FAIL", source="nccl-tests, -c 1",
        display="{:.0f}", judged=False,
    ),
)  # fmt: skip

PARAMETERS: Mapping[str, Parameter] = {
    "operations": Parameter(
        default="all_reduce,all_gather",
        meaning="comma-separated: all_reduce, all_gather, reduce_scatter, alltoall, sendrecv",
    ),
    "min_bytes": Parameter(default="auto", meaning="smallest message; auto is 2K on GPUs (more at scale), 8K on CPUs"),
    "max_bytes": Parameter(default="auto", meaning="largest message; auto is 8G on GPUs, 16M on CPUs"),
    "step_factor": Parameter(default=0, meaning="from one size to the next; 0 is 4 on GPUs, 2 on CPUs", least=0),
    "headline_message_bytes": Parameter(
        default="auto", meaning="the size that stands for the run; auto is 8G on GPUs, max_bytes on CPUs"
    ),
    "warmup": Parameter(default=5, meaning="runs before the timed ones", least=0, most=1_000_000),
    "iterations": Parameter(default=20, meaning="timed runs of each size", least=1, most=1_000_000),
    "dtype": Parameter(
        default="float", meaning="data type", choices=("float", "double", "half", "bfloat16", "int32")
    ),
    "transport": Parameter(
        default="", meaning="transport between nodes that NCCL must use, by its log (NET/IB); empty asserts none"
    ),
    "programs_dir": Parameter(default="/opt/nccl-tests/build", meaning="where the *_perf programs are in the image"),
    "timeout_s": Parameter(default=900.0, meaning="seconds that all operations together may take", least=1),
}  # fmt: skip


def command(placement: Placement, params: Params) -> Command:
    """Write the command. Raises ConfigError for unknown operations and sizes that cannot be swept."""
    sweep = Sweep.of(params, placement.device, placement.ranks)
    _check(sweep)
    common = [
        "--operations", ",".join(sweep.operations),
        "--min-bytes", str(sweep.sizes[0]),
        "--max-bytes", str(sweep.max_bytes),
        "--step-factor", str(sweep.step_factor),
        "--warmup", str(params["warmup"]),
        "--iterations", str(params["iterations"]),
        "--dtype", str(params["dtype"]),
    ]  # fmt: skip
    env = {"PYTHONPATH": str(placement.programs)}
    outputs: tuple[str, ...] = ("stdout",)
    if placement.launcher == "local":
        program = ["collectives", "--nodes", str(placement.ranks), "--check", "1", "--in-place", "0"]
    else:
        program = [
            "nccl_sweep",
            "--hosts", ",".join(placement.nodes),
            "--per-node", str(placement.accelerators_per_node),
            "--programs-dir", str(params["programs_dir"]),
        ]  # fmt: skip
        # The transport that is used stands in NCCL's own lines only.
        env |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
        outputs = ("stdout", "*.txt", "*.json")
    return Command(
        argv=(placement.python, "-m", f"plumbline_bench.{program[0]}", *program[1:], *common),
        env=env,
        timeout_s=float(str(params["timeout_s"])),
        outputs=outputs,
        expect=sweep.expectations(params),
    )


def _check(sweep: Sweep) -> None:
    for name in sweep.operations:
        if bandwidth_factor(name, 2) is None:
            known = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
            raise ConfigError(f"{NAME}.operations: no operation {name!r}{near_match(name, known)}")
    if not sweep.operations or len(set(sweep.operations)) != len(sweep.operations):
        raise ConfigError(f"{NAME}.operations must name operations once each, not {sweep.operations!r}")
    if not sweep.sizes:
        raise ConfigError(f"{NAME}.min_bytes {sweep.min_bytes} is larger than max_bytes {sweep.max_bytes}")
    if sweep.min_bytes < sweep.least_bytes:
        raise ConfigError(
            f"{NAME}.min_bytes {sweep.min_bytes} leaves {sweep.ranks} ranks less than 16 bytes each, which the tests "
            f"round down to nothing; write at least {sweep.least_bytes}"
        )


def expected(spec: LaunchSpec) -> Iterable[Expected]:
    """Name every row. One rank alone has no bus bandwidth."""
    sweep = Sweep.of(spec.params, spec.device, spec.node_count * spec.accelerators_per_node)
    for operation in sweep.operations:
        where: dict[str, Scalar] = {"operation": operation}
        if sweep.ranks > 1:
            for size in sweep.sizes:
                yield Expected(indicator="bus_bandwidth", params={**where, "message_bytes": size})
            yield Expected(indicator="bus_bandwidth_headline", params={**where, "message_bytes": sweep.headline_bytes})
            yield Expected(indicator="bus_bandwidth_peak", params=where)
        yield Expected(indicator="latency_smallest", params={**where, "message_bytes": sweep.sizes[0]})
        yield Expected(indicator="wrong_results", params=where)


def measure(spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read the tables and reports of one launch. Raises OutputError when a file is unreadable or none is there."""
    return read_launch(spec, record, raw_dir)
