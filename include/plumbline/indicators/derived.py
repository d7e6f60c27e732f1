"""Derived indicators, computed from a readout's rows: every one is expected where its inputs are expected.

Because the expected row comes from the plan and the value from what was measured, an input that is missing leaves a
NOT_RUN behind and never a silence. A derived row's launch_id is "derived-" and the launch or rung that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Plan
from plumbline.indicators.fleet import inventory_coverage, shares_of_peers
from plumbline.indicators.rates import model_flops_utilization, shares_of_ceiling, shares_of_peak
from plumbline.indicators.rows import Derived, Rows
from plumbline.indicators.scaling import aggregate_storage, scaling_efficiency
from plumbline.model import Measurement
from plumbline.validation.readout import Readout

Derivation = Callable[[Rows], Iterator[Derived]]

DERIVATIONS: tuple[Derivation, ...] = (
    inventory_coverage,
    scaling_efficiency,
    aggregate_storage,
    shares_of_ceiling,
    shares_of_peak,
    model_flops_utilization,
    shares_of_peers,
)


def derive(readout: Readout, *, plan: Plan, profile: ClusterProfile) -> Readout:
    """Give the readout with derived rows appended, expected and measured. What is derived already is not again."""
    rows = Rows(readout=readout, plan=plan, profile=profile)
    found = [item for derivation in DERIVATIONS for item in derivation(rows)]
    measured = (_measurement(item) for item in found)
    return replace(
        readout,
        expected=(*readout.expected, *(item.row for item in found)),
        measurements=(*readout.measurements, *(row for row in measured if row is not None)),
    )


def _measurement(item: Derived) -> Measurement | None:
    """Give the derived value as a row that bears the run, cluster and time of a row that it rests on."""
    if item.value is None or item.source is None:
        return None
    row, source = item.row, item.source
    return Measurement(
        run_id=source.run_id,
        suite=source.suite,
        cluster=source.cluster,
        origin=source.origin,
        device=source.device,
        launch_id=row.launch_id,
        attempt=source.attempt,
        wave=row.wave,
        group=row.group,
        node=row.node,
        gpu=row.gpu,
        hardware_id=source.hardware_id if row.node is not None or row.group is not None else None,
        node_count=row.node_count,
        benchmark=row.benchmark,
        benchmark_version=row.benchmark_version,
        indicator=row.indicator,
        value=item.value,
        unit=item.unit,
        repeat=row.repeat,
        params=row.params,
        measured_at=source.measured_at,
    )
