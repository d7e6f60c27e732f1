"""The truth of a night: what every component of the simulated cluster can really do.

Arrays are indexed by node in inventory order. A factor of 1 is healthy. Each fault changes only the components that
physics says it changes; tests hold every kind to that. Nights can stand side by side, each with nodes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import TYPE_CHECKING, Any

from plumbline.clusters.inventory import Inventory
from plumbline.errors import ConfigError, near_match
from plumbline.simulation.faults import Fault, active_faults
from plumbline.simulation.hardware import HardwareModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

STORAGE_SERVERS = 8
LANES = 16
"""Of PCIe, to each GPU."""
OLD_DRIVER, OLD_NCCL = "535.54.03", "2.18.3"
NCCL = "2.26.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """T nights (mostly one) of one cluster: N nodes, G GPUs and R rails a node, L leaves in all. Shapes in brackets."""

    names: tuple[str, ...]
    leaf_of: NDArray[Any]
    """[N] index of the node's leaf."""
    night_of: NDArray[Any]
    """[N] index of the node's night: 0 for all, unless nights stand side by side."""
    leaves: tuple[str, ...]
    nic: NDArray[Any]
    """[N, R] fraction of line rate."""
    link_errors: NDArray[Any]
    """[N, R] symbol errors counted during a run."""
    flap: NDArray[Any]
    """[N, R] probability that a launch meets the link at the reduced rate."""
    nvlink: NDArray[Any]
    """[N] fraction of NVLink bandwidth."""
    clock: NDArray[Any]
    """[N, G] fraction of the SM clock under load."""
    throttle: NDArray[Any]
    """[N, G] 0 none, 1 thermal, 2 power."""
    memory: NDArray[Any]
    """[N, G] fraction of memory bandwidth and capacity."""
    retired: NDArray[Any]
    """[N, G] rows remapped or pages retired."""
    pcie: NDArray[Any]
    """[N, G] PCIe lanes that were trained, 16, 8, 4, 2 or 1, as a fraction of 16."""
    host: NDArray[Any]
    """[N, G] fraction of the bandwidth between host and GPU that its place leaves; the link itself may be whole."""
    latency_us: NDArray[Any]
    """[N] added to every collective that the node takes part in."""
    present: NDArray[Any]
    """[N, G] whether the GPU is there."""
    wrong: NDArray[Any]
    """[N, G] probability that a reduction through this GPU has a wrong element."""
    client: NDArray[Any]
    """[N] fraction of storage bandwidth that the node's client gets."""
    lost: NDArray[Any]
    """[N] the node goes away in mid-run."""
    clock_offset_s: NDArray[Any]
    """[N] seconds that the node's clock is ahead."""
    old_driver: NDArray[Any]
    old_nccl: NDArray[Any]
    """[N] software rolled back."""
    leaf: NDArray[Any]
    """[L] fraction of a leaf's throughput under load."""
    spine: NDArray[Any]
    storage: NDArray[Any]
    """[T] fraction of the throughput between leaves, and of the store's, in each night."""
    hang: tuple[tuple[int, str | None], ...]
    truncated: tuple[tuple[int, str | None], ...]
    """(node, benchmark or None for all)."""


def truth_of(inventory: Inventory, model: HardwareModel, faults: Sequence[Fault], night: date, hour: int = 2) -> Truth:
    """Give the truth of one night. Raises ConfigError when a fault names a component that isn't there."""
    import numpy as np

    names = tuple(node.name for node in inventory)
    leaves = _leaves(inventory)
    n, g, r = len(names), model.gpus, model.rails
    arrays: dict[str, Any] = {
        "nic": np.ones((n, r)), "link_errors": np.zeros((n, r)), "flap": np.zeros((n, r)), "nvlink": np.ones(n),
        "clock": np.ones((n, g)), "throttle": np.zeros((n, g), int), "memory": np.ones((n, g)),
        "retired": np.zeros((n, g), int), "pcie": np.ones((n, g)), "host": np.ones((n, g)), "latency_us": np.zeros(n),
        "present": np.ones((n, g), bool), "wrong": np.zeros((n, g)), "client": np.ones(n),
        "lost": np.zeros(n, bool), "clock_offset_s": np.zeros(n), "old_driver": np.zeros(n, bool),
        "old_nccl": np.zeros(n, bool), "leaf": np.ones(len(leaves)),
        "leaf_of": np.array([leaves.index(node.leaf or "leaf") for node in inventory]),
        "night_of": np.zeros(n, int), "spine": np.ones(1), "storage": np.ones(1),
    }  # fmt: skip
    scalars: dict[str, Any] = {"hang": [], "truncated": []}
    place = Places(names, leaves, model)
    for fault in active_faults(faults, night, hour):
        _plant(fault, arrays, scalars, place, night)
    return Truth(
        names=names,
        leaves=leaves,
        hang=tuple(scalars["hang"]),
        truncated=tuple(scalars["truncated"]),
        **arrays,
    )


def side_by_side(nights: Sequence[Truth]) -> Truth:
    """Give several nights of one cluster as one truth: node i of night t is node t × N + i, its leaf is its night's."""
    import numpy as np

    if len(nights) == 1:
        return nights[0]
    n, leaves = len(nights[0].names), len(nights[0].leaves)
    moved = {"leaf_of": leaves, "night_of": 1}
    arrays: dict[str, Any] = {}
    for name in (f.name for f in fields(Truth)):
        parts = [getattr(truth, name) for truth in nights]
        if name in moved:
            parts = [part + moved[name] * t for t, part in enumerate(parts)]
        if name in ("names", "leaves"):
            arrays[name] = tuple(item for part in parts for item in part)
        elif name in ("hang", "truncated"):
            arrays[name] = tuple((n * t + node, which) for t, part in enumerate(parts) for node, which in part)
        else:
            arrays[name] = np.concatenate(parts)
    return Truth(**arrays)


class Places:
    """Finds the indices that a fault names. Raises ConfigError for what isn't there."""

    def __init__(self, names: Sequence[str], leaves: Sequence[str], model: HardwareModel) -> None:
        """Take nodes and leaves in the order of their indices."""
        self._node = {name: i for i, name in enumerate(names)}
        self._leaf = {name: i for i, name in enumerate(leaves)}
        self._model = model

    @classmethod
    def of(cls, inventory: Inventory, model: HardwareModel) -> Places:
        """Take the nodes of an inventory in its order, and their leaves in that of their names."""
        return cls([node.name for node in inventory], _leaves(inventory), model)

    def node(self, name: str | None) -> int:
        """Give a node's index."""
        return _found("node", name, self._node)

    def leaf(self, name: str | None) -> int:
        """Give a leaf's index."""
        return _found("leaf", name, self._leaf)

    def part(self, number: int | None, what: str) -> int:
        """Give the number of a gpu or a rail in its node, or of a storage server, once it is known to be there."""
        most = self._model.gpus if what == "gpu" else self._model.rails if what == "rail" else STORAGE_SERVERS
        if number is None or number >= most:
            raise ConfigError(f"no {what} {number}, which is not one of 0 to {most - 1}")
        return number


def _found(what: str, name: str | None, known: Mapping[str, int]) -> int:
    if name is not None and name in known:
        return known[name]
    names = list(known)
    near = near_match(str(name), names[:2000])
    if near.startswith("; known") and len(names) > 8:
        near = f"; known: {names[0]} … {names[-1]}"
    raise ConfigError(f"no {what} {name!r}{near}")


def _leaves(inventory: Inventory) -> tuple[str, ...]:
    return tuple(sorted({node.leaf or "leaf" for node in inventory}))


def _plant(fault: Fault, a: dict[str, Any], s: dict[str, Any], place: Places, night: date) -> None:
    """Change what this fault changes, and nothing else."""
    keep = 1.0 - fault.severity
    kind = fault.kind
    if kind in ("slow_nic", "degraded_link", "flapping_link", "ageing_port"):
        _plant_port(fault, a, (place.node(fault.node), place.part(fault.rail, "rail")), night)
    elif fault.gpu is not None:
        _plant_gpu(fault, a, (place.node(fault.node), place.part(fault.gpu, "gpu")))
    elif kind in ("driver_rollback", "nccl_rollback"):
        for name in fault.nodes or ():
            i = place.node(name)
            a["old_driver" if kind == "driver_rollback" else "old_nccl"][i] = True
            if kind == "driver_rollback":  # assumption: an old driver costs clocks and launch latency
                a["clock"][i] *= 1.0 - fault.severity / 4
                a["latency_us"][i] += 20.0 * fault.severity
            else:  # an old NCCL lacks algorithms: bandwidth inside the node and latency suffer
                a["nvlink"][i] *= 1.0 - fault.severity / 2
                a["latency_us"][i] += 40.0 * fault.severity
    elif kind == "leaf_misconfigured":
        a["leaf"][place.leaf(fault.leaf)] *= keep
    elif kind == "congested_spine" or fault.resource == "fabric":
        a["spine"] *= keep
    elif kind == "slow_storage_server":
        place.part(fault.server, "server")
        a["storage"] *= 1.0 - fault.severity / STORAGE_SERVERS
    elif fault.resource == "storage":
        a["storage"] *= keep
    else:
        _plant_node(fault, a, s, place.node(fault.node))


def _plant_port(fault: Fault, a: dict[str, Any], at: tuple[int, int], night: date) -> None:
    if fault.kind == "flapping_link":
        a["flap"][at] = max(a["flap"][at], fault.severity)
        a["link_errors"][at] += 50
        return
    lost = fault.severity
    if fault.kind == "ageing_port":
        nights = (night - fault.start).days if fault.start else 30
        lost = min(0.95, fault.severity * nights / 30)
    a["nic"][at] *= 1.0 - lost
    if fault.kind == "degraded_link":
        a["link_errors"][at] += 1000 * fault.severity


def _plant_gpu(fault: Fault, a: dict[str, Any], at: tuple[int, int]) -> None:
    keep = 1.0 - fault.severity
    if fault.kind in ("thermal_throttle", "power_throttle"):
        a["clock"][at] *= keep
        a["throttle"][at] = 1 if fault.kind == "thermal_throttle" else 2
    elif fault.kind == "retired_memory":
        a["memory"][at] *= 1.0 - fault.severity / 10
        a["retired"][at] += max(1, round(64 * fault.severity))
    elif fault.kind == "pcie_width":
        a["pcie"][at] = _lanes(keep) / LANES
    elif fault.kind == "missing_gpu":
        a["present"][at] = False
    elif fault.kind == "silent_corruption":
        a["wrong"][at] = fault.severity


def _lanes(keep: float) -> int:
    """Give the widest link of at most that part of the lanes: a link trains to a power of two."""
    lanes = LANES
    while lanes > 1 and lanes > LANES * keep:
        lanes //= 2
    return lanes


def _plant_node(fault: Fault, a: dict[str, Any], s: dict[str, Any], i: int) -> None:
    keep = 1.0 - fault.severity
    if fault.kind == "nvlink_lane_down":
        a["nvlink"][i] *= keep
    elif fault.kind == "wrong_affinity":  # traffic crosses the sockets: host copies, NIC path, and latency
        a["host"][i] *= 1.0 - fault.severity / 2
        a["latency_us"][i] += 30.0 * fault.severity
        a["nic"][i] *= 1.0 - fault.severity / 4
    elif fault.kind == "slow_client":
        a["client"][i] *= keep
    elif fault.kind == "node_lost":
        a["lost"][i] = True
    elif fault.kind == "clock_drift":
        a["clock_offset_s"][i] += 600.0 * fault.severity
    elif fault.kind == "hang":
        s["hang"].append((i, fault.benchmark))
    elif fault.kind == "truncated_output":
        s["truncated"].append((i, fault.benchmark))
