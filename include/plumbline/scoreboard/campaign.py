"""Play out what one seed asks for: a cluster's history, a year without a fault, and every scenario.

The noise is the seed's, so all scenarios of a seed meet the same nights; faults differ. Everything is SIMULATED.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from plumbline.analysis.baseline import BaselineLimit, limits_from_history
from plumbline.clusters.inventory import Inventory, static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import make_plan
from plumbline.model import Verdict
from plumbline.references.reference import ReferenceSet, load_references
from plumbline.scoreboard.detectors import DETECTORS, GATE, RECORDS, RULES_OF, alarm_nights, alarms, closes
from plumbline.scoreboard.judging import Judge, JudgedSheet
from plumbline.scoreboard.naming import Component, Named
from plumbline.scoreboard.scenarios import FAILING, Planted, scenarios
from plumbline.simulation.deriving import derive
from plumbline.simulation.faults import Scenario
from plumbline.simulation.hardware import HardwareModel, hardware_model
from plumbline.simulation.layout import Layout, seed_of
from plumbline.simulation.measuring import Measured, measure
from plumbline.simulation.night import Night
from plumbline.simulation.sheets import Frames
from plumbline.simulation.truth import Truth, truth_of
from plumbline.suites.suite import Suite
from plumbline.validation.limits import known_scatter

if TYPE_CHECKING:
    import pandas

FIRST_NIGHT = datetime(2026, 1, 1, 2, tzinfo=UTC)
HISTORY_NIGHTS = 14
"""Nights before anything is scored; those whose gate is open are approved, as a person would, and set the baseline."""
YEAR_NIGHTS = 250
"""Nights without a fault that follow; 300 seeds make 205 cluster-years."""
HORIZON = 14
"""Nights that a fault is followed."""
AGEING_HORIZON = 42
"""A port that ages loses its severity in 30 nights."""
_SIDE_BY_SIDE = 25
"""Nights of the year that are computed together."""
_TOGETHER = (1, 4, 9)
"""Nights of scenarios that are computed together, then the last again: faults that fail launches end in the first."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all seeds share."""

    profile: ClusterProfile
    suite: Suite
    references: ReferenceSet
    inventory: Inventory
    model: HardwareModel
    layout: Layout
    year_nights: int = YEAR_NIGHTS

    @classmethod
    def of(cls, profile: ClusterProfile, suite: Suite, *, year_nights: int = YEAR_NIGHTS) -> Setting:
        """Prepare. Raises ConfigError for a profile or suite that can't be simulated."""
        inventory = static_inventory(profile, FIRST_NIGHT.date())
        run_id = night_run_id(0, FIRST_NIGHT)
        plan = make_plan(profile, suite, inventory, run_id=run_id, seed=seed_of(run_id))
        return cls(
            profile=profile, suite=suite, references=load_references(profile.reference_hardware), inventory=inventory,
            model=hardware_model(profile.accelerator.model), layout=Layout.of(plan, profile, suite),
            year_nights=year_nights,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one scenario went for one detector.

    `night` counts from 1, the first night with the fault; None: no alarm on the component in the `followed` nights.
    `astray` is how many of those nights had only alarms elsewhere.
    """

    planted: Planted
    detector: str
    night: int | None
    followed: int
    astray: int
    named: Named | None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Something that did not run, and why."""

    what: str
    error: str


@dataclass(kw_only=True)
class Played:
    """All that one seed gave."""

    seed: int
    approved: int = 0
    healthy_nights: int = 0
    false_alarms: Counter[str] = field(default_factory=Counter)
    """Detector → nights with an alarm in the year without a fault."""
    false_causes: Counter[tuple[str, str, str, int, str]] = field(default_factory=Counter)
    """(rule, benchmark, indicator, node count, params) → rows that broke it then."""
    outcomes: list[Outcome] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def night_run_id(seed: int, moment: datetime) -> str:
    """Give the run id of a night: its random part, which shuffles the nodes, follows from the seed."""
    digest = hashlib.sha256(f"{seed}/{moment:%Y%m%dT%H%M%SZ}".encode()).hexdigest()
    return f"{moment:%Y%m%dT%H%M%SZ}-{digest[:6]}"


def play(setting: Setting, seed: int) -> Played:
    """Play out one seed. What fails is in `failures`, whatever else runs."""
    played = Played(seed=seed)
    try:
        cluster = _Cluster(setting, seed)
        played.approved = cluster.approved
    except Exception as error:  # a seed that fails is listed, never dropped
        played.failures.append(Failure(what=f"seed {seed}: history", error=_shown(error)))
        return played
    try:
        _play_year(cluster, played)
    except Exception as error:
        played.failures.append(Failure(what=f"seed {seed}: year without a fault", error=_shown(error)))
    first = FIRST_NIGHT + timedelta(days=HISTORY_NIGHTS)
    follow = _Follow(cluster, scenarios(seed, setting.inventory, setting.model, first.date()), played)
    follow.all_nights()
    return played


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class _Cluster:
    """One seed's cluster with its history: what a night is judged against."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.seed = setting, seed
        self.healthy = self.truth(Scenario(seed=seed), FIRST_NIGHT)
        history = self.measured([(Scenario(seed=seed), self.healthy)] * HISTORY_NIGHTS, range(HISTORY_NIGHTS))
        sheets = (*history.sheets, *derive(history))
        judged = Judge(setting.layout, setting.references, (), sheets).judge(sheets)
        closed = alarm_nights(judged, history.verdicts, GATE)
        open_nights = [t for t in range(HISTORY_NIGHTS) if not closed[t]]
        self.approved = len(open_nights)
        self._judge = Judge(setting.layout, setting.references, self._baseline(history, open_nights), sheets)

    def _baseline(self, history: Measured, nights: Sequence[int]) -> tuple[BaselineLimit, ...]:
        if not nights:
            return ()
        setting = self.setting
        scatter = known_scatter(setting.references, setting.profile)
        return limits_from_history(frames_of(history, nights), setting.suite.baseline, scatter=scatter)

    def truth(self, scenario: Scenario, moment: datetime) -> Truth:
        setting = self.setting
        return truth_of(setting.inventory, setting.model, scenario.faults, moment.date(), moment.hour)

    def measured(
        self, worlds: Sequence[tuple[Scenario, Truth]], days: Sequence[int], ask_gpus: Sequence[bool] | None = None
    ) -> Measured:
        """Measure nights side by side: each day after the first with what is true in it."""
        setting = self.setting
        moments = [FIRST_NIGHT + timedelta(days=day) for day in days]
        layouts = {moment: setting.layout.on(night_run_id(self.seed, moment)) for moment in dict.fromkeys(moments)}
        nights = [
            Night(profile=setting.profile, model=setting.model, scenario=scenario, moment=moment, truth=truth)
            for (scenario, truth), moment in zip(worlds, moments, strict=True)
        ]
        return measure(nights, [layouts[moment] for moment in moments], ask_gpus=ask_gpus)

    def judged(
        self, worlds: Sequence[tuple[Scenario, Truth]], days: Sequence[int], ask_gpus: Sequence[bool] | None = None
    ) -> _Nights:
        """Measure, derive and judge nights side by side."""
        measured = self.measured(worlds, days, ask_gpus)
        return _Nights(measured=measured, judged=self._judge.judge((*measured.sheets, *derive(measured))))


@dataclass(frozen=True, kw_only=True)
class _Nights:
    measured: Measured
    judged: list[JudgedSheet]

    @property
    def verdicts(self) -> Sequence[Sequence[Verdict]]:
        return self.measured.verdicts


def _play_year(cluster: _Cluster, played: Played) -> None:
    """Count the alarms of a year in which nothing is broken."""
    world = (Scenario(seed=cluster.seed), cluster.healthy)
    end = HISTORY_NIGHTS + cluster.setting.year_nights
    for begin in range(HISTORY_NIGHTS, end, _SIDE_BY_SIDE):
        days = range(begin, min(end, begin + _SIDE_BY_SIDE))
        nights = cluster.judged([world] * len(days), days)
        for detector in DETECTORS:
            played.false_alarms[detector] += int(alarm_nights(nights.judged, nights.verdicts, detector).sum())
        played.false_causes.update(_causes(nights))
        played.healthy_nights += len(days)


def _causes(nights: _Nights) -> Iterator[tuple[str, str, str, int, str]]:
    for one in nights.judged:
        for rule in RULES_OF[GATE]:
            if rule in one.failing:
                for k in one.failing[rule].nonzero()[2].tolist():
                    kind = one.sheet.kinds[k]
                    yield rule, one.sheet.benchmark, kind.indicator, one.sheet.node_count, kind.params
    for said in nights.verdicts:
        yield from (
            (item.code.value, str(item.benchmark), "", item.node_count or 0, "") for item in said if closes(item)
        )


# -- scenarios -------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Case:
    """One scenario on its way."""

    planted: Planted
    component: Component
    scenario: Scenario
    followed: int = 0
    found: dict[str, tuple[int, Named]] = field(default_factory=dict)
    astray: Counter[str] = field(default_factory=Counter)
    truth: Truth | None = None
    """The same every night, but for a port that ages."""

    @property
    def over(self) -> bool:
        """Whether following it further would tell nothing: every detector saw it, or its time is up.

        A launch that fails is seen in the first nights or never, and costs a hundred times as much to simulate: such a
        fault is followed until the gate closes on it.
        """
        return (self.planted.kind in FAILING and GATE in self.found) or self.followed >= self.horizon

    @property
    def horizon(self) -> int:
        """The most nights that it is followed."""
        return AGEING_HORIZON if self.planted.kind == "ageing_port" else HORIZON


class _Follow:
    """Follows the scenarios of one seed night by night, all that are left side by side."""

    def __init__(self, cluster: _Cluster, planted: Sequence[Planted], played: Played) -> None:
        inventory = cluster.setting.inventory
        self._cluster, self._played = cluster, played
        self._cases = [
            _Case(
                planted=one,
                component=Component(one.fault, inventory),
                scenario=Scenario(seed=one.seed, faults=(one.fault,)),
            )
            for one in planted
        ]
        self._failed: set[str] = set()

    def all_nights(self) -> None:
        """Follow all scenarios to their end."""
        begin = 0
        for nights in (*_TOGETHER, *[_TOGETHER[-1]] * (AGEING_HORIZON // _TOGETHER[-1])):
            alive = [case for case in self._cases if not case.over and case.planted.name not in self._failed]
            self._follow(alive, range(begin, begin + nights))
            begin += nights
        for case in self._cases:
            if case.planted.name not in self._failed:
                self._played.outcomes += [_outcome(case, detector) for detector in DETECTORS]

    def _follow(self, cases: Sequence[_Case], nights: range) -> None:
        """Follow cases over some nights, all of them side by side."""
        todo = [(case, night) for night in nights for case in cases if night < case.horizon]
        if not todo:
            return
        days = [HISTORY_NIGHTS + night for _, night in todo]
        try:
            worlds = [self._world(case, day) for (case, _), day in zip(todo, days, strict=True)]
            unseen = [not {RECORDS, GATE} <= case.found.keys() for case, _ in todo]
            judged = self._cluster.judged(worlds, days, unseen)
        except Exception as error:
            if len(cases) == 1:
                self._fail(cases[0], error)
                return
            for case in cases:  # one of them fails: the others run without it
                self._follow([case], nights)
            return
        raised = {detector: alarm_nights(judged.judged, judged.verdicts, detector) for detector in DETECTORS}
        for t, (case, _) in enumerate(todo):
            try:
                self._see(case, judged, t, [detector for detector in DETECTORS if raised[detector][t]])
            except Exception as error:
                self._fail(case, error)

    def _fail(self, case: _Case, error: Exception) -> None:
        if case.planted.name not in self._failed:
            self._failed.add(case.planted.name)
            what = f"{case.planted.name}, after night {case.followed}"
            self._played.failures.append(Failure(what=what, error=_shown(error)))

    def _world(self, case: _Case, day: int) -> tuple[Scenario, Truth]:
        moment = FIRST_NIGHT + timedelta(days=day)
        if case.planted.kind == "ageing_port":
            return case.scenario, self._cluster.truth(case.scenario, moment)
        if case.truth is None:
            case.truth = self._cluster.truth(case.scenario, moment)
        return case.scenario, case.truth

    def _see(self, case: _Case, nights: _Nights, t: int, raised: Sequence[str]) -> None:
        """Note the detectors that raise an alarm in night t; the first alarm on the component is what counts."""
        if case.over:
            return
        case.followed += 1
        for detector in raised:
            if detector in case.found:
                continue
            layout = nights.measured.layouts[t]
            found = list(alarms(nights.judged, nights.verdicts[t], layout, t, detector))
            if any(case.component.touched_by(one) for one in found):
                case.found[detector] = (case.followed, case.component.named_by(found))
            else:
                case.astray[detector] += 1


def _outcome(case: _Case, detector: str) -> Outcome:
    night, named = case.found.get(detector, (None, None))
    return Outcome(
        planted=case.planted, detector=detector, night=night, followed=case.followed, astray=case.astray[detector],
        named=named,
    )  # fmt: skip


def play_all(setting: Setting, seeds: Sequence[int], progress: Callable[[str], None]) -> list[Played]:
    """Play out every seed in order."""
    found = []
    for number, seed in enumerate(seeds, start=1):
        found.append(play(setting, seed))
        progress(f"seed {seed} ({number} of {len(seeds)})")
    return found


def frames_of(measured: Measured, nights: Sequence[int] | None = None) -> pandas.DataFrame:
    """Give the rows of nights, derived ones included, as approved history has them."""
    import pandas as pd

    sheets = (*measured.sheets, *derive(measured))
    layout = measured.layouts[0]
    frames = Frames(sheets, [node.name for node in layout.inventory])
    same = {"suite": layout.suite.name, "cluster": layout.profile.name, "origin": "simulated", "device": "gpu"}
    chosen = range(len(measured.layouts)) if nights is None else nights
    found = pd.concat([frames.night(sheets, t, {"run_id": measured.layouts[t].run_id, **same}) for t in chosen])
    return found.astype({"run_id": str})
