"""What a group of nodes yields, given the truth: pure functions on arrays, one row a group.

All groups of a rung are computed together, and those of several nights side by side: the text that the launcher prints
and the measurements without text (measuring.py) take the same numbers from here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from plumbline.simulation.hardware import HardwareModel
from plumbline.simulation.truth import Truth

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray


class Draws(Protocol):
    """Where random numbers come from: numpy's Generator, or noise.Noise for nights side by side."""

    def random(self, size: Any, /) -> Any:
        """Draw from 0 to 1."""

    def normal(self, loc: float, scale: float, size: Any, /) -> Any:
        """Draw normally."""

    def standard_t(self, df: float, size: Any, /) -> Any:
        """Draw from Student's t."""

    def binomial(self, n: int, p: Any, size: Any, /) -> Any:
        """Draw counts."""


BUS_NOISE = 0.007
"""Night-to-night spread of bus bandwidth at ≥ 1 GiB, Student t with 5 degrees of freedom. Assumption."""
STEP_NOISE, STEP_COMMON = 0.004, 0.003
"""Step time: spread of one group, and a common mode of the night. Published logs repeat to 0.01–1 %."""
STORAGE_NOISE = 0.04
"""fio, from run to run on a shared store. Assumption."""
HPL_NOISE = 0.006
"""HPL-MxP of one node from run to run. Assumption."""
TRAIN_NOISE = 0.06
"""Time to train: coefficient of variation of MLPerf BERT, median of the rounds (6.0–7.1 %)."""
STORAGE_PEAK_MB_S, CLIENT_PEAK_MB_S = 340_000.0, 8_900.0
"""The store's whole bandwidth, and what one client node can take: 8 GiB/s a node is what is often asked for."""

_BUS_FACTOR = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0, "sendrecv": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of a batch: `index` [M, n] node indices of M groups of n nodes."""

    index: NDArray[Any]

    @property
    def nodes(self) -> int:
        """How many nodes a group has."""
        return int(self.index.shape[1])

    def night(self, truth: Truth) -> NDArray[Any]:
        """Give the index of each group's night: [M]."""
        found: NDArray[Any] = truth.night_of[self.index[:, 0]]
        return found


def bus_factor(operation: str, ranks: int) -> float:
    """Give bus bandwidth ÷ algorithm bandwidth. Source: nccl-tests, doc/PERFORMANCE.md."""
    if operation == "sendrecv":
        return 1.0
    return _BUS_FACTOR[operation] * (ranks - 1) / ranks if ranks > 1 else 0.0


def group_bandwidth(truth: Truth, groups: Groups, rng: Draws, model: HardwareModel) -> NDArray[Any]:
    """Give the NIC bandwidth of the weakest node of each group, GB/s, one direction: [M].

    Rings are spread evenly over the rails, so the slowest rail bounds all of them; PCIe bounds the path from a GPU to
    its NIC; a group that spans leaves is bounded by the spine and by its worst leaf.
    """
    import numpy as np

    line = model.nic_gbit_s / 8
    drawn = rng.random((len(groups.index), *truth.flap.shape[1:]))
    path = np.minimum(truth.nic, truth.pcie * truth.host * model.host_to_device / line)
    rails = path[groups.index].min(axis=1)
    if truth.flap.any():
        flap = truth.flap[groups.index].max(axis=1)
        rails = np.where(drawn < flap, rails * (1 - flap), rails)
    node = rails.min(axis=1) * line * model.rails
    leaves = truth.leaf_of[groups.index]
    spans = (leaves != leaves[:, :1]).any(axis=1)
    fabric: NDArray[Any] = np.where(spans, truth.leaf[leaves].min(axis=1) * truth.spine[groups.night(truth)], 1.0)
    return np.asarray(node * fabric)


def peak_bus_bandwidth(
    operation: str, truth: Truth, groups: Groups, model: HardwareModel, bandwidth: NDArray[Any]
) -> NDArray[Any]:
    """Give the large-message bus bandwidth of each group, GB/s: [M].

    Source: hierarchical ceiling min(V × [(n−1)/n]/[(g−1)/g], B × [(n−1)/n]/[(N−1)/N]) × measured efficiency.
    """
    import numpy as np

    inside = model.bus_bandwidth[operation] * truth.nvlink[groups.index].min(axis=1)
    if groups.nodes == 1:
        return np.asarray(inside)
    nodes, g = groups.nodes, model.gpus
    ranks = nodes * g
    if operation in ("alltoall", "sendrecv"):
        per_gpu = bandwidth / model.rails * (1.0 if operation == "sendrecv" else (ranks - 1) / (ranks - g))
        return np.asarray(np.minimum(inside, per_gpu * 0.95))
    whole = (ranks - 1) / ranks
    network = bandwidth * whole / ((nodes - 1) / nodes)
    return np.asarray(np.minimum(inside * whole / ((g - 1) / g), network) * model.fabric_efficiency)


def collective_times(
    operation: str, sizes: Sequence[int], truth: Truth, groups: Groups, model: HardwareModel, rng: Draws
) -> NDArray[Any]:
    """Give the time of one collective of each group at each size, microseconds: [M, S].

    time = latency + bytes × bus factor ÷ peak × (1 + 0.35 (half size ÷ bytes)^0.7): fitted to published points at
    128 MB, 512 MB, 1 GiB and 16 GiB. Noise is that of the night at large sizes, three times as much at small ones.
    """
    import numpy as np

    bandwidth = group_bandwidth(truth, groups, rng, model)
    peak = peak_bus_bandwidth(operation, truth, groups, model, bandwidth)
    ranks = groups.nodes * model.gpus
    half = model.half_size_one_node_bytes if groups.nodes == 1 else model.half_size_bytes
    latency = (
        model.latency_us + model.latency_step_us * np.log2(groups.nodes) + truth.latency_us[groups.index].max(axis=1)
    )
    size = np.asarray(sizes, float)
    shape = 1 + 0.35 * (half / np.maximum(size, 1.0)) ** 0.7
    transfer = size * bus_factor(operation, ranks) / (peak[:, None] * 1e3) * shape
    spread = np.where(size >= 2**30, BUS_NOISE, 3 * BUS_NOISE)
    noise = 1 + np.clip(rng.standard_t(5, (len(peak), len(size))) * 0.775, -6, 6) * spread
    return np.asarray((latency[:, None] + transfer) * np.maximum(noise, 0.5))


def wrong_elements(truth: Truth, groups: Groups, shape: tuple[int, int], rng: Draws) -> NDArray[Any]:
    """Give how many result elements are wrong for each group and size: [M, S]; 0 without silent corruption."""
    import numpy as np

    chance = truth.wrong[groups.index].reshape(len(groups.index), -1).max(axis=1)
    if not chance.any():
        return np.zeros(shape, int)
    return np.asarray(rng.binomial(64, chance[:, None] * 0.25, shape))


def slowest_clock(truth: Truth, groups: Groups) -> NDArray[Any]:
    """Give the lowest clock factor of each group's present GPUs: [M]. A collective step waits for the slowest."""
    import numpy as np

    clock = np.where(truth.present, truth.clock * np.minimum(1.0, 0.5 + truth.memory / 2), 1.0)
    return np.asarray(clock[groups.index].min(axis=(1, 2)))


def step_times(
    steps: int, truth: Truth, groups: Groups, model: HardwareModel, rng: Draws, common: float | NDArray[Any]
) -> NDArray[Any]:
    """Give the training step times of each group, seconds: [M, steps].

    step = compute ÷ slowest clock + exposed communication ÷ fabric; `common` is the night's common mode (about 1), of
    each group where they are of several nights.
    """
    import numpy as np

    compute = model.step_compute_s / slowest_clock(truth, groups)
    exposed = np.zeros(len(groups.index))
    if groups.nodes > 1:
        bandwidth = group_bandwidth(truth, groups, rng, model)
        full = model.nic_gbit_s / 8 * model.rails
        doublings = np.log2(groups.nodes)
        exposed = model.step_compute_s * model.step_exposed_fraction * (0.8 + 0.2 * doublings) * full / bandwidth
    group = 1 + rng.normal(0, STEP_NOISE, (len(groups.index), 1))
    each = 1 + np.abs(rng.normal(0, 0.002, (len(groups.index), steps)))
    return np.asarray((compute + exposed)[:, None] * np.reshape(common, (-1, 1)) * group * each)


def hpl_mxp(truth: Truth, groups: Groups, model: HardwareModel, rng: Draws) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give reportable and LU-only GFLOPS of each group: [M], [M]. The slowest GPU sets the pace."""
    import numpy as np

    noise = 1 + rng.normal(0, HPL_NOISE, len(groups.index))
    pace = slowest_clock(truth, groups) * np.minimum(1.0, 0.6 + 0.4 * truth.nvlink[groups.index].min(axis=1)) * noise
    scale = groups.nodes * (0.97 ** np.log2(groups.nodes))
    return np.asarray(model.hpl_mxp_gflops * scale * pace), np.asarray(model.hpl_mxp_lu_gflops * scale * pace)


def storage_rates(truth: Truth, groups: Groups, clients: int, rng: Draws) -> dict[str, NDArray[Any]]:
    """Give bandwidth (MB/s) or IOPS of each client of each group for the four fio jobs: [M, clients] each.

    Clients share what their node can take; all nodes share the store. One group runs at a time.
    """
    import numpy as np

    node = truth.client[groups.index].min(axis=1)
    store = truth.storage[groups.night(truth)]
    share = np.minimum(CLIENT_PEAK_MB_S * groups.nodes * node, STORAGE_PEAK_MB_S * store)
    share = np.minimum(share, CLIENT_PEAK_MB_S * groups.nodes * store)
    found: dict[str, NDArray[Any]] = {}
    for job, factor in (("seq_write", 0.72), ("seq_read", 1.0), ("rand_read", 26.0), ("rand_write", 14.0)):
        night = 1 + np.clip(rng.normal(0, STORAGE_NOISE, (len(groups.index), 1)), -0.2, 0.2)
        each = 1 + np.clip(rng.normal(0, 0.015, (len(groups.index), clients)), -0.1, 0.1)
        found[job] = np.asarray((share * factor / clients)[:, None] * night * each)
    return found


def generator(seed: int | str, *parts: str | int) -> Generator:
    """Give the noise of one place in the run: the same seed and parts give the same numbers on every machine."""
    import numpy as np

    digest = hashlib.sha256("/".join(map(str, (seed, *parts))).encode()).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))
