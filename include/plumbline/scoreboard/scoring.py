"""From outcomes to scores: recall, nights to detection, naming, false alarms, precision, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from plumbline.scoreboard.campaign import Outcome, Played
from plumbline.scoreboard.detectors import DETECTORS
from plumbline.scoreboard.intervals import poisson, quantile, wilson
from plumbline.scoreboard.naming import AMONG, EXACT
from plumbline.scoreboard.scenarios import BANDS, WHOLE, kinds

LEAST_SCENARIOS, LEAST_YEARS = 300, 200.0
"""Fewer scenarios, or cluster-years without a fault, are too few for a claim."""
FAULTS_A_YEAR = 12.0
"""For the precision that a cluster would see: one fault a month. Assumption."""
ALL = "all"
NIGHTS_A_YEAR = 365.0


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share with its 95 % interval."""

    found: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.found / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's."""
        return wilson(self.found, self.of)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """How one detector does on one kind of fault at one severity, `all` for all of them."""

    detector: str
    kind: str
    band: str
    recall: Share
    first_night: Share
    nights: tuple[int | None, ...]
    """Night by which 25, 50, 75 and 90 % of all cases were found; None: not in the nights that they were followed."""
    censored: int
    exact: Share
    """Of those found: the alarms name the component and nothing else."""
    held: Share
    """Of those found: the component is what they name or among it."""
    part: Share
    suspected: Share
    named_nodes: float | None
    """Median number of nodes that the smallest alarmed groups hold."""
    suspects: float | None
    """Median number of nodes that are in alarmed groups of every alarmed rung."""
    astray_nights: int


PERCENTILES = (0.25, 0.5, 0.75, 0.9)


def cells(played: Iterable[Played]) -> list[Cell]:
    """Give every detector's cells: each kind at each severity and over all, and all kinds together."""
    by: dict[tuple[str, str, str], list[Outcome]] = {}
    for one in played:
        for outcome in one.outcomes:
            for kind in (outcome.planted.kind, ALL):
                for band in (outcome.planted.band, ALL):
                    by.setdefault((outcome.detector, kind, band), []).append(outcome)
    order = [
        (detector, kind, band)
        for detector in DETECTORS
        for kind in (ALL, *kinds())
        for band in (ALL, *BANDS, WHOLE)
        if (detector, kind, band) in by
    ]
    return [_cell(*key, by[key]) for key in order]


def _cell(detector: str, kind: str, band: str, outcomes: Sequence[Outcome]) -> Cell:
    named = [outcome.named for outcome in outcomes if outcome.named is not None]
    nights = [outcome.night for outcome in outcomes]

    def of_found(count: int) -> Share:
        return Share(found=count, of=len(named))

    return Cell(
        detector=detector,
        kind=kind,
        band=band,
        recall=Share(found=len(named), of=len(outcomes)),
        first_night=Share(found=nights.count(1), of=len(outcomes)),
        nights=tuple(quantile(nights, share) for share in PERCENTILES),
        censored=nights.count(None),
        exact=of_found(sum(one.named == EXACT for one in named)),
        held=of_found(sum(one.named in (EXACT, AMONG) for one in named)),
        part=of_found(sum(one.part for one in named)),
        suspected=of_found(sum(one.suspected for one in named)),
        named_nodes=median(one.nodes for one in named) if named else None,
        suspects=median(one.suspects for one in named) if named else None,
        astray_nights=sum(outcome.astray for outcome in outcomes),
    )


@dataclass(frozen=True, kw_only=True)
class Alarms:
    """False alarms of one detector: nights with an alarm while nothing is broken."""

    detector: str
    nights: int
    cluster_years: float
    recall: Share
    """Over all scenarios."""
    on_component: Share
    """Of the nights with an alarm in scenarios, up to the first on the component: how many are on it."""

    @property
    def rate(self) -> float | None:
        """A cluster and year; None without exposure."""
        return self.nights / self.cluster_years if self.cluster_years else None

    @property
    def interval(self) -> tuple[float, float]:
        """Exact Poisson interval of the rate."""
        return poisson(self.nights, self.cluster_years)

    @property
    def precision(self) -> float | None:
        """Share of alarms that are of a fault, with FAULTS_A_YEAR of the scenarios' mixture; None without exposure."""
        return self._precision(self.rate)

    @property
    def least_precision(self) -> float | None:
        """The same with the most false alarms that the interval allows."""
        return None if self.rate is None else self._precision(self.interval[1])

    def _precision(self, rate: float | None) -> float | None:
        true = FAULTS_A_YEAR * (self.recall.value or 0.0)
        return None if rate is None or true + rate == 0 else true / (true + rate)

    def by_chance(self, nights: int) -> float:
        """Give the most that false alarms alone could find in so many nights: 1 - exp(-rate × time)."""
        return 1.0 if self.rate is None else 1 - math.exp(-self.interval[1] * nights / NIGHTS_A_YEAR)


def false_alarms(played: Sequence[Played], of: Sequence[Cell]) -> list[Alarms]:
    """Give the false alarms of every detector."""
    years = sum(one.healthy_nights for one in played) / NIGHTS_A_YEAR
    overall = {cell.detector: cell for cell in of if cell.kind == ALL and cell.band == ALL}
    found = []
    for detector in DETECTORS:
        cell = overall.get(detector)
        recall = cell.recall if cell else Share(found=0, of=0)
        astray = cell.astray_nights if cell else 0
        found.append(
            Alarms(
                detector=detector,
                nights=sum(one.false_alarms[detector] for one in played),
                cluster_years=years,
                recall=recall,
                on_component=Share(found=recall.found, of=recall.found + astray),
            )
        )
    return found


def outcome_rows(played: Iterable[Played]) -> list[dict[str, Any]]:
    """Give one row for every scenario and detector."""
    return [_row(outcome) for one in played for outcome in one.outcomes]


def _row(outcome: Outcome) -> dict[str, Any]:
    planted, named = outcome.planted, outcome.named
    return {
        "origin": "simulated", "seed": planted.seed, "kind": planted.kind, "band": planted.band,
        "severity": planted.fault.severity, "component": planted.fault.component, "detector": outcome.detector,
        "night": outcome.night, "followed": outcome.followed, "astray": outcome.astray,
        "named": named.named if named else None, "named_nodes": named.nodes if named else None,
        "suspects": named.suspects if named else None, "suspected": named.suspected if named else None,
        "part_named": named.part if named else None,
    }  # fmt: skip


def cell_row(cell: Cell) -> Mapping[str, Any]:
    """Give a cell as a flat row."""
    found: dict[str, Any] = {"origin": "simulated", "detector": cell.detector, "kind": cell.kind, "band": cell.band}
    for name in ("recall", "first_night", "exact", "held", "part", "suspected"):
        share: Share = getattr(cell, name)
        low, high = share.interval
        found |= {
            f"{name}_found": share.found, f"{name}_of": share.of, name: share.value, f"{name}_low": low,
            f"{name}_high": high,
        }  # fmt: skip
    found |= {f"night_p{round(100 * p)}": night for p, night in zip(PERCENTILES, cell.nights, strict=True)}
    return found | {
        "censored": cell.censored, "named_nodes": cell.named_nodes, "suspects": cell.suspects,
        "astray_nights": cell.astray_nights,
    }  # fmt: skip


def alarm_row(item: Alarms) -> Mapping[str, Any]:
    """Give false alarms as a flat row."""
    low, high = item.interval
    return {
        "origin": "simulated", "detector": item.detector, "false_alarm_nights": item.nights,
        "cluster_years": item.cluster_years, "per_cluster_year": item.rate, "per_cluster_year_low": low,
        "per_cluster_year_high": high if high != float("inf") else None, "recall": item.recall.value,
        "alarms_on_component": item.on_component.value, "precision_at_12_faults_a_year": item.precision,
        "least_precision_at_12_faults_a_year": item.least_precision,
    }  # fmt: skip
