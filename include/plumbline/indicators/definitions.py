"""Derived indicators: what each is, its formula and where that comes from. The computing is in derived.py."""

from __future__ import annotations

from collections.abc import Mapping

from plumbline.benchmarks.benchmark import Benchmark
from plumbline.model import Better, Indicator

INVENTORY = "inventory"
"""Stands in the benchmark's place for what describes the inventory."""
VERSION = "1"
"""Of the derived indicators that belong to no benchmark."""

COVERAGE = "coverage"
SHARE_OF_PEERS = "share_of_peer_median"

_COVERAGE = Indicator(
    name=COVERAGE,
    unit="1",
    better=Better.HIGHER,
    title="Coverage of the inventory",
    formula="nodes with at least one measured value ÷ nodes in the inventory",
    source="plan.json (inventory) and the measured rows",
    valid_upper=1.0,
    display="{:.1%}",
    headline=True,
    judged=False,
)
_SHARE = Indicator(
    name=SHARE_OF_PEERS,
    unit="1",
    better=Better.HIGHER,
    title="Share of the peers' median",
    formula="value ÷ median of all places at that node count (median ÷ value where lower is better); 5 places or more",
    source="the measured rows; the median as in Rousseeuw and Croux, 1993: half of the places may be wrong",
)


def derived_indicators(benchmarks: Mapping[str, Benchmark]) -> dict[tuple[str, str], Indicator]:
    """Give the derived indicators of every benchmark, and of the inventory, by (benchmark, name)."""
    found = {(INVENTORY, COVERAGE): _COVERAGE}
    for name, module in benchmarks.items():
        if any(item.judged and item.better is not Better.NEITHER for item in module.INDICATORS):
            found[name, SHARE_OF_PEERS] = _SHARE
    return found
