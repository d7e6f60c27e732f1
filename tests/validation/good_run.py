"""A good run in memory: sixteen nodes, two made-up benchmarks, every number invented."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Batch, Plan, partition
from plumbline.indicators.derived import derive
from plumbline.model import (
    Better,
    Code,
    Contends,
    Device,
    Indicator,
    LaunchSpec,
    Measurement,
    Origin,
    Verdict,
    canonical_params,
    verdict,
)
from plumbline.references.reference import ReferenceSet, references_from
from plumbline.suites.suite import Suite
from plumbline.validation.judgement import Judgement, judge
from plumbline.validation.readout import ExpectedRow, LaunchSummary, Readout

RUN_ID = "20260301T020000Z-000001"
TODAY = date(2026, 3, 1)
SIZES = (1 << 20, 1 << 30)


def made_up(name: str, unit: str, better: Better, **more: Any) -> Indicator:
    return Indicator(name=name, unit=unit, better=better, title=name, formula="made up", source="test", **more)


BENCHMARKS = {
    "collective": SimpleNamespace(
        NAME="collective",
        INDICATORS=(
            made_up("bus_bandwidth", "GB/s", Better.HIGHER, headline=True),
            made_up("latency", "us", Better.LOWER),
            made_up("rounding", "1", Better.NEITHER, judged=False),
        ),
    ),
    "matrix": SimpleNamespace(NAME="matrix", INDICATORS=(made_up("rate", "TFLOPS", Better.HIGHER, headline=True),)),
}


@pytest.fixture
def made_up_benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the made-up benchmarks in the place of the real ones."""
    import plumbline.indicators

    plumbline.indicators.indicators.cache_clear()
    monkeypatch.setattr(plumbline.indicators, "benchmarks", lambda: BENCHMARKS)
    yield
    plumbline.indicators.indicators.cache_clear()


def reference(indicator: str, unit: str, **more: Any) -> dict[str, Any]:
    benchmark = more.pop("benchmark", "collective")
    named = {"benchmark": benchmark, "indicator": indicator, "unit": unit}
    return {**named, "source": "made up", "date": "2026-01-01", **more}


REFERENCES: dict[str, Any] = {
    "hardware": "H100-SXM5-80GB",
    "files": [
        {
            "hardware": "H100-SXM5-80GB",
            "title": "made up",
            "count": 4,
            "required": ["collective/bus_bandwidth", "collective/latency", "matrix/rate"],
            "references": [
                reference("bus_bandwidth", "GB/s", value=480.0, lower=456.0, warn_lower=465.0, node_counts=[1]),
                reference("bus_bandwidth", "GB/s", value=400.0, lower=360.0, warn_lower=380.0, node_counts=[2, 4]),
                reference("latency", "us", value=30.0, upper=60.0),
                reference("rate", "TFLOPS", benchmark="matrix", value=600.0, lower=500.0),
            ],
        },
        {
            "hardware": "*",
            "title": "made up",
            "count": 1,
            "required": ["*/share_of_peer_median"],
            "references": [reference("share_of_peer_median", "1", benchmark="*", lower=0.95, warn_lower=0.97)],
        },
    ],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Night:
    """All that judging takes, so that a mutation can change any part of it."""

    profile: ClusterProfile
    suite: Suite
    plan: Plan
    readout: Readout
    references: ReferenceSet | None
    derived: bool = True

    def judge(self, **more: Any) -> Judgement:
        readout = derive(self.readout, plan=self.plan, profile=self.profile) if self.derived else self.readout
        return judge(
            readout, plan=self.plan, profile=self.profile, suite=self.suite, references=self.references,
            **{"baseline": (), "today": TODAY, **more},
        )  # fmt: skip

    def with_rows(self, change: Any) -> Night:
        """Give the night with its measurements changed by a function of the list."""
        rows = tuple(change(list(self.readout.measurements)))
        return replace(self, readout=replace(self.readout, measurements=rows))

    def with_verdicts(self, *more: Verdict) -> Night:
        return replace(self, readout=replace(self.readout, verdicts=(*self.readout.verdicts, *more)))


def profile(nodes: int = 16, **more: Any) -> ClusterProfile:
    return ClusterProfile.model_validate(
        {
            "name": "made-up",
            "title": "made up",
            "launcher": "simulated",
            "device": "gpu",
            "accelerator": {"model": "H100-SXM5-80GB", "per_node": 8},
            "fabric": {"name": "ndr-8x400g", "node_bandwidth_gbit_s": 3200},
            "nodes": {"simulated": nodes},
            "storage": {"directory": "/tmp/none"},
            **more,
        }
    )


def suite(rungs: tuple[int, ...], repeats: int = 1, **gate: Any) -> Suite:
    return Suite.model_validate(
        {
            "name": "nightly",
            "title": "made up",
            "kind": "nightly",
            "gate": {"coverage_gaps_allowed": True, **gate},
            "repeats": repeats,
            "benchmarks": [
                {"benchmark": "collective", "node_counts": rungs},
                {"benchmark": "matrix", "node_counts": [1]},
            ],
        }
    )


def good_night(nodes: int = 16, rungs: tuple[int, ...] = (1, 2), repeats: int = 1) -> Night:
    chosen = profile(nodes)
    inventory = static_inventory(chosen, TODAY)
    specs: list[LaunchSpec] = []
    batches = []
    for benchmark, counts in (("collective", rungs), ("matrix", (1,))):
        for count in counts:
            own = [
                _spec(benchmark, count, wave, group, repeat, names)
                for repeat in range(1, repeats + 1)
                for group, (wave, names) in enumerate(partition(chosen, inventory, count, 1))
            ]
            ids = tuple(spec.launch_id for spec in own)
            batches.append(
                Batch(batch_id=f"{benchmark}-n{count}", benchmark=benchmark, node_count=count, launch_ids=ids)
            )
            specs += own
    plan = Plan(
        run_id=RUN_ID, cluster="made-up", suite="nightly", seed=1, inventory=inventory, launches=tuple(specs),
        batches=tuple(batches),
    )  # fmt: skip
    expected = tuple(row for spec in specs for row in _expected(spec))
    rng = random.Random(7)
    readout = Readout(
        measurements=tuple(_measured(row, rng) for row in expected),
        expected=expected,
        verdicts=(),
        launches=tuple(_summary(spec) for spec in specs),
    )
    return Night(
        profile=chosen, suite=suite(rungs, repeats), plan=plan, readout=readout, references=references_from(REFERENCES)
    )


def _spec(benchmark: str, count: int, wave: int, group: int, repeat: int, names: tuple[str, ...]) -> LaunchSpec:
    return LaunchSpec(
        launch_id=f"{benchmark}-n{count}-g{group}-r{repeat}", run_id=RUN_ID, cluster="made-up", benchmark=benchmark,
        benchmark_version="1", reader="none", node_count=count, wave=wave, group=group, repeat=repeat, nodes=names,
        accelerators_per_node=8, device=Device.GPU, origin=Origin.SIMULATED, contends=Contends.FABRIC,
        params={"precision": "bf16"} if benchmark == "matrix" else {}, argv=("true",), timeout_s=60.0,
    )  # fmt: skip


def _expected(spec: LaunchSpec) -> Iterator[ExpectedRow]:
    def row(indicator: str, **params: Any) -> ExpectedRow:
        return ExpectedRow(
            launch_id=spec.launch_id, benchmark=spec.benchmark, benchmark_version="1", indicator=indicator,
            node_count=spec.node_count, wave=spec.wave, group=spec.group,
            node=spec.nodes[0] if len(spec.nodes) == 1 else None, gpu=None, repeat=spec.repeat,
            params=canonical_params(params),
        )  # fmt: skip

    if spec.benchmark == "matrix":
        yield row("rate")
        return
    for size in SIZES:
        yield row("bus_bandwidth", operation="all_reduce", message_bytes=size)
    yield row("latency", operation="all_reduce")
    yield row("rounding", operation="all_reduce")


def _measured(row: ExpectedRow, rng: random.Random) -> Measurement:
    level = {"bus_bandwidth": 480.0 if row.node_count == 1 else 402.0, "latency": 30.0, "rounding": 1e-6, "rate": 600.0}
    units = {"bus_bandwidth": "GB/s", "latency": "us", "rounding": "1", "rate": "TFLOPS"}
    return Measurement(
        run_id=RUN_ID, suite="nightly", cluster="made-up", origin=Origin.SIMULATED, device=Device.GPU,
        launch_id=row.launch_id, attempt=1, wave=row.wave, group=row.group, node=row.node, gpu=None, hardware_id="h",
        node_count=row.node_count, benchmark=row.benchmark, benchmark_version=row.benchmark_version,
        indicator=row.indicator, value=level[row.indicator] * rng.gauss(1.0, 0.004), unit=units[row.indicator],
        repeat=row.repeat, params=row.params, measured_at="2026-03-01T02:10:00.000000Z",
    )  # fmt: skip


def _summary(spec: LaunchSpec) -> LaunchSummary:
    return LaunchSummary(
        launch_id=spec.launch_id, benchmark=spec.benchmark, node_count=spec.node_count, wave=spec.wave,
        group=spec.group, repeat=spec.repeat, nodes=spec.nodes, attempts=1, outcome="exited", exit_code=0, reason="",
        started_at="2026-03-01T02:00:00.000000Z", duration_s=60.0, argv=spec.argv, timeout_s=60.0, raw_dir=None,
    )  # fmt: skip


def launch_verdict(night: Night, launch_id: str, code: Code, message: str = "as told") -> Verdict:
    spec = next(spec for spec in night.plan.launches if spec.launch_id == launch_id)
    return verdict(code, launch_id, message, benchmark=spec.benchmark, launch_id=launch_id, node_count=spec.node_count)
