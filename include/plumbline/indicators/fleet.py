"""Derived from the fleet as a whole: how much of it was measured, and how each place compares with its peers."""

from __future__ import annotations

from collections.abc import Iterator

from plumbline.analysis.neighbours import LEAST_PEERS, shares
from plumbline.errors import ConfigError
from plumbline.indicators.definitions import COVERAGE, INVENTORY, SHARE_OF_PEERS, VERSION
from plumbline.indicators.rows import Derived, Rows, per_launch, with_param
from plumbline.model import Better, Indicator
from plumbline.validation.readout import ExpectedRow


def inventory_coverage(rows: Rows) -> Iterator[Derived]:
    """Give nodes with at least one measured value ÷ nodes in the inventory."""
    size = len(rows.plan.inventory)
    if not size:
        return
    nodes = {launch.launch_id: launch.nodes for launch in rows.readout.launches}
    touched = {row.launch_id: row for row in rows.measured.values()}
    covered = {node for launch_id in touched for node in nodes.get(launch_id, ())}
    names = {node.name for node in rows.plan.inventory}
    row = ExpectedRow(
        launch_id=f"derived-{INVENTORY}-n{size}", benchmark=INVENTORY, benchmark_version=VERSION, indicator=COVERAGE,
        node_count=size, wave=1, group=None, node=None, gpu=None, repeat=1, params="{}",
    )  # fmt: skip
    source = next(iter(touched.values()), None)
    yield Derived(row=row, value=len(covered & names) / size if source else None, unit="1", source=source)


def shares_of_peers(rows: Rows) -> Iterator[Derived]:
    """Give each headline value's share of the median of all places at its rung, with at least LEAST_PEERS planned.

    Only headline indicators: comparing every message size of every group would raise an alarm every healthy night.
    """
    groups: dict[tuple[str, str, str, int, str], list[ExpectedRow]] = {}
    for row in rows.readout.expected:
        key = (row.benchmark, row.benchmark_version, row.indicator, row.node_count, row.params)
        groups.setdefault(key, []).append(row)
    for (benchmark, _, name, _, params), members in groups.items():
        meant = _comparable(benchmark, name)
        if meant is None or len({(row.group, row.node, row.gpu) for row in members}) < LEAST_PEERS:
            continue
        found = [rows.of(row) for row in members]
        there = [(index, row.value) for index, row in enumerate(found) if row is not None and row.unit == meant.unit]
        share = dict(zip((i for i, _ in there), shares([v for _, v in there], meant.better), strict=True))
        enough = len(there) >= LEAST_PEERS
        own = with_param(params, "indicator", name)
        for index, row in enumerate(members):
            value = float(share[index]) if enough and index in share and share[index] == share[index] else None
            yield Derived(row=per_launch(row, SHARE_OF_PEERS, own), value=value, unit="1", source=found[index])


def _comparable(benchmark: str, name: str) -> Indicator | None:
    from plumbline.indicators import indicator  # noqa: PLC0415 - that module's definitions import this package

    try:
        meant = indicator(benchmark, name)
    except ConfigError:
        return None
    return meant if meant.headline and meant.judged and meant.better is not Better.NEITHER else None
