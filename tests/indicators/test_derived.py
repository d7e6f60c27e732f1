from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from plumbline.clusters.inventory import InventoryNode
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Plan
from plumbline.indicators.derived import derive
from plumbline.model import Contends, Device, LaunchSpec, Measurement, Origin, canonical_params
from plumbline.validation.readout import ExpectedRow, LaunchSummary, Readout, row_key

UNITS = {
    "step_time": "s",
    "effective_flops": "GFLOPS",
    "read_bandwidth": "MB/s",
    "write_bandwidth": "MB/s",
    "bus_bandwidth_headline": "GB/s",
    "read_iops": "IOPS",
    "read_latency_p99": "us",
    "latency_smallest": "us",
    "model_flops": "GFLOPS",
}


def profile(**more: Any) -> ClusterProfile:
    return ClusterProfile.model_validate(
        {"name": "made-up", "title": "made up", "launcher": "simulated", "device": "gpu",
         "accelerator": {"model": "H100-SXM5-80GB", "per_node": 8},
         "fabric": {"name": "ndr-8x400g", "node_bandwidth_gbit_s": 3200}, "nodes": {"simulated": 8},
         "storage": {"directory": "/tmp/none"}, **more}
    )  # fmt: skip


class Made:
    """A readout made row by row. `value` None plans a row that nothing measured."""

    def __init__(self) -> None:
        self.expected: list[ExpectedRow] = []
        self.measured: list[Measurement] = []
        self.launches: dict[str, LaunchSpec] = {}

    def add(
        self, benchmark: str, indicator: str, node_count: int, value: float | None, group: int = 0, repeat: int = 1,
        launch: dict[str, Any] | None = None, **params: Any,
    ) -> None:  # fmt: skip
        launch_id = f"{benchmark}-n{node_count}-g{group}-r{repeat}"
        nodes = tuple(f"n{group * node_count + i + 1:04d}" for i in range(node_count))
        self.launches.setdefault(
            launch_id,
            LaunchSpec(
                launch_id=launch_id, run_id="r", cluster="made-up", benchmark=benchmark, benchmark_version="1",
                reader="none", node_count=node_count, wave=1, group=group, repeat=repeat, nodes=nodes,
                accelerators_per_node=8, device=Device.GPU, origin=Origin.SIMULATED, contends=Contends.NONE,
                params=launch or {}, argv=("true",), timeout_s=1.0,
            ),
        )  # fmt: skip
        node = nodes[0] if node_count == 1 else None
        row = ExpectedRow(
            launch_id=launch_id, benchmark=benchmark, benchmark_version="1", indicator=indicator,
            node_count=node_count, wave=1, group=group, node=node, gpu=None, repeat=repeat,
            params=canonical_params(params),
        )  # fmt: skip
        self.expected.append(row)
        if value is not None:
            self.measured.append(
                Measurement(
                    run_id="r", suite="nightly", cluster="made-up", origin=Origin.SIMULATED, device=Device.GPU,
                    launch_id=launch_id, attempt=1, wave=1, group=group, node=node, gpu=None, hardware_id="h",
                    node_count=node_count, benchmark=benchmark, benchmark_version="1", indicator=indicator,
                    value=value, unit=UNITS[indicator], repeat=repeat, params=row.params, measured_at="t",
                )
            )  # fmt: skip

    def derive(self, **more: Any) -> tuple[dict[Any, float], list[ExpectedRow]]:
        """Give (benchmark, indicator, node count) → values of derived rows, and those without a value."""
        inventory = tuple(InventoryNode(name=f"n{i + 1:04d}") for i in range(8))
        plan = Plan(run_id="r", cluster="made-up", suite="nightly", seed=1, inventory=inventory,
                    launches=tuple(self.launches.values()), batches=())  # fmt: skip
        launches = tuple(
            LaunchSummary(launch_id=s.launch_id, benchmark=s.benchmark, node_count=s.node_count, wave=1, group=s.group,
                          repeat=s.repeat, nodes=s.nodes, attempts=1, outcome="exited", exit_code=0, reason="",
                          started_at=None, duration_s=None, argv=(), timeout_s=1.0, raw_dir=None)
            for s in self.launches.values()
        )  # fmt: skip
        before = Readout(
            measurements=tuple(self.measured), expected=tuple(self.expected), verdicts=(), launches=launches
        )
        after = derive(before, plan=plan, profile=profile(**more))
        assert after.expected[: len(self.expected)] == before.expected
        assert after.measurements[: len(self.measured)] == before.measurements
        keys = [row_key(row) for row in after.expected]
        assert len(set(keys)) == len(keys), "derived rows must not share a key"
        derived = after.measurements[len(self.measured) :]
        assert {row_key(row) for row in derived} <= set(keys)
        assert all(row.launch_id.startswith("derived-") for row in derived)
        have = {row_key(row) for row in derived}
        missing = [row for row in after.expected[len(self.expected) :] if row_key(row) not in have]
        return {(r.benchmark, r.indicator, r.node_count, r.group): r.value for r in derived}, missing


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch):
    """Know a trainer's step time, whether or not a trainer is there."""
    import plumbline.indicators as known

    made = known.benchmarks()
    step = replace(made["fio"].INDICATORS[5], name="step_time", unit="s")
    known.indicators.cache_clear()
    monkeypatch.setattr(known, "benchmarks", lambda: {**made, "trainer": SimpleNamespace(INDICATORS=(step,))})
    yield
    known.indicators.cache_clear()


@pytest.mark.parametrize(
    ("scaling", "times", "right"),
    [("weak", (1.0, 1.0, 1.25), (1.0, 0.8)), ("strong", (1.0, 0.5, 0.3125), (1.0, 0.8))],
)
def test_scaling_efficiency_from_step_time(scaling: str, times: tuple[float, ...], right: tuple[float, ...]):
    made = Made()
    for node_count, time in zip((1, 2, 4), times, strict=True):
        made.add("trainer", "step_time", node_count, time, launch={"scaling": scaling}, mode="fixed_steps")
    values, missing = made.derive()
    name = f"scaling_efficiency_{scaling}"
    assert missing == []
    assert [values["trainer", name, n, None] for n in (2, 4)] == [pytest.approx(v) for v in right]
    assert ("trainer", name, 1, None) not in values


@pytest.mark.parametrize(("planned", "base"), [((1, 2, 4), 1), ((2, 4), 2)])
def test_an_efficiency_names_its_base_so_that_it_is_never_taken_for_one_of_another(planned: tuple[int, ...], base: int):
    made = Made()
    for node_count in planned:
        made.add("trainer", "step_time", node_count, None, launch={"scaling": "weak"}, mode="fixed_steps")
    (*_, row) = made.derive()[1]
    assert (row.node_count, row.params) == (4, f'{{"base_nodes":{base},"mode":"fixed_steps"}}')


def test_scaling_efficiency_takes_medians_over_groups_and_repeats():
    made = Made()
    for group, time in enumerate((1.0, 1.1, 9.0)):
        made.add("trainer", "step_time", 1, time, group=group, launch={"scaling": "weak"})
    for repeat, time in enumerate((1.0, 1.2), start=1):
        made.add("trainer", "step_time", 2, time, repeat=repeat, launch={"scaling": "weak"})
    values, _ = made.derive()
    assert values["trainer", "scaling_efficiency_weak", 2, None] == pytest.approx(1.1 / 1.1)


def test_a_missing_base_leaves_every_efficiency_not_run():
    made = Made()
    made.add("trainer", "step_time", 1, None, launch={"scaling": "weak"})
    made.add("trainer", "step_time", 2, 1.0, launch={"scaling": "weak"})
    made.add("trainer", "step_time", 4, 1.0, launch={"scaling": "weak"})
    values, missing = made.derive()
    assert not [key for key in values if "efficiency" in key[1]]
    assert [(row.indicator, row.node_count) for row in missing] == [("scaling_efficiency_weak", n) for n in (2, 4)]


def test_a_base_of_zero_is_no_base():
    made = Made()
    made.add("trainer", "step_time", 1, 0.0, launch={"scaling": "weak"})
    made.add("trainer", "step_time", 2, 1.0, launch={"scaling": "weak"})
    assert [row.indicator for row in made.derive()[1]] == ["scaling_efficiency_weak"]


def test_hpl_mxp_scales_by_rate_with_a_matrix_that_grows():
    made = Made()
    made.add("hpl_mxp", "effective_flops", 1, 1000.0, launch={"scaling": "weak"}, precision="fp16", n=1000)
    made.add("hpl_mxp", "effective_flops", 4, 3000.0, launch={"scaling": "weak"}, precision="fp16", n=2000)
    values, _ = made.derive()
    assert values["hpl_mxp", "scaling_efficiency_weak", 4, None] == pytest.approx(0.75)


def test_shares_of_the_dense_peak_name_the_precision():
    made = Made()
    made.add("hpl_mxp", "effective_flops", 1, 1_583_040.0, precision="fp16")
    values, _ = made.derive()
    assert values["hpl_mxp", "theoretical_flops", 1, 0] == pytest.approx(8 * 989.4e3)
    assert values["hpl_mxp", "effective_of_theoretical", 1, 0] == pytest.approx(0.2)
    unknown = Made()
    unknown.add("hpl_mxp", "effective_flops", 1, 1e6, precision="auto")
    assert not [key for key in unknown.derive()[0] if key[0] == "hpl_mxp"] and unknown.derive()[1] == []


def test_model_flops_utilization_where_the_peak_is_known():
    made = Made()
    made.add("mlperf_gpt3", "model_flops", 2, 494_700.0, precision="bf16")
    made.add("mlperf_gpt3", "model_flops", 4, None, precision="bf16")
    values, missing = made.derive()
    assert values["mlperf_gpt3", "model_flops_utilization", 2, 0] == pytest.approx(0.5)
    assert [(row.indicator, row.node_count) for row in missing] == [("model_flops_utilization", 4)]
    unknown = made.derive(accelerator={"model": "abacus", "per_node": 8})
    assert not [key for key in unknown[0] if key[0] == "mlperf_gpt3"] and unknown[1] == []


def nccl(values: dict[int, float | None]) -> Made:
    made = Made()
    for node_count, value in values.items():
        made.add("nccl_tests", "bus_bandwidth_headline", node_count, value, operation="all_reduce", message_bytes=1)
    return made


def test_bus_bandwidth_of_its_ceiling():
    values, missing = nccl({1: 480.0, 2: 480.0, 8: 386.6}).derive()
    name = "bus_bandwidth_of_ceiling"
    assert missing == []
    assert values["nccl_tests", name, 1, 0] == pytest.approx(480 / 787.5)
    assert values["nccl_tests", name, 2, 0] == pytest.approx(480 / 514.3, rel=1e-3)
    assert values["nccl_tests", name, 8, 0] == pytest.approx(0.859, rel=1e-3)


def test_the_ceiling_needs_one_node_where_one_node_was_planned():
    values, missing = nccl({1: None, 8: 386.6}).derive()
    assert not [key for key in values if "ceiling" in key[1]] and len(missing) == 2


def test_the_ceiling_of_a_run_without_single_nodes_makes_another_indicator():
    """By the link rate two nodes of full speed reach 480 ÷ 750, by what one node gives 480 ÷ 514.3."""
    values, missing = nccl({2: 480.0, 8: 386.6}).derive()
    name = "bus_bandwidth_of_rated_ceiling"
    assert {key[1] for key in values if "ceiling" in key[1]} == {name} and missing == []
    assert values["nccl_tests", name, 2, 0] == pytest.approx(480 / 750)
    assert values["nccl_tests", name, 8, 0] == pytest.approx(386.6 / 450)
    made = nccl({1: 480.0, 8: 386.6})
    made.add("nccl_tests", "bus_bandwidth_headline", 8, 380.0, operation="all_gather", message_bytes=1)
    assert {key[1:3] for key in made.derive()[0] if "ceiling" in key[1]} == {
        ("bus_bandwidth_of_ceiling", 1), ("bus_bandwidth_of_ceiling", 8), (name, 8),
    }  # fmt: skip


@pytest.mark.parametrize(
    "fabric", [{"name": "unknown"}, {"name": "x", "node_bandwidth_gbit_s": 3200, "in_network_reduction": True}]
)
def test_without_knowing_the_network_there_is_no_ceiling_to_hold_against(fabric: dict[str, Any]):
    values, missing = nccl({1: 480.0, 8: 386.6}).derive(fabric=fabric)
    assert {key[2] for key in values if "ceiling" in key[1]} == {1} and missing == []


def test_aggregate_storage_is_the_best_rung_and_needs_all():
    made = Made()
    for node_count, value in ((1, 1000.0), (2, 3000.0), (4, 2500.0)):
        made.add("fio", "read_bandwidth", node_count, value)
    assert made.derive()[0]["fio", "aggregate_read_bandwidth", 4, None] == 3000.0
    made.add("fio", "read_bandwidth", 8, None)
    values, missing = made.derive()
    assert not [key for key in values if "aggregate" in key[1]]
    assert [(row.indicator, row.params) for row in missing] == [
        ("aggregate_read_bandwidth", '{"node_counts":"1,2,4,8"}')
    ]


def test_shares_of_peers_with_five_places_and_not_with_four():
    made = Made()
    for group, value in enumerate((100.0, 100.0, 100.0, 100.0, 80.0)):
        made.add("fio", "read_iops", 1, value, group=group)
    values, _ = made.derive()
    assert [values["fio", "share_of_peer_median", 1, g] for g in range(5)] == [1, 1, 1, 1, pytest.approx(0.8)]
    few = Made()
    for group in range(4):
        few.add("fio", "read_iops", 1, 100.0, group=group)
    values, missing = few.derive()
    assert not [key for key in values if "share" in key[1]] and missing == []


def test_a_slow_latency_is_a_small_share():
    made = Made()
    for group, value in enumerate((10.0, 10.0, 10.0, 10.0, 20.0)):
        made.add("nccl_tests", "latency_smallest", 1, value, group=group, operation="all_reduce")
        made.add("fio", "read_latency_p99", 1, value, group=group)
    values, _ = made.derive()
    assert values["nccl_tests", "share_of_peer_median", 1, 4] == pytest.approx(0.5)
    assert ("fio", "share_of_peer_median", 1, 4) not in values, "only headline indicators are compared"


def test_a_missing_peer_is_missing_and_the_others_are_still_compared():
    made = Made()
    for group in range(6):
        made.add("fio", "read_iops", 1, None if group == 2 else 100.0, group=group)
    values, missing = made.derive()
    assert [row.group for row in missing] == [2] and len([key for key in values if "share" in key[1]]) == 5
    few = Made()
    for group in range(6):
        few.add("fio", "read_iops", 1, None if group in (2, 3) else 100.0, group=group)
    values, missing = few.derive()
    assert len(missing) == 6 and not [key for key in values if "share" in key[1]]


def test_coverage_counts_nodes_with_a_value():
    made = Made()
    made.add("fio", "read_iops", 1, 1.0, group=0)
    made.add("fio", "read_iops", 1, None, group=1)
    made.add("fio", "read_iops", 2, 1.0, group=1)
    assert made.derive()[0]["inventory", "coverage", 8, None] == pytest.approx(3 / 8)


def test_what_was_measured_twice_derives_nothing():
    made = Made()
    made.add("hpl_mxp", "effective_flops", 1, 1e6, precision="fp16")
    made.measured.append(replace(made.measured[0], value=2e6))
    assert not [key for key in made.derive()[0] if key[0] == "hpl_mxp"]
