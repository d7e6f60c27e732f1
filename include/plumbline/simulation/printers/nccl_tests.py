"""nccl-tests' table and its -J report. Layout: nccl-tests 2.17, src/common.cu and src/util.cu."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.simulation.printers import STAMP
from plumbline.simulation.rounding import printed

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = "2.17.6"
_SIDE = "     time   algbw   busbw  #wrong"
_UNITS = "     (us)  (GB/s)  (GB/s)        "
_HEADER = (
    f"#\n#{'out-of-place':>74s}{'in-place':>33s}          \n"
    f"#       size         count      type   redop    root{_SIDE}{_SIDE} \n"
    f"#        (B)    (elements)                          {_UNITS}{_UNITS} \n"
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
    rows = [
        f"{size:12d}  {size // 4:12d}  {'float':>8s}  {redop:>6s}  {-1:6d}"
        f"{_time(us)}  {algorithm:6.2f}  {bus:6.2f} {wrong:7d} {_time(us)}  {algorithm:6.2f}  {bus:6.2f} {wrong:7d}"
        for size, us, wrong, (algorithm, bus) in zip(sizes, table.times_us, table.wrong, table.rates, strict=True)
    ]
    total = sum(int(w) for w in table.wrong)
    average = sum(bus for _, bus in table.rates) / len(sizes)
    footer = (
        f"# Out of bounds values : {total} {'FAILED' if total else 'OK'}\n# Avg bus bandwidth    : {average:g} \n#\n"
        f"# Collective test concluded: {table.operation}_perf\n#\n\n"
    )
    return "\n".join(lines) + "\n" + _HEADER + "\n".join(rows) + "\n" + footer


def report(table: Table, start_time: str, end_time: str) -> str:
    """Print the report of `-J`."""
    results: list[dict[str, Any]] = []
    for size, us, wrong, (algorithm, bus) in zip(table.sizes, table.times_us, table.wrong, table.rates, strict=True):
        side = {"time": round(us, 3), "alg_bw": round(algorithm, 4), "bus_bw": round(bus, 4), "nwrong": int(wrong)}
        results.append(
            {"size": size, "count": size // 4, "type": "float", "redop": _REDOP.get(table.operation, "none"),
             "root": -1, "out_of_place": side, "in_place": side}
        )  # fmt: skip
    total = sum(int(w) for w in table.wrong)
    average = sum(bus for _, bus in table.rates) / len(table.sizes)
    return json.dumps(
        {
            "simulated_by": "plumbline",
            "version": f"nccl-tests {VERSION}",
            "start_time": start_time,
            "args": [f"{table.operation}_perf", "-b", str(table.sizes[0]), "-e", str(table.sizes[-1])],
            "env": {},
            "nccl_version": table.nccl,
            "config": {"collective": table.operation, "iterations": table.iterations, "warmup": table.warmup},
            "devices": [
                {"rank": rank, "host": host, "device": device, "pci": bus, "name": product}
                for rank, (host, device, bus, product) in enumerate(table.devices)
            ],
            "results": results,
            "out_of_bounds": {"count": total, "okay": not total},
            "average_bus_bandwidth": {"bandwidth": round(average, 4), "okay": True},
            "end_time": end_time,
        },
        indent=1,
    )


def _time(us: float) -> str:
    """Print a time as nccl-tests does: fewer digits the longer it is."""
    return f"  {us:7.0f}" if us >= 10000 else f"  {us:7.1f}" if us >= 100 else f"  {us:7.2f}"


def printed_time(us: NDArray[Any]) -> NDArray[Any]:
    """Give what printing leaves of times."""
    import numpy as np

    return np.where(us >= 10000, printed(us, 0), np.where(us >= 100, printed(us, 1), printed(us, 2)))


def _number(version: str) -> int:
    major, minor, patch = (int(part) for part in version.split("."))
    return major * 10000 + minor * 100 + patch
