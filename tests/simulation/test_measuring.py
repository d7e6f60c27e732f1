"""Measurements without text are those that the printed text gives, number by number and verdict by verdict."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.simulation.test_truth import a_fault
from tests.simulation.two_ways import MOMENT, BothWays, both_ways, differences

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile, load_profile
from plumbline.execution.plan import make_plan
from plumbline.simulation.deriving import derive
from plumbline.simulation.faults import TARGETS, Scenario
from plumbline.simulation.layout import Layout, seed_of
from plumbline.simulation.measuring import measure
from plumbline.simulation.night import Night
from plumbline.suites.suite import Suite, load_suite

PROFILE = load_profile("simulated-8")
NIGHTLY = load_suite("nightly")


def twelve_nodes() -> ClusterProfile:
    """Give a cluster whose rungs leave nodes over, with an excluded node."""
    data = PROFILE.model_dump(mode="json")
    data["nodes"] = {"simulated": 12, "nodes_per_leaf": 5}
    data["exclusions"] = [{"node": "n0007", "reason": "being repaired", "owner": "test", "until": "2099-01-01"}]
    return ClusterProfile.model_validate(data)


def assert_equal(found: BothWays) -> None:
    assert differences(found) == []
    assert found.readout.measurements


@pytest.mark.parametrize(
    "faults",
    [
        (),
        ({"kind": "slow_nic", "severity": 0.3}, {"kind": "slow_client", "severity": 0.5}),
        ({"kind": "flapping_link", "severity": 0.9}, {"kind": "congested_spine", "severity": 0.4}),
        ({"kind": "thermal_throttle"}, {"kind": "slow_storage_server"}, {"kind": "leaf_misconfigured"}),
        ({"kind": "missing_gpu"},),
        ({"kind": "hang", "benchmark": "nccl_tests"}, {"kind": "retired_memory", "severity": 1.0}),
        ({"kind": "truncated_output"},),
        ({"kind": "clock_drift", "severity": 0.5}, {"kind": "node_lost", "node": "n0001"}),
        ({"kind": "silent_corruption", "severity": 0.6}, {"kind": "pcie_width", "severity": 0.5}),
        ({"kind": "driver_rollback"}, {"kind": "nccl_rollback"}, {"kind": "wrong_affinity", "severity": 1.0}),
    ],
    ids=lambda faults: "+".join(fault["kind"] for fault in faults) or "healthy",
)
def test_a_night_without_text_is_the_night_that_is_printed(faults: tuple[dict[str, Any], ...], tmp_path: Path) -> None:
    scenario = Scenario(seed=len(faults) + 3, faults=tuple(a_fault(**fault) for fault in faults))
    assert_equal(both_ways(PROFILE, NIGHTLY, scenario, tmp_path))


def test_every_kind_of_fault_is_among_them() -> None:
    """Hold the list above to the kinds that there are; the rest change nothing but what others change already."""
    [mark] = test_a_night_without_text_is_the_night_that_is_printed.pytestmark
    tried = {fault["kind"] for faults in mark.args[1] for fault in faults}
    same_effect = {"degraded_link", "ageing_port", "nvlink_lane_down", "power_throttle", "noisy_neighbour"}
    assert tried | same_effect == set(TARGETS)


def test_rungs_that_leave_nodes_over_and_an_excluded_node(tmp_path: Path) -> None:
    assert_equal(
        both_ways(twelve_nodes(), NIGHTLY, Scenario(seed=9, faults=(a_fault("slow_nic"),)), tmp_path, number=77)
    )


def test_a_night_without_single_nodes(tmp_path: Path) -> None:
    suite = load_suite("nightly", {"node_counts": "2,8"})
    found = both_ways(PROFILE, suite, Scenario(seed=5), tmp_path)
    assert_equal(found)
    shares = {row.indicator for row in found.readout.measurements if "ceiling" in row.indicator}
    assert shares == {"bus_bandwidth_of_rated_ceiling"}


def test_acceptance_trains_to_its_target_and_repeats(tmp_path: Path) -> None:
    suite = load_suite("acceptance", {"node_counts": "1,8"})
    assert_equal(both_ways(PROFILE, suite, Scenario(seed=2, faults=(a_fault("thermal_throttle"),)), tmp_path))


def test_other_hardware_and_parameters(tmp_path: Path) -> None:
    suite = Suite.model_validate(
        NIGHTLY.model_dump(mode="json")
        | {
            "benchmarks": [
                {"benchmark": "fio", "params": {"clients": 3, "jobs": "seq_read,rand_write", "runtime_s": 2.25}},
                {"benchmark": "nccl_tests", "params": {"operations": "alltoall,sendrecv,reduce_scatter",
                                                       "headline_message_bytes": "1G", "step_factor": 2}},
                {"benchmark": "mlperf_gpt3", "params": {"scaling": "strong", "global_batch": 256, "checkpoint": False}},
            ]
        }
    )  # fmt: skip
    assert_equal(both_ways(load_profile("simulated-a100"), suite, Scenario(seed=4), tmp_path))


# -- nights side by side ---------------------------------------------------------------------------------------------


def run_id(day: int) -> str:
    return f"{MOMENT + timedelta(days=day):%Y%m%dT%H%M%SZ}-{day + 1:06x}"


def test_nights_side_by_side_are_the_nights_alone() -> None:
    """Nights of other dates, seeds and faults, and two that share their noise."""
    base = Layout.of(
        make_plan(PROFILE, NIGHTLY, static_inventory(PROFILE, MOMENT.date()), run_id=run_id(0), seed=1),
        PROFILE,
        NIGHTLY,
    )
    faults = (a_fault("slow_nic"), a_fault("flapping_link", severity=0.9), a_fault("silent_corruption", severity=0.9))
    chosen = [
        (0, Scenario(seed=1)), (0, Scenario(seed=1, faults=faults)), (1, Scenario(seed=1)), (1, Scenario(seed=8)),
        (2, Scenario(seed=1, faults=(a_fault("hang"), a_fault("noisy_neighbour")))),
    ]  # fmt: skip
    nights = [Night.of(PROFILE, scenario, MOMENT + timedelta(days=day)) for day, scenario in chosen]
    layouts = [base.on(run_id(day)) for day, _ in chosen]
    together = measure(nights, layouts)
    for t, (night, layout) in enumerate(zip(nights, layouts, strict=True)):
        alone = measure([night], [layout])
        assert alone.verdicts[0] == together.verdicts[t]
        for one, all_nights in zip(
            (*alone.sheets, *derive(alone)), (*together.sheets, *derive(together)), strict=True
        ):  # fmt: skip
            assert np.array_equal(one.values[0], all_nights.values[t], equal_nan=True)
            assert one.nodes is None or np.array_equal(one.nodes[0], all_nights.nodes[t])


def test_a_layout_of_another_night_is_that_of_its_plan() -> None:
    profile = twelve_nodes()
    inventory = static_inventory(profile, MOMENT.date())

    def planned(day: int) -> Layout:
        plan = make_plan(profile, NIGHTLY, inventory, run_id=run_id(day), seed=seed_of(run_id(day)))
        return Layout.of(plan, profile, NIGHTLY)

    moved, made = planned(0).on(run_id(5)), planned(5)
    assert moved.plan == made.plan
    assert all(np.array_equal(a, b) for a, b in zip(moved.indices, made.indices, strict=True))
    assert [(s.batch_id, s.kinds, s.places) for s in moved.steps] == [
        (s.batch_id, s.kinds, s.places) for s in made.steps
    ]


def test_plans_of_other_steps_are_refused() -> None:
    one, other = (
        Layout.of(
            make_plan(p, NIGHTLY, static_inventory(p, MOMENT.date()), run_id=run_id(0), seed=1), p, NIGHTLY
        )
        for p in (PROFILE, twelve_nodes())
    )  # fmt: skip
    night = Night.of(PROFILE, Scenario(), MOMENT)
    with pytest.raises(ValueError, match="the same steps"):
        measure([night, night], [one, other])
