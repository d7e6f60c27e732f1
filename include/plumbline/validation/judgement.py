"""Judge a run: every expected row gets one verdict, whatever was measured.

Expected rows ⟕ measurements ⟕ limits become one frame; great-expectations judges it (expectations.py); its results
become verdicts here. Verdict objects are built for what is not a PASS only; all rows are in the frame of verdicts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from plumbline.analysis.baseline import BaselineLimit
from plumbline.analysis.neighbours import spread_limit
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Plan
from plumbline.indicators.definitions import SHARE_OF_PEERS
from plumbline.model import Code, Contends, Verdict, verdict
from plumbline.references.reference import ReferenceSet
from plumbline.suites.suite import Suite
from plumbline.validation.bounds import BOUNDS, Bounds, Limits, RowKind, bounds_of, unmatchable
from plumbline.validation.compared import compared
from plumbline.validation.expectations import ROW_COUNT, Outcome, validate
from plumbline.validation.frame import join
from plumbline.validation.gate import Judged
from plumbline.validation.plan_checks import plan_problems
from plumbline.validation.plausibility import Physics, one_node_busbw
from plumbline.validation.readout import Readout
from plumbline.validation.sealed_limits import MeasuredOtherwise
from plumbline.validation.verdict_rows import row_verdicts, verdict_frame
from plumbline.validation.waivers import Waiver, waive

if TYPE_CHECKING:
    import pandas

KIND = ("benchmark", "benchmark_version", "indicator", "node_count", "params")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What judging gave. `verdicts` holds every verdict, PASS included; `gx` is great-expectations' report, plain.

    `compared` counts the planned rows by what they were compared with.
    """

    verdicts: pandas.DataFrame
    judged: Judged
    gx: Mapping[str, Any]
    compared: Mapping[str, int]

    @property
    def notable(self) -> tuple[Verdict, ...]:
        """Everything that is not a PASS, worst first."""
        return self.judged.notable


def judge(
    readout: Readout,
    *,
    plan: Plan,
    profile: ClusterProfile,
    suite: Suite,
    references: ReferenceSet | None,
    baseline: Sequence[BaselineLimit],
    waivers: Sequence[Waiver] = (),
    limit_problems: Sequence[str] = (),
    otherwise: Sequence[MeasuredOtherwise] = (),
    today: date,
) -> Judgement:
    """Judge a readout with its derived rows.

    `references` is None where they could not be read: then no number can be trusted and every row says so.
    `limit_problems` says what else of the limits is missing; each closes the gate. `otherwise` is the approved history
    that is not comparable, which rows without any other name. `today` is the run's own day, so
    that judging again gives the same.
    """
    expected = len(readout.expected)
    others = [verdict(Code.NO_LIMITS, "limits", problem) for problem in limit_problems]
    others += [*readout.verdicts, *_run_problems(readout, plan, profile, suite, references)]
    frame = join(readout.expected, readout.measurements)
    kinds, bounds = _bounds(frame, _limits(readout, plan, profile, references, baseline, otherwise))
    _add_limits(frame, kinds, bounds, suite.baseline.sigmas)
    outcome = validate(frame, expected, _stated(plan, profile))
    others += _judge_problems(outcome, len(frame) > expected)
    found = row_verdicts(frame, kinds, bounds, outcome, readout, waivers)
    rows = found.rows
    if waivers:
        rows, others = waive(rows, others, waivers, today)
    planned = {line: item for line, item in rows.items() if line < expected}
    judged = Judged(
        expected=expected,
        measured=int((frame["magnitude"].iloc[:expected] < float("inf")).sum()),
        passed=expected - len(planned) - sum(len(item.lines) for item in found.alike),
        rows=tuple(planned.values()),
        alike=tuple(item.told for item in found.alike),
        others=(*others, *(item for line, item in rows.items() if line >= expected)),
    )
    verdicts = verdict_frame(frame, kinds, bounds, replace(found, rows=planned), judged.others, expected)
    counts = compared(frame.iloc[:expected], kinds[:expected], bounds)
    return Judgement(verdicts=verdicts, judged=judged, gx=outcome.gx, compared=counts)


def _stated(plan: Plan, profile: ClusterProfile) -> dict[str, list[str]]:
    """Give what a measurement of this run may say of itself, by column."""
    return {
        "cluster": [profile.name],
        "origin": [profile.origin.value],
        "run_id": [plan.run_id],
        "suite": [plan.suite],
        "device": [profile.device.value],
    }


def _limits(
    readout: Readout,
    plan: Plan,
    profile: ClusterProfile,
    references: ReferenceSet | None,
    baseline: Sequence[BaselineLimit],
    otherwise: Sequence[MeasuredOtherwise] = (),
) -> Limits:
    physics = Physics(
        profile=profile,
        one_node_busbw=one_node_busbw(readout.measurements, references.references if references else ()),
        nvlink_domains=any(node.nvlink_domain for node in plan.inventory),
        launch_params={spec.benchmark: spec.params for spec in plan.launches},
    )
    return Limits(
        profile=profile,
        references=references,
        baseline={item.key: item for item in baseline},
        otherwise=otherwise,
        concurrency=_concurrency(plan),
        physics=physics,
    )


def _concurrency(plan: Plan) -> dict[tuple[str, int], str]:
    """Say for every rung whether its groups ran all at once (full) or one alone (isolated)."""
    groups: dict[tuple[str, int], set[int]] = {}
    for spec in plan.launches:
        if spec.wave == 1 and spec.contends is not Contends.STORAGE:
            groups.setdefault((spec.benchmark, spec.node_count), set()).add(spec.group)
    return {key: "full" if len(found) > 1 else "isolated" for key, found in groups.items()}


def _bounds(frame: pandas.DataFrame, limits: Limits) -> tuple[Any, list[Bounds]]:
    """Give each line's number of kind, and the bounds of each kind: there are few kinds, however many lines."""
    keys = frame.groupby(list(KIND), sort=False, observed=True, dropna=False)
    kinds = keys.ngroup().to_numpy()
    first: list[Any] = [*frame.loc[~keys.cumcount().astype(bool), list(KIND)].itertuples(index=False)]
    found = [
        bounds_of(
            RowKind(
                benchmark=str(row.benchmark),
                benchmark_version=str(row.benchmark_version),
                indicator=str(row.indicator),
                node_count=int(row.node_count),
                params=str(row.params),
            ),
            limits,
        )
        for row in first
    ]
    return kinds, found


def _add_limits(frame: pandas.DataFrame, kinds: Any, bounds: Sequence[Bounds], sigmas: float) -> None:
    """Add the columns that the rules compare with."""
    import numpy as np
    import pandas as pd

    for name in BOUNDS:
        of_kind = np.array([getattr(item, name) for item in bounds], dtype=float)
        frame[name] = of_kind[kinds] if len(bounds) else np.array([], dtype=float)
    units = pd.Categorical([item.unit for item in bounds])
    frame["indicator_unit"] = units.take(kinds).astype(object)
    frame["unit"] = frame["unit"].astype(object)
    for name in ("measured_version", "benchmark_version"):
        frame[name] = frame[name].astype(object)
    frame["one"] = 1.0
    frame["greatest"] = sys.float_info.max
    frame["planned_nodes"] = frame["node_count"].astype(float)
    planned = frame["plans"].to_numpy() > 0
    problem = np.array([bool(item.problem) for item in bounds], dtype=bool)
    needs = np.array([item.needs_baseline for item in bounds], dtype=bool)
    frame["limits"] = np.where(planned & problem[kinds], np.nan, 1.0) if len(bounds) else 1.0
    frame["expectation"] = np.where(planned & needs[kinds], np.nan, 1.0) if len(bounds) else 1.0
    _move_peer_limits(frame, kinds, sigmas)


def _move_peer_limits(frame: pandas.DataFrame, kinds: Any, sigmas: float) -> None:
    """Give shares of the peers' median their own limit column, widened where the peers scatter more than it allows."""
    import numpy as np

    frame["peer_lower"] = np.nan
    for line in np.flatnonzero((frame["indicator"] == SHARE_OF_PEERS).to_numpy() & ~_seen(kinds)):
        same = kinds == kinds[line]
        values = frame["value"].to_numpy()[same]
        lower, warn = frame["lower"].to_numpy()[line], frame["warn_lower"].to_numpy()[line]
        frame.loc[same, "lower"] = np.nan
        if not np.isnan(lower):
            frame.loc[same, "peer_lower"] = spread_limit(values, float(lower), sigmas)
        if not np.isnan(warn):
            frame.loc[same, "warn_lower"] = spread_limit(values, float(warn), sigmas)


def _seen(kinds: Any) -> Any:
    """Say for each line whether its kind came before."""
    import pandas as pd

    return pd.Series(kinds).duplicated().to_numpy()


def _run_problems(
    readout: Readout, plan: Plan, profile: ClusterProfile, suite: Suite, references: ReferenceSet | None
) -> list[Verdict]:
    """Say what is wrong with the run as a whole."""
    found = list(plan_problems(plan, profile, suite))
    if references is None:
        found.append(verdict(Code.NO_LIMITS, "run", "the references of this run can't be read: nothing can be judged"))
    elif references.hardware != profile.reference_hardware:
        message = f"references are for {references.hardware}, the cluster is {profile.reference_hardware}"
        found.append(verdict(Code.NO_LIMITS, "run", message))
    if references is not None:
        own = references.files[0].accelerators_per_node
        if own not in (None, profile.accelerator.per_node):
            message = f"references are for {own} accelerators a node, the cluster has {profile.accelerator.per_node}"
            found.append(verdict(Code.NO_LIMITS, "run", message))
        keys = _param_keys(readout)
        found += [verdict(Code.NO_LIMITS, "references", problem) for problem in unmatchable(references, keys)]
    answering = {row.launch_id for row in readout.expected}
    found += [
        verdict(Code.SCHEMA, f"launch {spec.launch_id}", "the benchmark expects no row of this launch: it can't fail",
                benchmark=spec.benchmark, launch_id=spec.launch_id, node_count=spec.node_count)
        for spec in plan.launches
        if spec.launch_id not in answering
    ]  # fmt: skip
    return found


def _param_keys(readout: Readout) -> dict[tuple[str, str], frozenset[str]]:
    """Give the parameter names that rows of an indicator have."""
    texts: dict[tuple[str, str], set[str]] = {}
    for benchmark, name, params in {(row.benchmark, row.indicator, row.params) for row in readout.expected}:
        texts.setdefault((benchmark, name), set()).add(params)
    return {key: frozenset(k for text in found for k in json.loads(text)) for key, found in texts.items()}


def _judge_problems(outcome: Outcome, has_unplanned: bool) -> list[Verdict]:
    """Close the gate when the judge itself did not do its work."""
    found = [verdict(Code.JUDGE_ERROR, f"rule {name}", text) for name, text in outcome.errors.items()]
    if not outcome.row_count_ok and not has_unplanned and ROW_COUNT not in outcome.errors:
        found.append(verdict(Code.JUDGE_ERROR, "run", "not as many rows were judged as were planned"))
    return found
