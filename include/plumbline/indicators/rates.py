"""Derived from a rate and what physics allows: share of the dense peak, share of the collective's ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plumbline.indicators.definitions import (
    BUS_HEADLINE,
    BUS_OF_CEILING,
    BUS_OF_RATED,
    EFFECTIVE,
    EFFECTIVE_OF_THEORETICAL,
    MFU,
    MODEL_FLOPS,
    THEORETICAL,
)
from plumbline.indicators.rows import Derived, Rows, median, params_of, per_launch
from plumbline.model import Measurement
from plumbline.references.ceilings import (
    GB_S_PER_GBIT_S,
    SOFTWARE,
    accelerator,
    ceiling,
    dense_peak_tflops,
    one_node_ceiling,
)
from plumbline.units import convert
from plumbline.validation.readout import ExpectedRow


def shares_of_peak(rows: Rows) -> Iterator[Derived]:
    """Give theoretical rate and effective ÷ theoretical beside every effective rate of a known peak."""
    for row in rows.readout.expected:
        if row.indicator != EFFECTIVE:
            continue
        peak = dense_peak_tflops(rows.profile.accelerator.model, str(params_of(row.params).get("precision")))
        if peak is None:
            continue
        total = convert(peak * rows.profile.accelerator.per_node * row.node_count, "TFLOPS", "GFLOPS")
        found = rows.of(row)
        share = found.value / total if found is not None and found.unit == "GFLOPS" else None
        yield Derived(row=per_launch(row, THEORETICAL), value=total, unit="GFLOPS", source=found)
        yield Derived(row=per_launch(row, EFFECTIVE_OF_THEORETICAL), value=share, unit="1", source=found)


def model_flops_utilization(rows: Rows) -> Iterator[Derived]:
    """Give MFU beside every model rate whose accelerator and precision have a known dense peak."""
    for row in rows.readout.expected:
        if row.indicator != MODEL_FLOPS:
            continue
        peak = dense_peak_tflops(rows.profile.accelerator.model, str(params_of(row.params).get("precision")))
        if peak is not None:
            found = rows.of(row)
            top = convert(peak, "TFLOPS", "GFLOPS")
            value = found.value / top if found is not None and found.unit == "GFLOPS" else None
            yield Derived(row=per_launch(row, MFU), value=value, unit="1", source=found)


def shares_of_ceiling(rows: Rows) -> Iterator[Derived]:
    """Give bus bandwidth ÷ ceiling beside every headline value whose links and NICs are known.

    Where one node is planned for the same operation, V is what it measured and its absence leaves the ratio NOT_RUN;
    where none is planned, V is the link rate, which makes it another indicator.
    """
    headline = [row for row in rows.readout.expected if row.indicator == BUS_HEADLINE]
    one_node: dict[tuple[str, str], list[Measurement | None]] = {}
    for row in headline:
        if row.node_count == 1:
            one_node.setdefault((row.benchmark, _operation(row)), []).append(rows.of(row))
    known_at = {count: _physics_known(rows, count) for count in {row.node_count for row in headline}}
    measured = {key: median([item.value for item in found if item is not None]) for key, found in one_node.items()}
    for row in headline:
        if not known_at[row.node_count]:
            continue
        found = rows.of(row)
        top = _ceiling(rows, row, measured)
        known = found is not None and found.unit == "GB/s" and top is not None and top > 0
        value = found.value / top if known and found is not None and top is not None else None
        planned = row.node_count == 1 or (row.benchmark, _operation(row)) in measured
        name = BUS_OF_CEILING if planned else BUS_OF_RATED
        yield Derived(row=per_launch(row, name), value=value, unit="1", source=found)


def _operation(row: ExpectedRow) -> str:
    return str(params_of(row.params).get("operation"))


def _physics_known(rows: Rows, node_count: int) -> bool:
    """Say whether a ceiling can be computed from the profile alone, so that the row is expected or not by plan."""
    found = accelerator(rows.profile.accelerator.model)
    if found is None or found.link_gb_s is None or rows.profile.accelerator.per_node < 2:
        return False
    fabric = rows.profile.fabric
    shared = fabric.in_network_reduction or any(node.nvlink_domain for node in rows.plan.inventory)
    return node_count == 1 or (fabric.node_bandwidth_gbit_s is not None and not shared)


def _ceiling(rows: Rows, row: ExpectedRow, one_node: Mapping[tuple[str, str], float | None]) -> float | None:
    operation, gpus = _operation(row), rows.profile.accelerator.per_node
    by_link = one_node_ceiling(operation, gpus, rows.profile.accelerator.model)
    if row.node_count == 1:
        return by_link
    bus = one_node.get((row.benchmark, operation), by_link)
    rate = rows.profile.fabric.node_bandwidth_gbit_s
    if bus is None or rate is None:
        return None
    return ceiling(operation, row.node_count, gpus, bus, rate * GB_S_PER_GBIT_S, SOFTWARE)
