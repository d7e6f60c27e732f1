"""Derived indicators of many nights at once: what indicators.derived gives of each night's rows, as sheets.

Formulas and their order of operations are those of indicators/; tests hold the two equal, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from plumbline.analysis.neighbours import LEAST_PEERS
from plumbline.indicators import indicator
from plumbline.indicators.definitions import (
    AGGREGATE,
    BASE,
    BUS_HEADLINE,
    BUS_OF_CEILING,
    BUS_OF_RATED,
    COVERAGE,
    EFFECTIVE,
    EFFECTIVE_OF_THEORETICAL,
    EFFICIENCY,
    INVENTORY,
    MFU,
    MODEL_FLOPS,
    OVER,
    SHARE_OF_PEERS,
    STEP_TIME,
    THEORETICAL,
    VERSION,
)
from plumbline.indicators.rows import params_of, with_param
from plumbline.model import Better, Indicator, canonical_params
from plumbline.references.ceilings import (
    GB_S_PER_GBIT_S,
    SOFTWARE,
    accelerator,
    ceiling,
    dense_peak_tflops,
    one_node_ceiling,
)
from plumbline.simulation.layout import Layout
from plumbline.simulation.measuring import Measured
from plumbline.simulation.sheets import Kind, Place, Sheet
from plumbline.units import convert

if TYPE_CHECKING:
    from numpy.typing import NDArray


def derive(measured: Measured) -> tuple[Sheet, ...]:
    """Give every derived row of the nights, expected ones without a value included."""
    layout, sheets = measured.layouts[0], measured.sheets
    found = [_coverage(measured)]
    found += _scaling(layout, sheets)
    found += _aggregates(sheets)
    found += _of_ceiling(layout, sheets)
    found += _of_peak(layout, sheets)
    found += [sheet for one in sheets if (sheet := _of_peers(one)) is not None]
    return tuple(found)


def _beside(sheet: Sheet, kinds: Sequence[Kind], columns: Sequence[NDArray[Any]]) -> Sheet:
    """Give rows that stand beside each launch's."""
    import numpy as np

    places = tuple(replace(place, launch_id=f"derived-{place.launch_id}") for place in sheet.places)
    return replace(sheet, kinds=tuple(kinds), places=places, values=np.stack(columns, axis=2))


def _of_rung(sheet: Sheet, kind: Kind, values: NDArray[Any]) -> Sheet:
    """Give the row that stands for all launches of a rung; values are [T]."""
    place = Place(launch_id=f"derived-{sheet.benchmark}-n{sheet.node_count}", wave=1, group=None, repeat=1)
    return replace(sheet, kinds=(kind,), places=(place,), nodes=None, values=values[:, None, None])


def _coverage(measured: Measured) -> Sheet:
    """Give nodes with a measured value ÷ nodes in the inventory."""
    import numpy as np

    layouts, size = measured.layouts, len(measured.layouts[0].inventory)
    covered = np.zeros((len(layouts), size), bool)
    for number, sheet in enumerate(measured.sheets):
        touched = np.isfinite(sheet.values).any(axis=2)
        for t, layout in enumerate(layouts):
            covered[t, layout.indices[number][touched[t]].ravel()] = True
    share = np.where(covered.any(axis=1), covered.sum(axis=1) / size, np.nan)
    return Sheet(
        benchmark=INVENTORY,
        benchmark_version=VERSION,
        node_count=size,
        kinds=(Kind(indicator=COVERAGE, unit="1", params="{}"),),
        places=(Place(launch_id=f"derived-{INVENTORY}-n{size}", wave=1, group=None, repeat=1),),
        nodes=None,
        values=share[:, None, None],
    )


def median_of(values: NDArray[Any]) -> NDArray[Any]:
    """Give the median of each night over what was measured, [T, M] to [T]; NaN of nothing."""
    import numpy as np

    whole = ~np.isnan(values).any(axis=1)
    if whole.all():
        return np.asarray(np.median(values, axis=1))
    found = np.full(len(values), np.nan)
    for t in range(len(values)):
        there = values[t][~np.isnan(values[t])]
        if len(there):
            found[t] = np.median(there)
    return found


def _scaling(layout: Layout, sheets: Sequence[Sheet]) -> Iterator[Sheet]:
    import numpy as np

    for name, is_time in ((STEP_TIME, True), (EFFECTIVE, False)):
        for benchmark in dict.fromkeys(sheet.benchmark for sheet in sheets):
            rungs = [
                (sheet, kind, values)
                for sheet, step in zip(sheets, layout.steps, strict=True)
                if sheet.benchmark == benchmark and str(step.spec.params.get("scaling")) in EFFICIENCY
                for kind, values in sheet.column(name)
            ]
            if not rungs:
                continue
            scaling = str(next(s.spec.params for s in layout.steps if s.spec.benchmark == benchmark)["scaling"])
            rungs.sort(key=lambda rung: rung[0].node_count)
            base, at_base = rungs[0][0].node_count, median_of(rungs[0][2])
            for sheet, kind, values in rungs[1:]:
                n, value = sheet.node_count, median_of(values)
                with np.errstate(divide="ignore", invalid="ignore"):
                    if not is_time:
                        share = (value / n) / (at_base / base)
                    else:
                        share = at_base / value if scaling == "weak" else (at_base * base) / (value * n)
                share = np.where((at_base > 0) & (value > 0), share, np.nan)
                params = with_param(kind.params, BASE, base)
                yield _of_rung(sheet, Kind(indicator=EFFICIENCY[scaling], unit="1", params=params), share)


def _aggregates(sheets: Sequence[Sheet]) -> Iterator[Sheet]:
    import numpy as np

    for name, aggregate in AGGREGATE.items():
        for benchmark in dict.fromkeys(sheet.benchmark for sheet in sheets):
            rungs = [
                (sheet, values) for sheet in sheets if sheet.benchmark == benchmark for _, values in sheet.column(name)
            ]
            if rungs:
                largest = max(rungs, key=lambda rung: rung[0].node_count)[0]
                complete = np.all([np.isfinite(values).any(axis=1) for _, values in rungs], axis=0)
                best = np.max([np.fmax.reduce(values, axis=1) for _, values in rungs], axis=0)
                over = ",".join(map(str, sorted({sheet.node_count for sheet, _ in rungs})))
                kind = Kind(indicator=aggregate, unit="MB/s", params=canonical_params({OVER: over}))
                yield _of_rung(largest, kind, np.where(complete, best, np.nan))


def _of_ceiling(layout: Layout, sheets: Sequence[Sheet]) -> Iterator[Sheet]:
    headline = [(sheet, kind, values) for sheet in sheets for kind, values in sheet.column(BUS_HEADLINE)]
    one_node = {
        (sheet.benchmark, _operation(kind)): median_of(values)
        for sheet, kind, values in headline
        if sheet.node_count == 1
    }
    for sheet in sheets:
        mine = [(kind, values) for kind, values in sheet.column(BUS_HEADLINE)]
        if mine and _physics_known(layout, sheet.node_count):
            tops = [_ceilings(layout, sheet, kind, one_node) for kind, _ in mine]
            kinds = [Kind(indicator=_share_of(sheet, kind, one_node), unit="1", params=kind.params) for kind, _ in mine]
            yield _beside(sheet, kinds, [values / top[:, None] for (_, values), top in zip(mine, tops, strict=True)])


def _share_of(sheet: Sheet, kind: Kind, one_node: Mapping[tuple[str, str], Any]) -> str:
    """Name the share: by what one node of the night gives, or by the link rate where none is planned."""
    planned = sheet.node_count == 1 or (sheet.benchmark, _operation(kind)) in one_node
    return BUS_OF_CEILING if planned else BUS_OF_RATED


def _operation(kind: Kind) -> str:
    return str(params_of(kind.params).get("operation"))


def _physics_known(layout: Layout, node_count: int) -> bool:
    profile = layout.profile
    found = _accelerator(profile.accelerator.model)
    if found is None or found.link_gb_s is None or profile.accelerator.per_node < 2:
        return False
    shared = profile.fabric.in_network_reduction or any(node.nvlink_domain for node in layout.inventory)
    return node_count == 1 or (profile.fabric.node_bandwidth_gbit_s is not None and not shared)


def _ceilings(layout: Layout, sheet: Sheet, kind: Kind, one_node: dict[tuple[str, str], NDArray[Any]]) -> NDArray[Any]:
    """Give each night's ceiling of an operation at the sheet's node count, GB/s: [T]; NaN where it isn't known."""
    import numpy as np

    profile, operation, nights = layout.profile, _operation(kind), len(sheet.values)
    by_link = _one_node_ceiling(operation, profile.accelerator.per_node, profile.accelerator.model)
    if sheet.node_count == 1:
        return np.full(nights, np.nan if by_link is None else by_link)
    bus = one_node.get((sheet.benchmark, operation), np.full(nights, np.nan if by_link is None else by_link))
    rate, gpus = profile.fabric.node_bandwidth_gbit_s, profile.accelerator.per_node
    tops = [
        None if rate is None or np.isnan(one)
        else ceiling(operation, sheet.node_count, gpus, one, rate * GB_S_PER_GBIT_S, SOFTWARE)
        for one in bus.tolist()
    ]  # fmt: skip
    return np.array([top if top is not None and top > 0 else np.nan for top in tops])


_one_node_ceiling = lru_cache(maxsize=256)(one_node_ceiling)
_accelerator = lru_cache(maxsize=64)(accelerator)
_dense_peak_tflops = lru_cache(maxsize=256)(dense_peak_tflops)


def _of_peak(layout: Layout, sheets: Sequence[Sheet]) -> Iterator[Sheet]:
    """Give theoretical rate and share of it beside effective rates, and MFU beside model rates."""
    import numpy as np

    model, per_node = layout.profile.accelerator.model, layout.profile.accelerator.per_node
    for name in (EFFECTIVE, MODEL_FLOPS):
        for sheet in sheets:
            kinds, columns = [], []
            for kind, values in sheet.column(name):
                peak = _dense_peak_tflops(model, str(params_of(kind.params).get("precision")))
                if peak is None:
                    continue
                if name == MODEL_FLOPS:
                    kinds.append(Kind(indicator=MFU, unit="1", params=kind.params))
                    columns.append(values / convert(peak, "TFLOPS", "GFLOPS"))
                    continue
                total = convert(peak * per_node * sheet.node_count, "TFLOPS", "GFLOPS")
                kinds.append(Kind(indicator=THEORETICAL, unit="GFLOPS", params=kind.params))
                columns.append(np.where(np.isfinite(values), total, np.nan))
                kinds.append(Kind(indicator=EFFECTIVE_OF_THEORETICAL, unit="1", params=kind.params))
                columns.append(values / total)
            if kinds:
                yield _beside(sheet, kinds, columns)


def _of_peers(sheet: Sheet) -> Sheet | None:
    """Give every headline value's share of its rung's median, where enough places are planned."""
    kinds, columns = [], []
    if len({(place.group) for place in sheet.places}) < LEAST_PEERS:
        return None
    for k, kind in enumerate(sheet.kinds):
        meant = indicator(sheet.benchmark, kind.indicator)
        if comparable(meant):
            kinds.append(
                Kind(indicator=SHARE_OF_PEERS, unit="1", params=with_param(kind.params, "indicator", kind.indicator))
            )
            columns.append(shares(sheet.values[:, :, k], meant.better))
    return _beside(sheet, kinds, columns) if kinds else None


def comparable(meant: Indicator) -> bool:
    """Say whether an indicator is compared with its peers, as indicators.fleet does."""
    return meant.headline and meant.judged and meant.better is not Better.NEITHER


def shares(values: NDArray[Any], better: Better) -> NDArray[Any]:
    """Give analysis.neighbours.shares of each night, [T, M]; NaN for all where fewer than LEAST_PEERS are measured."""
    import numpy as np

    measured = np.isfinite(values)
    usable = measured & (values > 0)
    median = median_of(np.where(usable, values, np.nan))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = median / values if better is Better.LOWER else values / median
    enough = measured.sum(axis=1, keepdims=True) >= LEAST_PEERS
    return np.where(usable & enough, share, np.nan)
