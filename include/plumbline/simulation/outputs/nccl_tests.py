"""nccl_tests: one table an operation, `<operation>.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._nccl_rows import Sweep
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night, Nights, Rung
from plumbline.simulation.outputs import Printed
from plumbline.simulation.physics import bus_factor, collective_times, wrong_elements
from plumbline.simulation.printers.nccl_tests import Table, printed_float, rates, text
from plumbline.sums import added

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LOW_BYTES_PER_S = 2e10
"""Of one operation. Assumption."""


def sweep_of(rung: Rung) -> Sweep:
    """Give the sweep that all launches of a rung were asked for."""
    spec = rung.spec
    return Sweep.of(spec.params, spec.device, spec.node_count * spec.accelerators_per_node)


def times(nights: Nights, rung: Rung, operation: str, sizes: Sequence[int]) -> NDArray[Any]:
    """Give the times of an operation, microseconds: [launches, sizes]."""
    noise = nights.noise("nccl", operation, rung.groups.nodes)
    return collective_times(operation, sizes, nights.truth, rung.groups, nights.model, noise)


def wrong(nights: Nights, rung: Rung, operation: str, sizes: Sequence[int]) -> NDArray[Any]:
    """Give the wrong elements of an operation: [launches, sizes]."""
    noise = nights.noise("wrong", operation, rung.groups.nodes)
    return wrong_elements(nights.truth, rung.groups, (len(rung.groups.index), len(sizes)), noise)


def files(night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int], begin: datetime) -> Iterator[Printed]:
    """Print one table an operation and launch: they tell no moment, only how long each operation took."""
    del begin
    nights = Nights.of([night])
    rung = nights.rung_of(specs)
    sweep = sweep_of(rung)
    made = {name: times(nights, rung, name, sweep.sizes) for name in sweep.operations}
    errors = {name: wrong(nights, rung, name, sweep.sizes) for name in sweep.operations}
    for row in rows:
        spec = specs[row]
        devices = [device for name in spec.nodes for device in night.devices(name)]
        nccl = night.nccl([night.node(name) for name in spec.nodes])
        tables = {
            f"{operation}.txt": text(
                Table(
                    operation=operation,
                    sizes=sweep.sizes,
                    times_us=made[operation][row].tolist(),
                    wrong=errors[operation][row].tolist(),
                    factor=bus_factor(operation, sweep.ranks),
                    devices=devices,
                    nccl=nccl,
                    step_factor=sweep.step_factor,
                    warmup=int(str(spec.params["warmup"])),
                    iterations=int(str(spec.params["iterations"])),
                )
            )
            for operation in sweep.operations
        }
        yield Printed(tables, _took_s(spec, [made[name][row].tolist() for name in sweep.operations]))


def _took_s(spec: LaunchSpec, times_us: Sequence[Sequence[float]]) -> float:
    """Give how long the sweeps took."""
    return added(time for times in times_us for time in times) * _runs(spec) / 1e6


def _runs(spec: LaunchSpec) -> int:
    """Give how often an operation runs at one size: warmed up and timed, out of place and in place."""
    return 2 * (int(str(spec.params["warmup"])) + int(str(spec.params["iterations"])))


def works_s(spec: LaunchSpec) -> float:
    """Give how long the sweeps take at a low bandwidth."""
    sweep = Sweep.of(spec.params, spec.device, spec.node_count * spec.accelerators_per_node)
    return len(sweep.operations) * sum(sweep.sizes) / _LOW_BYTES_PER_S * _runs(spec)


def values(nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give the printed bus bandwidths, the time of the smallest message and the wrong elements of each operation."""
    import numpy as np

    sweep = sweep_of(rung)
    sizes, columns = np.array(sweep.sizes, float), []
    told = np.zeros(len(rung.groups.index), bool)
    for operation in sweep.operations:
        made = times(nights, rung, operation, sweep.sizes)
        errors = wrong(nights, rung, operation, sweep.sizes).sum(axis=1)
        told |= errors > 0
        if sweep.ranks > 1:
            bus = printed_float(rates(sizes, made, bus_factor(operation, sweep.ranks))[1], 6)
            columns += list(bus.T)
            at = sweep.sizes.index(sweep.headline_bytes) if sweep.headline_bytes in sweep.sizes else None
            columns.append(np.full(len(bus), np.nan) if at is None else bus[:, at])
            columns.append(bus.max(axis=1))
        columns.append(printed_float(made[:, 0], 7))
        columns.append(errors.astype(float))
    return np.stack(columns, axis=1), told
