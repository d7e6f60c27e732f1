"""Derived indicators: what each is, its formula and where that comes from. The computing is in derived.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.benchmarks.benchmark import Benchmark
from plumbline.model import Better, Indicator

INVENTORY = "inventory"
"""Stands in the benchmark's place for what describes the inventory."""
VERSION = "1"
"""Of the derived indicators that belong to no benchmark."""

COVERAGE = "coverage"
SHARE_OF_PEERS = "share_of_peer_median"
EFFICIENCY = {"weak": "scaling_efficiency_weak", "strong": "scaling_efficiency_strong"}
BUS_OF_CEILING = "bus_bandwidth_of_ceiling"
BUS_OF_RATED = "bus_bandwidth_of_rated_ceiling"
"""Another ceiling is another number: a run that plans no single node never has BUS_OF_CEILING at more."""
BUS_HEADLINE = "bus_bandwidth_headline"
THEORETICAL = "theoretical_flops"
EFFECTIVE = "effective_flops"
EFFECTIVE_OF_THEORETICAL = "effective_of_theoretical"
AGGREGATE = {
    "read_bandwidth": "aggregate_read_bandwidth",
    "write_bandwidth": "aggregate_write_bandwidth",
}
STEP_TIME = "step_time"
MODEL_FLOPS = "model_flops"
MFU = "model_flops_utilization"

BASE = "base_nodes"
"""Parameter of scaling efficiencies: the node count that they are relative to."""
OVER = "node_counts"
"""Parameter of aggregates: the node counts that they are the best of, such as '1,2,4'."""


def _ratio(name: str, title: str, formula: str, source: str, **more: Any) -> Indicator:
    shape: dict[str, Any] = {"better": Better.HIGHER, "display": "{:.1%}", **more}
    return Indicator(name=name, unit="1", title=title, formula=formula, source=source, **shape)


_COVERAGE = _ratio(
    COVERAGE, "Coverage of the inventory", "nodes with at least one measured value ÷ nodes in the inventory",
    "plan.json (inventory) and the measured rows", valid_upper=1.0, headline=True, judged=False,
)  # fmt: skip
_SHARE = _ratio(
    SHARE_OF_PEERS, "Share of the peers' median",
    "headline value ÷ median of all places at that node count (inverse where lower is better); 5 places or more",
    "the measured rows; a median holds while fewer than half of the places are wrong",
)  # fmt: skip
_WEAK = _ratio(
    EFFICIENCY["weak"], "Scaling efficiency, weak (fixed work a node)",
    f"step time at the smallest planned node count ({BASE}) ÷ step time at N; from a rate: (rate at N ÷ N) ÷ (rate at "
    "base ÷ base)",
    "Gustafson, Communications of the ACM 31(5), 1988; medians over groups and repeats", headline=True,
    valid_upper=2.0,
)  # fmt: skip
_STRONG = _ratio(
    EFFICIENCY["strong"], "Scaling efficiency, strong (fixed work in all)",
    f"(step time at base × base) ÷ (step time at N × N), base: {BASE}; from a rate as for weak scaling",
    "Amdahl, AFIPS 30, 1967; medians over groups and repeats", headline=True, valid_upper=2.0,
)  # fmt: skip
_OF_CEILING = _ratio(
    BUS_OF_CEILING, "Bus bandwidth ÷ physical ceiling",
    "bus bandwidth of the headline size ÷ ceiling(operation, N, g, V, B); V: median of one node of this run, at one "
    f"node the link rate; only where V and B are known; without V see {BUS_OF_RATED}",
    "plumbline.references.ceilings", headline=True, valid_upper=1.02,
)  # fmt: skip
_OF_RATED = _ratio(
    BUS_OF_RATED, "Bus bandwidth ÷ physical ceiling by data sheets",
    f"as {BUS_OF_CEILING} with the link rate as V: stands in its place in a run that plans no single node",
    "plumbline.references.ceilings", headline=True, valid_upper=1.02,
)  # fmt: skip
_THEORETICAL = Indicator(
    name=THEORETICAL, unit="GFLOPS", better=Better.NEITHER, title="Theoretical rate",
    formula="dense peak of one accelerator at the named precision × accelerators; without sparsity",
    source="data sheets, see plumbline.references.ceilings", display="{:,.0f}", judged=False,
)  # fmt: skip
_OF_THEORETICAL = _ratio(
    EFFECTIVE_OF_THEORETICAL, "Effective ÷ theoretical rate", f"{EFFECTIVE} ÷ {THEORETICAL}",
    "HPL-MxP's reportable figure; data sheets", valid_upper=1.02,
)  # fmt: skip


_MFU = _ratio(
    MFU, "Model FLOPS utilization (MFU)",
    f"{MODEL_FLOPS} ÷ dense peak of one accelerator at the training's precision; only where the peak is known",
    "Chowdhery et al. 2022, arXiv:2204.02311, appendix B; data sheets", headline=True, valid_upper=1.02,
)  # fmt: skip


def _aggregate(name: str, direction: str) -> Indicator:
    return Indicator(
        name=name, unit="MB/s", better=Better.HIGHER, title=f"Aggregate storage {direction} bandwidth",
        formula=f"the highest {direction} bandwidth of one group, all its clients at once, over the planned {OVER}",
        source="fio rows", headline=True,
    )  # fmt: skip


def derived_indicators(benchmarks: Mapping[str, Benchmark]) -> dict[tuple[str, str], Indicator]:
    """Give the derived indicators of every benchmark, and of the inventory, by (benchmark, name)."""
    found = {(INVENTORY, COVERAGE): _COVERAGE}
    for name, module in benchmarks.items():
        own = {item.name for item in module.INDICATORS}
        if any(item.judged and item.better is not Better.NEITHER for item in module.INDICATORS):
            found[name, SHARE_OF_PEERS] = _SHARE
        if STEP_TIME in own or EFFECTIVE in own:
            found[name, EFFICIENCY["weak"]], found[name, EFFICIENCY["strong"]] = _WEAK, _STRONG
        if MODEL_FLOPS in own:
            found[name, MFU] = _MFU
        if BUS_HEADLINE in own:
            found[name, BUS_OF_CEILING], found[name, BUS_OF_RATED] = _OF_CEILING, _OF_RATED
        if EFFECTIVE in own:
            found[name, THEORETICAL], found[name, EFFECTIVE_OF_THEORETICAL] = _THEORETICAL, _OF_THEORETICAL
        for source, aggregate in AGGREGATE.items():
            if source in own:
                found[name, aggregate] = _aggregate(aggregate, source.removesuffix("_bandwidth"))
    return found
