"""Each fault changes what physics says it changes, and nothing else."""

from __future__ import annotations

import dataclasses
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import load_profile
from plumbline.errors import ConfigError
from plumbline.simulation.faults import TARGETS, Fault, Scenario
from plumbline.simulation.hardware import MODELS, hardware_model
from plumbline.simulation.truth import Truth, truth_of

NIGHT = date(2026, 3, 1)
INVENTORY = static_inventory(load_profile("simulated-8"), NIGHT)
H100 = hardware_model("H100-SXM5-80GB")

EXAMPLES: dict[str, dict[str, Any]] = {
    "node": {"node": "n0003"}, "rail": {"rail": 2}, "gpu": {"gpu": 5}, "leaf": {"leaf": "leaf002"},
    "server": {"server": 1}, "nodes": {"nodes": ["n0001", "n0002"]}, "resource": {"resource": "fabric"},
}  # fmt: skip
CHANGES = {
    "slow_nic": {"nic"}, "degraded_link": {"nic", "link_errors"}, "flapping_link": {"flap", "link_errors"},
    "ageing_port": {"nic"}, "nvlink_lane_down": {"nvlink"}, "thermal_throttle": {"clock", "throttle"},
    "power_throttle": {"clock", "throttle"}, "retired_memory": {"memory", "retired"}, "pcie_width": {"pcie"},
    "wrong_affinity": {"host", "latency_us", "nic"}, "leaf_misconfigured": {"leaf"}, "congested_spine": {"spine"},
    "slow_storage_server": {"storage"}, "slow_client": {"client"}, "missing_gpu": {"present"}, "node_lost": {"lost"},
    "driver_rollback": {"old_driver", "clock", "latency_us"}, "nccl_rollback": {"old_nccl", "nvlink", "latency_us"},
    "noisy_neighbour": {"spine"}, "silent_corruption": {"wrong"}, "hang": {"hang"}, "truncated_output": {"truncated"},
    "clock_drift": {"clock_offset_s"},
}  # fmt: skip


def a_fault(kind: str, **more: Any) -> Fault:
    target: dict[str, Any] = {}
    for name in TARGETS[kind]:
        target |= EXAMPLES[name]
    return Fault.model_validate({"kind": kind, **target, **more})


def changed(faults: list[Fault], night: date = NIGHT, hour: int = 2) -> set[str]:
    healthy = truth_of(INVENTORY, H100, [], night)
    truth = truth_of(INVENTORY, H100, faults, night, hour)
    return {f.name for f in dataclasses.fields(Truth) if not _same(getattr(healthy, f.name), getattr(truth, f.name))}


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


def test_every_kind_has_its_expected_change() -> None:
    assert set(CHANGES) == set(TARGETS)


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_a_fault_changes_its_own_and_nothing_else(kind: str) -> None:
    assert changed([a_fault(kind)]) == CHANGES[kind]


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_only_the_named_component_is_touched(kind: str) -> None:
    fault = a_fault(kind)
    healthy, truth = truth_of(INVENTORY, H100, [], NIGHT), truth_of(INVENTORY, H100, [fault], NIGHT)
    named = {fault.node} if fault.node else set(fault.nodes or ())
    for name in CHANGES[kind]:
        before, after = getattr(healthy, name), getattr(truth, name)
        if isinstance(after, np.ndarray) and len(after) == len(INVENTORY):
            rows = {i for i in range(len(after)) if not np.array_equal(before[i], after[i])}
            assert {truth.names[i] for i in rows} == named


def test_a_fault_is_there_in_its_time_only() -> None:
    fault = a_fault("slow_nic", start="2026-03-01", end="2026-03-05")
    assert changed([fault], NIGHT - timedelta(days=1)) == set()
    assert changed([fault], NIGHT) == changed([fault], NIGHT + timedelta(days=4)) == {"nic"}
    assert changed([fault], NIGHT + timedelta(days=5)) == set()
    busy = a_fault("noisy_neighbour", hours=(8, 18))
    assert changed([busy], hour=2) == set()
    assert changed([busy], hour=12) == {"spine"}


def test_an_ageing_port_gets_worse_every_night() -> None:
    fault = a_fault("ageing_port", start="2026-03-01", severity=0.3)
    rates = [truth_of(INVENTORY, H100, [fault], NIGHT + timedelta(days=d)).nic[2, 2] for d in (0, 10, 20, 30)]
    assert rates == pytest.approx([1.0, 0.9, 0.8, 0.7])


@pytest.mark.parametrize(
    ("severity", "lanes"), [(0.01, 8), (0.5, 8), (0.51, 4), (0.75, 4), (0.9, 1), (0.94, 1), (1.0, 1)]
)
def test_a_link_trains_to_a_width_that_exists(severity: float, lanes: int) -> None:
    truth = truth_of(INVENTORY, H100, [a_fault("pcie_width", severity=severity)], NIGHT)
    assert truth.pcie[2, 5] * 16 == lanes


def test_several_faults_at_once() -> None:
    assert changed([a_fault("slow_nic"), a_fault("thermal_throttle")]) == {"nic", "clock", "throttle"}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "slow_nik", "node": "n0001"}, "kind"),
        ({"kind": "slow_nic", "node": "n0001"}, "slow_nic needs rail"),
        ({"kind": "congested_spine", "node": "n0001"}, "takes no target"),
        ({"kind": "slow_nic", "node": "n0001", "rail": 0, "severity": 0}, "severity"),
        (
            {"kind": "hang", "node": "n0001", "start": "2026-03-02", "end": "2026-03-01"},
            "end 2026-03-01 is before start",
        ),
        ({"kind": "noisy_neighbour", "resource": "fabric", "hours": [22, 4]}, "hours 22 to 4: they rise"),
    ],
)
def test_a_wrong_fault_is_refused(fault: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scenario.model_validate({"faults": [fault]})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "slow_nic", "node": "n0009", "rail": 0}, "no node 'n0009'"),
        ({"kind": "slow_nic", "node": "n0001", "rail": 8}, "no rail 8, which is not one of 0 to 7"),
        ({"kind": "leaf_misconfigured", "leaf": "leaf9"}, "no leaf"),
        ({"kind": "slow_storage_server", "server": 8}, "server 8"),
    ],
)
def test_a_fault_in_a_component_that_is_not_there_is_refused(fault: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        truth_of(INVENTORY, H100, [Fault.model_validate(fault)], NIGHT)


def test_unknown_hardware_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'H100-SXM5-80GB'"):
        hardware_model("H100-SXM5")
    assert all(model.gpus == model.rails == 8 for model in MODELS.values())
