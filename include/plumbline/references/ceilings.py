"""What physics allows: link rates, dense peaks, and the highest bus bandwidth that a collective can have.

A value above `TOLERANCE` × its ceiling is not fast hardware but a wrong measurement (formula, unit, cache).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

TOLERANCE = 1.02
"""Clocks and timers are off by a little. Assumption: 2 % covers boost clocks above the rated and timer error."""

GB_S_PER_GBIT_S = 1 / 8

PCIE_GB_S: Mapping[tuple[int, int], float] = {
    (generation, lanes): rate * lanes
    for generation, rate in ((3, 0.985), (4, 1.969), (5, 3.938), (6, 7.563))
    for lanes in (1, 2, 4, 8, 16)
}
"""(generation, lanes) → GB/s in one direction after line coding. Source: PCI-SIG, 8/16/32 GT/s at 128b/130b, 64 GT/s
with 242/256 FLIT efficiency."""

NIC_GB_S: Mapping[str, float] = {"EDR": 12.5, "HDR": 25.0, "NDR": 50.0, "XDR": 100.0}
"""InfiniBand 4x generation → GB/s of one port in one direction. Source: IBTA roadmap (100, 200, 400, 800 Gbit/s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Data sheet of one accelerator. `dense_tflops` is by precision, without sparsity; rates are GB/s.

    `link_gb_s` is all of its scale-up links in one direction; `multicast` says whether the switch reduces and
    multicasts (NVLink SHARP), which lifts the bus bandwidth of an all-reduce above the link rate.
    """

    model: str
    dense_tflops: Mapping[str, float]
    memory_gb_s: float
    link_gb_s: float | None
    multicast: bool
    pcie_generation: int | None
    source: str
    names: tuple[str, ...] = ()
    """Other spellings: what drivers print."""


def _peaks(
    fp64: float, fp64_tensor: float, fp32: float, tf32: float, fp16: float, fp8: float | None = None,
    fp4: float | None = None,
) -> dict[str, float]:  # fmt: skip
    peaks = {"fp64": fp64, "fp64_tensor": fp64_tensor, "fp32": fp32, "tf32": tf32, "fp16": fp16, "bf16": fp16}
    return {**peaks, **({"fp8": fp8} if fp8 else {}), **({"fp4": fp4} if fp4 else {})}


_H100 = _peaks(33.5, 66.9, 66.9, 494.7, 989.4, 1978.9)
_MI300 = _peaks(81.7, 163.4, 163.4, 653.7, 1307.4, 2614.9)

ACCELERATORS: tuple[Accelerator, ...] = (
    Accelerator(
        model="V100-SXM2-32GB", dense_tflops={"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}, memory_gb_s=900,
        link_gb_s=150, multicast=False, pcie_generation=3, source="NVIDIA V100 data sheet, 2020",
        names=("Tesla V100-SXM2-32GB", "Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
    ),
    Accelerator(
        model="A100-SXM4-80GB", dense_tflops=_peaks(9.7, 19.5, 19.5, 156, 312), memory_gb_s=2039, link_gb_s=300,
        multicast=False, pcie_generation=4, source="NVIDIA A100 data sheet, 2022",
    ),
    Accelerator(
        model="A100-SXM4-40GB", dense_tflops=_peaks(9.7, 19.5, 19.5, 156, 312), memory_gb_s=1555, link_gb_s=300,
        multicast=False, pcie_generation=4, source="NVIDIA A100 data sheet, 2022",
    ),
    Accelerator(
        model="A100-PCIE-80GB", dense_tflops=_peaks(9.7, 19.5, 19.5, 156, 312), memory_gb_s=1935, link_gb_s=300,
        multicast=False, pcie_generation=4, source="NVIDIA A100 data sheet, 2022", names=("A100 80GB PCIe",),
    ),
    Accelerator(
        model="H100-SXM5-80GB", dense_tflops=_H100, memory_gb_s=3352, link_gb_s=450, multicast=True,
        pcie_generation=5, source="NVIDIA H100 architecture white paper v1.04, table 2",
        names=("H100 80GB HBM3", "H100", "H100-SXM5"),
    ),
    Accelerator(
        model="H100-PCIE-80GB", dense_tflops=_peaks(25.6, 51.2, 51.2, 378, 756, 1513), memory_gb_s=2039, link_gb_s=300,
        multicast=False, pcie_generation=5, source="NVIDIA H100 architecture white paper v1.04, table 2",
        names=("H100 PCIe",),
    ),
    Accelerator(
        model="H100-NVL-94GB", dense_tflops=_peaks(30, 60, 60, 417.5, 835.5, 1670.5), memory_gb_s=3938, link_gb_s=300,
        multicast=False, pcie_generation=5, source="NVIDIA H100 data sheet, 2024 (sparse figures halved)",
        names=("H100 NVL",),
    ),
    Accelerator(
        model="H200-SXM5-141GB", dense_tflops=_H100, memory_gb_s=4800, link_gb_s=450, multicast=True,
        pcie_generation=5, source="NVIDIA H200 data sheet, 2024 (sparse figures halved)",
        names=("H200", "H200 SXM", "H200-SXM-141GB"),
    ),
    Accelerator(
        model="GH200-96GB", dense_tflops=_H100, memory_gb_s=4000, link_gb_s=450, multicast=True, pcie_generation=5,
        source="NVIDIA GH200 data sheet, 2023 (sparse figures halved)", names=("GH200 480GB", "GH200"),
    ),
    Accelerator(
        model="B200-SXM-180GB", dense_tflops=_peaks(37, 37, 75, 1125, 2250, 4500, 9000), memory_gb_s=8000,
        link_gb_s=900, multicast=True, pcie_generation=5, source="NVIDIA HGX B200 data sheet, 2025 (an eighth, dense)",
        names=("B200", "B200-SXM", "B200-SXM6-180GB"),
    ),
    Accelerator(
        model="B300-SXM-270GB", dense_tflops=_peaks(1.25, 1.25, 75, 1125, 2250, 4500, 13500), memory_gb_s=8000,
        link_gb_s=900, multicast=True, pcie_generation=6, source="NVIDIA HGX B300 data sheet, 2025 (an eighth, dense)",
        names=("B300", "B300-SXM", "B300-SXM6-AC"),
    ),
    Accelerator(
        model="GB200-186GB", dense_tflops=_peaks(40, 40, 80, 1250, 2500, 5000, 10000), memory_gb_s=8000,
        link_gb_s=900, multicast=True, pcie_generation=6, source="NVIDIA GB200 NVL72 data sheet, 2024 (1/72, dense)",
        names=("GB200",),
    ),
    Accelerator(
        model="GB300-278GB", dense_tflops=_peaks(1.39, 1.39, 80, 1250, 2500, 5000, 15000), memory_gb_s=8000,
        link_gb_s=900, multicast=True, pcie_generation=6, source="NVIDIA GB300 NVL72 data sheet, 2025 (1/72, dense)",
        names=("GB300",),
    ),
    Accelerator(
        model="L40S-48GB", dense_tflops={"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8": 733},
        memory_gb_s=864, link_gb_s=None, multicast=False, pcie_generation=4, source="NVIDIA L40S data sheet, 2023",
        names=("L40S",),
    ),
    Accelerator(
        model="MI250X-128GB", dense_tflops={"fp64": 47.9, "fp64_tensor": 95.7, "fp32": 47.9, "fp16": 383, "bf16": 383},
        memory_gb_s=3277, link_gb_s=400, multicast=False, pcie_generation=4, source="AMD Instinct MI250X data sheet",
        names=("MI250X",),
    ),
    Accelerator(
        model="MI300X-192GB", dense_tflops=_MI300, memory_gb_s=5300, link_gb_s=448, multicast=False,
        pcie_generation=5, source="AMD Instinct MI300X data sheet, 2023", names=("MI300X", "MI300X-OAM-192GB"),
    ),
    Accelerator(
        model="MI325X-256GB", dense_tflops=_MI300, memory_gb_s=6000, link_gb_s=448, multicast=False,
        pcie_generation=5, source="AMD Instinct MI325X data sheet, 2024", names=("MI325X",),
    ),
    Accelerator(
        model="MI355X-288GB", dense_tflops=_peaks(78.6, 78.6, 157.3, 157.3, 2516.6, 5033.2, 10066.3), memory_gb_s=8000,
        link_gb_s=537.6, multicast=False, pcie_generation=5, source="AMD Instinct MI355X data sheet, 2025",
        names=("MI355X",),
    ),
)  # fmt: skip


def accelerator(model: str) -> Accelerator | None:
    """Give the data sheet for a model as profiles or drivers spell it; None for one that is not known."""
    wanted = _spelling(model)
    for item in ACCELERATORS:
        if wanted in {_spelling(name) for name in (item.model, *item.names)}:
            return item
    return None


def _spelling(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return re.sub(r"^(nvidia|amd|instinct)-", "", re.sub(r"^(nvidia|amd)-", "", words))


def dense_peak_tflops(model: str, precision: str) -> float | None:
    """Give one accelerator's dense peak in TFLOPS; None where model or precision is not known."""
    found = accelerator(model)
    return found.dense_tflops.get(precision.lower()) if found else None


# -- collectives -------------------------------------------------------------------------------------------------

SOFTWARE = "software"
"""Any algorithm in which the network only carries and never reduces."""

_NETWORK_BOUND = frozenset({SOFTWARE, "ring", "tree", "nvls", "nvlstree", "nvls_tree", "pat"})
_ONE_TO_ALL = frozenset({"broadcast", "reduce", "sendrecv"})
_ALL_TO_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter"})


def ceiling(
    operation: str,
    nodes: int,
    gpus_per_node: int,
    one_node_busbw: float | None,
    node_bandwidth: float | None,
    algorithm: str | None,
) -> float | None:
    """Give the highest bus bandwidth (GB/s, nccl-tests' convention) that a collective can reach; None: no bound known.

    With N nodes of g GPUs, n = N·g, V the bus bandwidth of one node with the same algorithm and B the bandwidth of all
    NICs of a node in one direction, for all-reduce, all-gather and reduce-scatter:

        min( V · [(n-1)/n] / [(g-1)/g],   B · [(n-1)/n] / [(N-1)/N] )

    because a node must carry (N-1)/N of the data (all-reduce: twice) through its NICs, and a GPU (g-1)/g through its
    links; at small N it may exceed B. All-to-all: min(V·(n-1)/(g-1), (B/g)·(n-1)/(n-g)), for a GPU sends (n-g)/n of
    its data out of the node. Broadcast, reduce and send-receive: min(V, B).

    Args:
        operation: nccl-tests' name of the collective, such as all_reduce.
        nodes: N, at least 1.
        gpus_per_node: g, at least 1.
        one_node_busbw: V in GB/s, measured with the same algorithm; None where unknown.
        node_bandwidth: B in GB/s; None where unknown.
        algorithm: With SHARP or CollNet, NVLink between nodes, or an unknown one the network term does not apply.

    Source: bandwidth lower bounds of Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations
    in MPICH", 2005, applied to the two levels; nccl-tests doc/PERFORMANCE.md for the bus bandwidth factors.
    """
    total = nodes * gpus_per_node
    if nodes < 1 or gpus_per_node < 1 or total < 2:
        return None
    terms = []
    if gpus_per_node > 1 and one_node_busbw is not None:
        terms.append(_link_term(operation, total, gpus_per_node, one_node_busbw))
    if nodes > 1 and node_bandwidth is not None and (algorithm or "").lower() in _NETWORK_BOUND:
        terms.append(_network_term(operation, nodes, gpus_per_node, node_bandwidth))
    known = [term for term in terms if term is not None]
    return min(known) if known else None


def _link_term(operation: str, total: int, gpus: int, busbw: float) -> float | None:
    if operation in _ALL_TO_ALL:
        return busbw * ((total - 1) / total) / ((gpus - 1) / gpus)
    if operation == "alltoall":
        return busbw * (total - 1) / (gpus - 1)
    return busbw if operation in _ONE_TO_ALL else None


def _network_term(operation: str, nodes: int, gpus: int, bandwidth: float) -> float | None:
    total = nodes * gpus
    if operation in _ALL_TO_ALL:
        return bandwidth * ((total - 1) / total) / ((nodes - 1) / nodes)
    if operation == "alltoall":
        return bandwidth / gpus * (total - 1) / (total - gpus)
    return bandwidth if operation in _ONE_TO_ALL else None


def one_node_ceiling(operation: str, gpus: int, model: str) -> float | None:
    """Give the highest bus bandwidth (GB/s) within one node by the link rate L of its accelerators; None: unknown.

    L, and 2·(g-1)/g·L for an all-reduce in a switch that reduces and multicasts: there each GPU sends and receives its
    data once, while the bus bandwidth counts 2·(g-1)/g of it. Source: nccl-tests doc/PERFORMANCE.md for the factor.
    """
    found = accelerator(model)
    if found is None or found.link_gb_s is None or gpus < 2:
        return None
    if operation == "all_reduce" and found.multicast:
        return 2 * (gpus - 1) / gpus * found.link_gb_s
    return found.link_gb_s
