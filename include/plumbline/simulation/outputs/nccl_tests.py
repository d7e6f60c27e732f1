"""nccl_tests: one table an operation, `<operation>.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._nccl_rows import Sweep
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night
from plumbline.simulation.physics import bus_factor, collective_times, wrong_elements
from plumbline.simulation.printers.nccl_tests import Table, text

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sweep_of(specs: Sequence[LaunchSpec]) -> Sweep:
    """Give the sweep that all launches of a batch were asked for."""
    first = specs[0]
    return Sweep.of(first.params, first.device, first.node_count * first.accelerators_per_node)


def times(night: Night, specs: Sequence[LaunchSpec]) -> dict[str, NDArray[Any]]:
    """Give the times of every operation, microseconds: [launches, sizes]."""
    groups, sweep = night.groups(specs), sweep_of(specs)
    return {
        operation: collective_times(
            operation, sweep.sizes, night.truth, groups, night.model, night.noise("nccl", operation, groups.nodes)
        )
        for operation in sweep.operations
    }


def wrong(night: Night, specs: Sequence[LaunchSpec]) -> dict[str, NDArray[Any]]:
    """Give the wrong elements of every operation: [launches, sizes]."""
    groups, sweep = night.groups(specs), sweep_of(specs)
    shape = (len(specs), len(sweep.sizes))
    return {
        operation: wrong_elements(night.truth, groups, shape, night.noise("wrong", operation, groups.nodes))
        for operation in sweep.operations
    }


def files(night: Night, specs: Sequence[LaunchSpec]) -> Iterator[Mapping[str, str]]:
    """Print one table an operation and launch."""
    sweep, all_times, all_wrong = sweep_of(specs), times(night, specs), wrong(night, specs)
    for row, spec in enumerate(specs):
        devices = [device for name in spec.nodes for device in night.devices(name)]
        nccl = night.nccl([night.node(name) for name in spec.nodes])
        yield {
            f"{operation}.txt": text(
                Table(
                    operation=operation,
                    sizes=sweep.sizes,
                    times_us=all_times[operation][row].tolist(),
                    wrong=all_wrong[operation][row].tolist(),
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
