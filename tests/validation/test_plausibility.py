from __future__ import annotations

from typing import Any

import pytest
from tests.validation.good_run import profile

from plumbline.indicators import indicator
from plumbline.references.reference import load_references
from plumbline.validation.plausibility import Physics, one_node_busbw, physical_ceiling


def top(benchmark: str, name: str, node_count: int, params: dict[str, Any], **more: Any) -> float | None:
    launch = more.pop("launch", {})
    domains = more.pop("nvlink_domains", False)
    one_node = more.pop("one_node", {})
    physics = Physics(profile=profile(**more), one_node_busbw=one_node, nvlink_domains=domains,
                      launch_params={benchmark: launch})  # fmt: skip
    found = physical_ceiling(benchmark, indicator(benchmark, name), node_count, params, physics)
    return None if found is None else found[0]


REDUCE = {"operation": "all_reduce"}


def test_bus_bandwidth_by_topology():
    assert top("nccl_tests", "bus_bandwidth", 1, REDUCE) == pytest.approx(787.5)
    assert top("nccl_tests", "bus_bandwidth", 8, REDUCE, one_node={"all_reduce": 480.0}) == pytest.approx(450.0)
    assert top("nccl_tests", "bus_bandwidth", 2, REDUCE, one_node={"all_reduce": 480.0}) == pytest.approx(
        514.3, abs=0.1
    )
    assert top("nccl_tests", "latency_smallest", 1, REDUCE) is None


def test_an_impossible_one_node_value_lifts_no_ceiling():
    assert top("nccl_tests", "bus_bandwidth", 2, REDUCE, one_node={"all_reduce": 1e9}) == pytest.approx(750.0)


@pytest.mark.parametrize(
    "more",
    [
        {"nvlink_domains": True},
        {"fabric": {"name": "x", "node_bandwidth_gbit_s": 3200, "in_network_reduction": True}},
        {"fabric": {"name": "x"}},
    ],
)
def test_where_the_network_term_cannot_be_known_only_the_links_bound(more: dict[str, Any]):
    assert top("nccl_tests", "bus_bandwidth", 8, REDUCE, one_node={"all_reduce": 480.0}, **more) == pytest.approx(540.0)


def test_rates_by_the_dense_peak_of_the_named_precision():
    assert top("hpl_mxp", "effective_flops", 2, {"precision": "fp16"}) == pytest.approx(16 * 989.4e3)
    assert top("hpl_mxp", "matmul_rate", 2, {"precision": "bf16"}) == pytest.approx(989.4e3)
    assert top("mlperf_gpt3", "model_flops", 4, {"precision": "fp32"}) == pytest.approx(494.7e3)
    assert top("hpl_mxp", "effective_flops", 1, {}, launch={"precision": "fp8"}) == pytest.approx(8 * 1978.9e3)
    assert top("hpl_mxp", "effective_flops", 1, {"precision": "auto"}) is None
    assert top("hpl_mxp", "effective_flops", 1, {}) is None


def test_what_one_node_should_reach_counts_where_all_nodes_are_slow():
    references = load_references("H100-SXM5-80GB").references
    assert one_node_busbw((), references) == {"all_reduce": 480.0}
