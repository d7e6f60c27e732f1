"""What is planted: from a seed, one fault of every kind and severity, each in a component that the seed chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from plumbline.clusters.inventory import Inventory
from plumbline.simulation.faults import TARGETS, UNGRADED, Fault
from plumbline.simulation.hardware import HardwareModel
from plumbline.simulation.physics import generator
from plumbline.simulation.truth import STORAGE_SERVERS

BANDS: Mapping[str, tuple[float, float]] = {"mild": (0.05, 0.15), "moderate": (0.15, 0.35), "severe": (0.35, 0.7)}
"""Severity (see simulation/faults.py) is drawn evenly from the band."""
WHOLE = "whole"
"""In place of a band, for faults that have no degree."""
FAILING = frozenset({*UNGRADED, "clock_drift", "silent_corruption"})
"""Kinds that show in how launches end and in what they tell."""
BENCHMARKS = ("fio", "nccl_tests", "hpl_mxp", "mlperf_gpt3", "mlperf_bert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One scenario: a healthy cluster in which one fault begins on the first night after its history."""

    seed: int
    kind: str
    """As in simulation/faults.py; noisy neighbours by what they load: noisy_neighbour_fabric, …_storage."""
    band: str
    fault: Fault

    @property
    def name(self) -> str:
        """Name it: kind, band and seed."""
        return f"{self.kind}/{self.band}/{self.seed}"


def kinds() -> list[str]:
    """Give every kind of fault that is planted, in order."""
    found = []
    for kind in TARGETS:
        found += [f"{kind}_fabric", f"{kind}_storage"] if kind == "noisy_neighbour" else [kind]
    return found


def bands_of(kind: str) -> tuple[str, ...]:
    """Give the severities that a kind has."""
    return (WHOLE,) if kind in UNGRADED else tuple(BANDS)


def scenarios(seed: int, inventory: Inventory, model: HardwareModel, start: date) -> list[Planted]:
    """Give the scenarios of one seed: the same seed gives the same, another gives others."""
    return [
        Planted(seed=seed, kind=kind, band=band, fault=_fault(seed, kind, band, inventory, model, start))
        for kind in kinds()
        for band in bands_of(kind)
    ]


def _fault(seed: int, kind: str, band: str, inventory: Inventory, model: HardwareModel, start: date) -> Fault:
    rng = generator(seed, "scoreboard", kind, band)
    names = [node.name for node in inventory if node.unusable is None]
    leaves = sorted({str(node.leaf) for node in inventory})
    real = "noisy_neighbour" if kind.startswith("noisy_neighbour") else kind
    several = int(rng.integers(1, max(2, len(names) // 4)))
    drawn: dict[str, Any] = {
        "node": names[int(rng.integers(len(names)))],
        "nodes": sorted(str(name) for name in rng.choice(names, several, replace=False)),
        "gpu": int(rng.integers(model.gpus)),
        "rail": int(rng.integers(model.rails)),
        "leaf": leaves[int(rng.integers(len(leaves)))],
        "server": int(rng.integers(STORAGE_SERVERS)),
        "resource": kind.rpartition("_")[2],
    }
    benchmark = (None, *BENCHMARKS)[int(rng.integers(len(BENCHMARKS) + 1))]
    least, most = BANDS.get(band, (1.0, 1.0))
    severity = round(float(rng.uniform(least, most)), 4)
    target = {name: drawn[name] for name in TARGETS[real]}
    if real in ("hang", "truncated_output"):
        target["benchmark"] = benchmark
    return Fault.model_validate({"kind": real, **target, "severity": severity, "start": start})
