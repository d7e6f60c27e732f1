from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.references.ceilings import (
    ACCELERATORS,
    PCIE_GB_S,
    accelerator,
    ceiling,
    dense_peak_tflops,
    one_node_ceiling,
)

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast", "reduce")


@pytest.mark.parametrize(
    ("nodes", "right"), [(2, 514.3), (4, 516.7), (8, 450.0), (16, 423.3), (32, 411.3), (64, 405.6), (128, 402.8)]
)
def test_h100_on_eight_400g_links(nodes: int, right: float):
    assert ceiling("all_reduce", nodes, 8, 480.0, 400.0, "ring") == pytest.approx(right, abs=0.06)


def test_published_values_lie_below_their_ceilings():
    published = [
        ("all_reduce", 2, 480.0, 400.0, 487.9),
        ("all_reduce", 4, 234.9, 200.0, 191.6),
        ("all_reduce", 8, 480.0, 400.0, 386.6),
        ("all_reduce", 4, 845.7, 400.0, 381.8),
        ("alltoall", 2, 450.0, 200.0, 40.2),
    ]
    for operation, nodes, one_node, nics, value in published:
        assert value < (ceiling(operation, nodes, 8, one_node, nics, "tree") or 0), (operation, nodes)


def test_few_nodes_may_exceed_the_link_rate():
    assert (ceiling("all_reduce", 2, 8, None, 400.0, "ring") or 0) == pytest.approx(750.0)


@pytest.mark.parametrize("algorithm", [None, "", "collnet", "sharp", "mnnvl", "whatever"])
def test_without_knowing_how_data_crosses_the_network_it_bounds_nothing(algorithm: str | None):
    assert ceiling("all_reduce", 4, 8, None, 400.0, algorithm) is None
    assert ceiling("all_reduce", 4, 8, 480.0, 400.0, algorithm) == pytest.approx(480 * (31 / 32) / (7 / 8))


def test_one_rank_and_unknown_operations_have_no_ceiling():
    assert ceiling("all_reduce", 1, 1, 480.0, 400.0, "ring") is None
    assert ceiling("gather_all_of_it", 4, 8, 480.0, 400.0, "ring") is None
    assert one_node_ceiling("all_reduce", 1, "H100-SXM5-80GB") is None
    assert one_node_ceiling("all_reduce", 8, "abacus") is None


@given(st.sampled_from(OPERATIONS), st.integers(2, 512), st.integers(2, 8), st.floats(1, 2000), st.floats(1, 2000))
def test_a_ceiling_is_positive_grows_with_its_rates_and_no_term_is_lost(op, nodes, gpus, bus, nics):
    both = ceiling(op, nodes, gpus, bus, nics, "ring")
    link, network = ceiling(op, nodes, gpus, bus, None, "ring"), ceiling(op, nodes, gpus, None, nics, "ring")
    assert both is not None and link is not None and network is not None
    assert both == min(link, network) > 0
    assert (ceiling(op, nodes, gpus, bus * 2, nics * 2, "ring") or 0) == pytest.approx(2 * both)


@given(st.sampled_from(OPERATIONS), st.integers(1, 512), st.integers(1, 8))
def test_as_many_nodes_as_one_can_do_what_one_can(op, nodes, gpus):
    one = ceiling(op, 1, gpus, 100.0, None, None)
    assert one is None or one == pytest.approx(100.0)


def test_in_switch_reduction_lifts_an_all_reduce_only():
    assert one_node_ceiling("all_reduce", 8, "H100-SXM5-80GB") == pytest.approx(787.5)
    assert one_node_ceiling("all_gather", 8, "H100-SXM5-80GB") == 450
    assert one_node_ceiling("all_reduce", 8, "A100-SXM4-80GB") == 300


@pytest.mark.parametrize(
    ("printed", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIE-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA H200", "H200-SXM5-141GB"),
        ("NVIDIA B200", "B200-SXM-180GB"),
        ("AMD Instinct MI300X", "MI300X-192GB"),
    ],
)
def test_drivers_spellings_are_known(printed: str, model: str):
    found = accelerator(printed)
    assert found is not None and found.model == model


def test_data_sheets_are_consistent():
    names = [name for item in ACCELERATORS for name in (item.model, *item.names)]
    assert len(names) == len(set(names))
    for item in ACCELERATORS:
        peaks = item.dense_tflops
        assert item.source and item.memory_gb_s > 100 and all(rate > 0 for rate in peaks.values())
        order = [peaks[p] for p in ("fp64", "fp32", "tf32", "fp16", "fp8", "fp4") if p in peaks]
        assert order == sorted(order), item.model


def test_peaks_by_precision():
    assert dense_peak_tflops("H100-SXM5-80GB", "FP16") == 989.4
    assert dense_peak_tflops("H100-SXM5-80GB", "auto") is None
    assert dense_peak_tflops("cpu", "fp32") is None
    assert PCIE_GB_S[5, 16] == pytest.approx(63.0, abs=0.1)
