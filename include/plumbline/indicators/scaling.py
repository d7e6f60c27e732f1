"""Derived over node counts: scaling efficiency, and the most that the storage gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from plumbline.indicators.definitions import AGGREGATE, BASE, EFFECTIVE, EFFICIENCY, OVER, STEP_TIME
from plumbline.indicators.rows import Derived, Rows, median, params_of, per_rung, with_param
from plumbline.model import Measurement, canonical_params
from plumbline.validation.readout import ExpectedRow

_SIZES = frozenset({"n", "nb", "p", "q", "global_batch", "batch", "ranks"})
"""Parameters that grow with the node count by design: rungs that differ in them alone are one series."""

Rungs = Mapping[int, Sequence[ExpectedRow]]


def scaling_efficiency(rows: Rows) -> Iterator[Derived]:
    """Give the efficiency at every rung above the smallest planned one, weak or strong as the launch was asked.

    Relative to another base it is another number: the base is a parameter of the row.
    """
    for indicator, is_time in ((STEP_TIME, True), (EFFECTIVE, False)):
        for scaling, rungs in _series(rows, indicator):
            base, *larger = sorted(rungs)
            at_base, _ = _median_of(rows, rungs[base])
            for node_count in larger:
                value, source = _median_of(rows, rungs[node_count])
                first = rungs[node_count][0]
                row = per_rung(first, EFFICIENCY[scaling], with_param(first.params, BASE, base))
                share = None
                if at_base is not None and value is not None and at_base > 0 and value > 0:
                    share = _efficiency(at_base, base, value, node_count, scaling, is_time)
                yield Derived(row=row, value=share, unit="1", source=source)


def _efficiency(at_base: float, base: int, value: float, node_count: int, scaling: str, is_time: bool) -> float:
    if not is_time:
        return (value / node_count) / (at_base / base)
    return at_base / value if scaling == "weak" else (at_base * base) / (value * node_count)


def _series(rows: Rows, indicator: str) -> Iterator[tuple[str, Rungs]]:
    """Give (weak or strong, rows by node count) for what differs in node count and size alone."""
    series: dict[tuple[str, str, str, tuple[object, ...]], dict[int, list[ExpectedRow]]] = {}
    for row in rows.readout.expected:
        scaling = str(rows.launch_params.get(row.launch_id, {}).get("scaling"))
        if row.indicator == indicator and scaling in EFFICIENCY:
            same = tuple(sorted((k, str(v)) for k, v in params_of(row.params).items() if k not in _SIZES))
            key = (row.benchmark, row.benchmark_version, scaling, same)
            series.setdefault(key, {}).setdefault(row.node_count, []).append(row)
    return ((key[2], rungs) for key, rungs in series.items())


def _median_of(rows: Rows, members: Sequence[ExpectedRow]) -> tuple[float | None, Measurement | None]:
    found = [item for row in members if (item := rows.of(row)) is not None]
    return median([item.value for item in found]), found[0] if found else None


def aggregate_storage(rows: Rows) -> Iterator[Derived]:
    """Give the highest bandwidth of one group over all node counts; missing where any rung has none."""
    for name, aggregate in AGGREGATE.items():
        series: dict[tuple[str, str], list[ExpectedRow]] = {}
        for row in rows.readout.expected:
            if row.indicator == name:
                series.setdefault((row.benchmark, row.benchmark_version), []).append(row)
        for members in series.values():
            largest = max(members, key=lambda row: row.node_count)
            by_rung: dict[int, list[Measurement]] = {row.node_count: [] for row in members}
            for row in members:
                if (item := rows.of(row)) is not None:
                    by_rung[row.node_count].append(item)
            best = max((item for found in by_rung.values() for item in found), key=lambda i: i.value, default=None)
            complete = best is not None and all(by_rung.values())
            value = best.value if complete and best is not None else None
            params = canonical_params({OVER: ",".join(map(str, sorted(by_rung)))})
            yield Derived(row=per_rung(largest, aggregate, params), value=value, unit="MB/s", source=best)
