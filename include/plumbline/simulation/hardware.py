"""What simulated hardware can do: published figures with their sources, and assumptions called assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plumbline.errors import ConfigError, near_match


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareModel:
    """One kind of node. Bandwidths in GB/s (1e9 bytes), rates in GFLOPS, per node of `gpus` GPUs unless said.

    `fabric_efficiency` is measured bus bandwidth ÷ hierarchical ceiling at two nodes and more; `latency_us` is that
    of the smallest all-reduce in one node, and every doubling of nodes adds `latency_step_us`.
    """

    name: str
    product: str
    """As nvidia-smi names it."""
    gpus: int
    rails: int
    nic_gbit_s: float
    bus_bandwidth: Mapping[str, float]
    """operation → one-node bus bandwidth of large messages."""
    fabric_efficiency: float
    half_size_one_node_bytes: float
    half_size_bytes: float
    """Message size at which bus bandwidth is about half of its peak, one node and several."""
    latency_us: float
    latency_step_us: float
    hpl_mxp_gflops: float
    hpl_mxp_lu_gflops: float
    hpl_n: int
    step_compute_s: float
    """GPT-3 proxy: compute time of a step; the exposed communication comes on top."""
    step_exposed_fraction: float
    """Exposed communication at two nodes as a fraction of compute; each doubling adds a fifth of it."""
    memory_mib: int
    power_w: float
    sm_clock_mhz: int
    host_to_device: float
    device_to_device: float
    driver: str
    source: str


_H100 = HardwareModel(
    name="H100-SXM5-80GB",
    product="NVIDIA H100 80GB HBM3",
    gpus=8,
    rails=8,
    nic_gbit_s=400.0,
    bus_bandwidth={
        "all_reduce": 480.0,
        "all_gather": 370.0,
        "reduce_scatter": 372.0,
        "alltoall": 340.0,
        "sendrecv": 370.0,
    },
    fabric_efficiency=0.86,
    half_size_one_node_bytes=18e6,
    half_size_bytes=60e6,
    latency_us=24.0,
    latency_step_us=7.0,
    hpl_mxp_gflops=1_556_900.0,
    hpl_mxp_lu_gflops=2_740_200.0,
    hpl_n=400_000,
    step_compute_s=1.42,
    step_exposed_fraction=0.03,
    memory_mib=81559,
    power_w=700.0,
    sm_clock_mhz=1980,
    host_to_device=55.0,
    device_to_device=376.0,
    driver="570.133.20",
    source=(
        "all-reduce 480 at one node (dgxc nccl README) and 386.6 at 8 nodes on 8×400G (CoreWeave nccl-tests); "
        "HPL-MxP 26.2 on 8 H100, N 400,000: a published log; 376 GB/s peer to peer: stas00 ml-engineering; "
        "other operations, latencies, step split: assumptions"
    ),
)
_A100 = HardwareModel(
    name="A100-SXM4-80GB",
    product="NVIDIA A100-SXM4-80GB",
    gpus=8,
    rails=8,
    nic_gbit_s=200.0,
    bus_bandwidth={
        "all_reduce": 234.9,
        "all_gather": 228.0,
        "reduce_scatter": 229.0,
        "alltoall": 200.0,
        "sendrecv": 240.0,
    },
    fabric_efficiency=0.74,
    half_size_one_node_bytes=14e6,
    half_size_bytes=50e6,
    latency_us=28.0,
    latency_step_us=8.0,
    hpl_mxp_gflops=454_000.0,
    hpl_mxp_lu_gflops=676_000.0,
    hpl_n=288_000,
    step_compute_s=3.6,
    step_exposed_fraction=0.04,
    memory_mib=81920,
    power_w=400.0,
    sm_clock_mhz=1410,
    host_to_device=24.0,
    device_to_device=274.0,
    driver="535.183.06",
    source=(
        "all-reduce 234.9 at one node (stas00), 185.6 at two (OCI), 191.6 at four (DGX) on 8×200G; HPL-AI N 288,000: "
        "676 and 454 TFLOPS (DeepOps); other operations, latencies and step split: assumptions"
    ),
)
_B200 = HardwareModel(
    name="B200-SXM-180GB",
    product="NVIDIA B200",
    gpus=8,
    rails=8,
    nic_gbit_s=400.0,
    bus_bandwidth={
        "all_reduce": 845.7,
        "all_gather": 660.0,
        "reduce_scatter": 662.0,
        "alltoall": 600.0,
        "sendrecv": 700.0,
    },
    fabric_efficiency=0.74,
    half_size_one_node_bytes=26e6,
    half_size_bytes=80e6,
    latency_us=24.0,
    latency_step_us=7.0,
    hpl_mxp_gflops=3_100_000.0,
    hpl_mxp_lu_gflops=5_600_000.0,
    hpl_n=500_000,
    step_compute_s=0.70,
    step_exposed_fraction=0.05,
    memory_mib=183359,
    power_w=1000.0,
    sm_clock_mhz=1965,
    host_to_device=55.0,
    device_to_device=746.0,
    driver="580.65.06",
    source=(
        "all-reduce 845.7 at one node and 381.8 at four nodes on 8×400G (AWS README); HPL-MxP, "
        "other operations, latencies and step split: assumptions"
    ),
)
MODELS: Mapping[str, HardwareModel] = {model.name: model for model in (_H100, _A100, _B200)}


def hardware_model(name: str) -> HardwareModel:
    """Give the model of an accelerator. Raises ConfigError with the nearest known name."""
    if name not in MODELS:
        raise ConfigError(f"no simulated hardware {name!r}{near_match(name, MODELS)}")
    return MODELS[name]
