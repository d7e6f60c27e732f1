"""Which physical ceiling holds for a row: bus bandwidth by topology, floating-point rates by the dense peak."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plumbline.amounts import plural
from plumbline.clusters.profile import ClusterProfile
from plumbline.model import Indicator, Measurement, Params, Reference
from plumbline.references.ceilings import GB_S_PER_GBIT_S, SOFTWARE, ceiling, dense_peak_tflops, one_node_ceiling
from plumbline.units import convert

PER_ACCELERATOR = frozenset({"matmul_rate", "model_flops"})
"""Rates of one accelerator; every other rate is of all that take part."""

FLOPS = ("FLOPS", "MFLOPS", "GFLOPS", "TFLOPS", "PFLOPS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """What ceilings are computed from.

    `one_node_busbw` is operation → the highest bus bandwidth (GB/s) measured in, or expected of, one node.
    `nvlink_domains` says that nodes share NVLink, so that the network term can't be known. `launch_params` is benchmark
    → the parameters of its launches.
    """

    profile: ClusterProfile
    one_node_busbw: Mapping[str, float] = field(default_factory=dict)
    nvlink_domains: bool = False
    launch_params: Mapping[str, Params] = field(default_factory=dict)

    @property
    def algorithm(self) -> str | None:
        """Give what is known of how data crosses the network; None where it might be reduced on its way."""
        return None if self.profile.fabric.in_network_reduction or self.nvlink_domains else SOFTWARE

    @property
    def node_bandwidth(self) -> float | None:
        """All NICs of a node in one direction, GB/s; None where unknown."""
        rate = self.profile.fabric.node_bandwidth_gbit_s
        return None if rate is None else rate * GB_S_PER_GBIT_S


def one_node_busbw(rows: Iterable[Measurement], references: Iterable[Reference]) -> dict[str, float]:
    """Give operation → the highest bus bandwidth of one node in GB/s, measured at any size or expected.

    What is expected counts too: with every node slow, a good value of several nodes must not look impossible.
    """
    best: dict[str, float] = {}
    for item in references:
        operation = item.match.get("operation")
        named = item.indicator.startswith("bus_bandwidth") and 1 in item.node_counts and item.kind != "physical"
        if named and isinstance(operation, str) and item.value is not None:
            best[operation] = max(best.get(operation, 0.0), item.value)
    by_params: dict[str, float] = {}
    for row in rows:
        if row.node_count == 1 and row.indicator.startswith("bus_bandwidth") and row.unit == "GB/s":
            value = row.value
            if isinstance(value, (int, float)) and by_params.get(row.params, 0.0) < value < float("inf"):
                by_params[row.params] = value
    for params, value in by_params.items():
        operation = json.loads(params).get("operation")
        if isinstance(operation, str):
            best[operation] = max(best.get(operation, 0.0), value)
    return best


def physical_ceiling(
    benchmark: str, meant: Indicator, node_count: int, params: Params, physics: Physics
) -> tuple[float, str] | None:
    """Give the ceiling of a row in the indicator's unit and what it rests on; None where none is known."""
    if meant.unit in FLOPS:
        return _flops_ceiling(benchmark, meant, node_count, params, physics)
    if meant.unit == "GB/s" and meant.name.startswith("bus_bandwidth"):
        operation = params.get("operation")
        return _bus_ceiling(str(operation), node_count, physics) if operation else None
    return None


def _flops_ceiling(
    benchmark: str, meant: Indicator, node_count: int, params: Params, physics: Physics
) -> tuple[float, str] | None:
    precision = params.get("precision", physics.launch_params.get(benchmark, {}).get("precision"))
    model = physics.profile.accelerator.model
    # Frameworks may compute fp32 products in TF32.
    names = ("fp32", "tf32") if precision == "fp32" else (str(precision),)
    peak = max((rate for name in names if (rate := dense_peak_tflops(model, name)) is not None), default=None)
    if peak is None:
        return None
    count = 1 if meant.name in PER_ACCELERATOR else node_count * physics.profile.accelerator.per_node
    total = convert(peak * count, "TFLOPS", meant.unit)
    return total, f"dense {precision} peak of {count} × {model}"


def _bus_ceiling(operation: str, node_count: int, physics: Physics) -> tuple[float, str] | None:
    profile = physics.profile
    gpus = profile.accelerator.per_node
    by_link = one_node_ceiling(operation, gpus, profile.accelerator.model)
    if node_count == 1:
        return None if by_link is None else (by_link, f"link rate of {profile.accelerator.model}, {gpus} in a node")
    known = [rate for rate in (physics.one_node_busbw.get(operation), by_link) if rate is not None]
    one_node = min(known) if known else None
    found = ceiling(operation, node_count, gpus, one_node, physics.node_bandwidth, physics.algorithm)
    if found is None:
        return None
    parts = []
    if one_node is not None and gpus > 1:
        parts.append(f"{one_node:.4g} GB/s in one node")
    if physics.node_bandwidth is not None and physics.algorithm is not None:
        parts.append(f"{physics.node_bandwidth:.4g} GB/s of NICs a node")
    return found, f"{operation} at {plural(node_count, 'node')} with {' and '.join(parts)}"
