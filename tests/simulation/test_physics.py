"""The physics gives published figures, obeys ceilings, and is moved by a fault in the right direction."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from tests.execution.test_plan import a_profile

from plumbline.clusters.inventory import static_inventory
from plumbline.references.ceilings import ceiling
from plumbline.simulation.faults import Fault
from plumbline.simulation.hardware import MODELS, HardwareModel
from plumbline.simulation.physics import (
    Groups,
    bus_factor,
    collective_times,
    generator,
    hpl_mxp,
    step_times,
    storage_rates,
    wrong_elements,
)  # fmt: skip
from plumbline.simulation.truth import Truth, truth_of

GIB = 1 << 30


def truth(model: HardwareModel, *faults: Fault, nodes: int = 16) -> Truth:
    return truth_of(static_inventory(a_profile(nodes), date(2026, 1, 1)), model, faults, date(2026, 1, 1))


def groups(size: int, nodes: int = 16) -> Groups:
    return Groups(index=np.arange(nodes).reshape(-1, size))


def bandwidth(model: HardwareModel, operation: str, nodes: int, size: int, *faults: Fault) -> np.ndarray:
    made = collective_times(
        operation, [size], truth(model, *faults), groups(nodes), model, generator(1, operation, nodes)
    )
    return np.asarray(size * bus_factor(operation, nodes * model.gpus) / made[:, 0] / 1e3)


@pytest.mark.parametrize(
    ("hardware", "nodes", "size", "published"),
    [
        ("H100-SXM5-80GB", 1, 16 * GIB, 480.0),  # dgxc nccl README
        ("H100-SXM5-80GB", 2, 1 * GIB, 435.0),  # Nebius, 16 H100
        ("H100-SXM5-80GB", 8, 8 * GIB, 386.6),  # CoreWeave nccl-tests, 64 H100
        ("A100-SXM4-80GB", 1, 16 * GIB, 234.9),  # stas00 network/benchmarks
        ("A100-SXM4-80GB", 2, 8 * GIB, 185.6),  # OCI example
        ("A100-SXM4-80GB", 4, 4 * GIB, 191.6),  # DeepOps, DGX A100
        ("B200-SXM-180GB", 1, 16 * GIB, 845.7),  # AWS README
        ("B200-SXM-180GB", 4, 16 * GIB, 381.8),  # AWS README
        ("B200-SXM-180GB", 4, 1 * GIB, 362.0),
        ("B200-SXM-180GB", 4, GIB // 2, 327.0),
    ],
)
def test_published_all_reduce_within_ten_per_cent(hardware: str, nodes: int, size: int, published: float) -> None:
    assert np.median(bandwidth(MODELS[hardware], "all_reduce", nodes, size)) == pytest.approx(published, rel=0.10)


def test_published_hpl_mxp_within_ten_per_cent() -> None:
    model = MODELS["H100-SXM5-80GB"]
    performance, lu = hpl_mxp(truth(model), groups(1), model, generator(1))
    assert np.median(performance) == pytest.approx(1_556_900, rel=0.10)
    assert np.median(lu) == pytest.approx(2_740_200, rel=0.10)


@pytest.mark.parametrize("hardware", sorted(MODELS))
@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 16])
def test_nothing_beats_the_physical_ceiling(hardware: str, nodes: int) -> None:
    model = MODELS[hardware]
    most = ceiling(
        "all_reduce", nodes=nodes, gpus_per_node=8, one_node_busbw=model.bus_bandwidth["all_reduce"],
        node_bandwidth=model.nic_gbit_s / 8 * model.rails,
        algorithm="Ring",
    )  # fmt: skip
    assert most is not None
    assert bandwidth(model, "all_reduce", nodes, 8 * GIB).max() <= most * 1.03


def test_bandwidth_grows_with_size_and_latency_with_nodes() -> None:
    model = MODELS["H100-SXM5-80GB"]
    sizes = [1 << power for power in range(11, 34, 2)]
    made = collective_times("all_reduce", sizes, truth(model), groups(16), model, generator(1))
    rates = np.array(sizes) / made[0]
    assert (np.diff(rates) > 0).all()
    smallest = [
        collective_times("all_reduce", [8], truth(model), groups(n), model, generator(1))[:, 0].mean()
        for n in (1, 4, 16)
    ]
    assert smallest == sorted(smallest)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"])
def test_a_slow_rail_is_seen_between_nodes_and_not_inside_one(operation: str) -> None:
    model = MODELS["H100-SXM5-80GB"]
    fault = Fault(kind="slow_nic", node="n0003", rail=1, severity=0.5)
    healthy, broken = (bandwidth(model, operation, 8, 8 * GIB, *faults) for faults in ((), (fault,)))
    ratio = broken / healthy
    assert ratio[0] < 0.75
    assert ratio[1] == pytest.approx(1.0)
    assert bandwidth(model, operation, 1, 8 * GIB, fault) == pytest.approx(bandwidth(model, operation, 1, 8 * GIB))


def test_a_lane_down_is_seen_inside_a_node() -> None:
    model = MODELS["H100-SXM5-80GB"]
    fault = Fault(kind="nvlink_lane_down", node="n0003", severity=0.2)
    ratio = bandwidth(model, "all_reduce", 1, 8 * GIB, fault) / bandwidth(model, "all_reduce", 1, 8 * GIB)
    assert ratio[2] == pytest.approx(0.8, rel=0.01)
    assert np.delete(ratio, 2) == pytest.approx(1.0)


def test_a_hot_gpu_slows_its_group_and_leaves_the_network_alone() -> None:
    model = MODELS["H100-SXM5-80GB"]
    fault = Fault(kind="thermal_throttle", node="n0003", gpu=0, severity=0.25)
    steps = [step_times(20, truth(model, *f), groups(4), model, generator(1), 1.0).mean(axis=1) for f in ((), (fault,))]
    assert steps[1][0] / steps[0][0] > 1.2
    assert steps[1][1:] == pytest.approx(steps[0][1:])
    assert bandwidth(model, "all_reduce", 2, GIB, fault) == pytest.approx(bandwidth(model, "all_reduce", 2, GIB))


def test_one_slow_client_and_one_slow_server() -> None:
    model = MODELS["H100-SXM5-80GB"]
    client = Fault(kind="slow_client", node="n0003", severity=0.5)
    server = Fault(kind="slow_storage_server", server=0, severity=0.8)
    healthy, slow, shared = (
        storage_rates(truth(model, *faults), groups(1), 2, generator(1))["seq_read"].sum(axis=1)
        for faults in ((), (client,), (server,))
    )
    one = slow / healthy
    assert one[2] == pytest.approx(0.5)
    assert np.delete(one, 2) == pytest.approx(1.0)
    assert shared / healthy == pytest.approx(0.9)


def test_wrong_elements_only_with_corruption() -> None:
    model = MODELS["H100-SXM5-80GB"]
    fault = Fault(kind="silent_corruption", node="n0003", gpu=1, severity=1.0)
    assert wrong_elements(truth(model), groups(2), (8, 12), generator(1)).sum() == 0
    counts = wrong_elements(truth(model, fault), groups(2), (8, 12), generator(1)).sum(axis=1)
    assert counts[1] > 0
    assert np.delete(counts, 1).sum() == 0


def test_the_same_seed_gives_the_same_numbers() -> None:
    model = MODELS["H100-SXM5-80GB"]
    first, again, other = (
        bandwidth(model, "all_reduce", 2, GIB),
        bandwidth(model, "all_reduce", 2, GIB),
        generator(2).random(),
    )
    assert (first == again).all()
    assert generator(2).random() == other != generator(3).random()


def test_night_to_night_noise_is_what_is_stated() -> None:
    model = MODELS["H100-SXM5-80GB"]
    made = [
        collective_times("all_reduce", [8 * GIB], truth(model), groups(1), model, generator(7, n))[:, 0]
        for n in range(200)
    ]
    spread = np.std(np.concatenate(made)) / np.mean(made)
    assert 0.005 < spread < 0.010
    steps = [step_times(20, truth(model), groups(1), model, generator(7, n), 1.0).mean(axis=1) for n in range(200)]
    assert 0.003 < np.std(np.concatenate(steps)) / np.mean(steps) < 0.006
