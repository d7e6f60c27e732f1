"""nccl-tests' table and its -J report. Layout: nccl-tests 2.17, src/common.cu and src/util.cu."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.simulation.printers import STAMP
from plumbline.simulation.rounding import printed
from plumbline.sums import added

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = "2.17.6"
_SIDE = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
_UNITS = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
_HEADER = (
    f"#\n# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}           out-of-place{'in-place':>31}          \n"
    f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}{_SIDE}{_SIDE} \n"
    f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}{_UNITS}{_UNITS} \n"
)
_REDOP = {"all_reduce": "sum", "reduce_scatter": "sum"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One collective over a sweep: `times_us` [S], `wrong` [S], devices as (host, device number, bus id, product)."""

    operation: str
    sizes: Sequence[int]
    times_us: Sequence[float]
    wrong: Sequence[int]
    factor: float
    devices: Sequence[tuple[str, int, str, str]]
    nccl: str
    step_factor: int
    warmup: int
    iterations: int

    @property
    def rates(self) -> list[tuple[float, float]]:
        """Give algorithm and bus bandwidth of each size, GB/s."""
        return [rates(size, us, self.factor) for size, us in zip(self.sizes, self.times_us, strict=True)]


def rates(size: Any, time_us: Any, factor: float) -> tuple[Any, Any]:
    """Give algorithm and bus bandwidth in GB/s, of one size or of arrays."""
    algorithm = size / time_us / 1e3
    return algorithm, algorithm * factor


def text(table: Table) -> str:
    """Print the table as `<operation>_perf` does, out of place and in place alike."""
    sizes = table.sizes
    lines = [
        STAMP,
        f"# nccl-tests version {VERSION} nccl-headers={_number(table.nccl)} nccl-library={_number(table.nccl)}",
        f"# Collective test starting: {table.operation}_perf",
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {table.step_factor}(factor) "
        f"warmup iters: {table.warmup} iters: {table.iterations} agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {7000 + rank:6d} on {host:>10s} device {device:2d} [{bus}] {product}"
        for rank, (host, device, bus, product) in enumerate(table.devices)
    ]
    redop = _REDOP.get(table.operation, "none")
    rows = []
    for size, us, wrong, (algorithm, bus) in zip(sizes, table.times_us, table.wrong, table.rates, strict=True):
        side = f"  {_float(us, 7)}  {_float(algorithm, 6)}  {_float(bus, 6)}  {wrong:6g}"
        rows.append(f"{size:12d}  {size // 4:12d}  {'float':>8}  {redop:>6}  {-1:6d}{side}{side}")
    total = sum(int(w) for w in table.wrong)
    average = added(bus for _, bus in table.rates) / len(sizes)
    footer = (
        f"# Out of bounds values : {total} {'FAILED' if total else 'OK'}\n# Avg bus bandwidth    : {average:g} \n#\n"
        f"# Collective test concluded: {table.operation}_perf\n#\n\n"
    )
    return "\n".join(lines) + "\n" + _HEADER + "\n".join(rows) + "\n" + footer


def report(table: Table, start_time: str, end_time: str) -> str:
    """Print the report of `-J`, version 1: numbers with six decimals, all on one line."""
    results: list[str] = []
    redop = _REDOP.get(table.operation, "none")
    for size, us, wrong, (algorithm, bus) in zip(table.sizes, table.times_us, table.wrong, table.rates, strict=True):
        side = f'{{"time":{us:.6f},"alg_bw":{algorithm:.6f},"bus_bw":{bus:.6f},"nwrong":{wrong:.6f}}}'
        results.append(
            f'{{"size":{size},"count":{size // 4},"type":"float","redop":"{redop}","root":"{-1:6d}",'
            f'"out_of_place":{side},"in_place":{side},"actual_iterations":{table.iterations},'
            f'"experiment_name":"{table.operation}_perf"}}'
        )
    total = sum(int(w) for w in table.wrong)
    average = added(bus for _, bus in table.rates) / len(table.sizes)
    before = {
        "simulated_by": "plumbline",
        "version": 1,
        "start_time": start_time,
        "args": [f"{table.operation}_perf", "-b", str(table.sizes[0]), "-e", str(table.sizes[-1])],
        "env": [],
        "nccl_version": _number(table.nccl),
        "config": _config(table),
    }
    return (
        f'{json.dumps(before, separators=(",", ":"))[:-1]},"results":[{",".join(results)}],'
        f'"out_of_bounds":{{"count":{total},"okay":"{"false" if total else "true"}"}},'
        f'"average_bus_bandwidth":{{"bandwidth":{average:.6f},"okay":"unchecked"}},"errors":[],"end_time":"{end_time}"}}'
    )


def _config(table: Table) -> dict[str, Any]:
    return {
        "nthreads": 1, "ngpus": 1, "minimum_bytes": table.sizes[0], "maximum_bytes": table.sizes[-1],
        "step_factor": table.step_factor, "warmup_iters": table.warmup, "iterations": table.iterations,
        "aggregated_iterations": 1, "validation": 1, "graph": 0, "blocking_collectives": "false",
        "parallel_init": "false",
        "devices": [
            {"rank": rank, "group": 0, "pid": 7000 + rank, "hostname": host, "device": device, "device_hex": bus,
             "device_info": product}
            for rank, (host, device, bus, product) in enumerate(table.devices)
        ],
    }  # fmt: skip


def _float(value: float, width: int) -> str:
    """Print a number as getFloatStr does: fewer decimals the longer it is."""
    if value < 10.0 ** (width - 3):
        return f"{value:{width}.2f}"
    if value < 10.0 ** (width - 2):
        return f"{value:{width}.1f}"
    if value < 10.0**width:
        return f"{value:{width}.0f}"
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def printed_float(values: NDArray[Any], width: int) -> NDArray[Any]:
    """Give what printing leaves of numbers."""
    import numpy as np

    array = np.asarray(values, float)
    found = printed(array, 2)
    long = array >= 10.0 ** (width - 3)
    if long.any():
        found[long] = [float(_float(value, width)) for value in array[long].tolist()]
    return found


def _number(version: str) -> int:
    major, minor, patch = (int(part) for part in version.split("."))
    return major * 10000 + minor * 100 + patch
