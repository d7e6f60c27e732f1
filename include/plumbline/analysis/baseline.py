"""From a cluster's own approved history to limits. Pure: rows in, limits out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.analysis.scatter import LEAST_VALUES, MAD_TO_SIGMA, Scatter, sigmas_needed
from plumbline.model import Better
from plumbline.suites.suite import Baseline

if TYPE_CHECKING:
    import pandas

KEY = ("benchmark", "benchmark_version", "indicator", "node_count", "params")
"""What must be equal for numbers of two runs to be comparable. Nodes and groups of a rung are pooled."""

KnownScatter = Callable[[str, str, str, int], Scatter]
"""(benchmark, benchmark_version, indicator, node count) → its known scatter."""

LOSS_NEVER_USUAL = 0.8
"""However a history scatters, a fifth of its usual speed is a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLimit:
    """What approved history allows one kind of row. Bounds are absolute and inclusive; None is open.

    `runs` and `values` say how much history there was; `source` is for people.
    """

    benchmark: str
    benchmark_version: str
    indicator: str
    node_count: int
    params: str
    unit: str
    value: float
    lower: float | None
    upper: float | None
    warn_lower: float | None
    warn_upper: float | None
    runs: int
    values: int
    source: str

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """What rows this holds for."""
        return (self.benchmark, self.benchmark_version, self.indicator, self.node_count, self.params)


def limits_from_history(
    history: pandas.DataFrame,
    policy: Baseline,
    better: Mapping[tuple[str, str], Better] | None = None,
    scatter: KnownScatter | None = None,
) -> tuple[BaselineLimit, ...]:
    """Give the limits that approved history sets, sorted by key.

    The limit is the median of the values of the newest `window` runs, less the larger of `tolerance` × |median| and
    k × 1.4826 × MAD; where lower is better, plus the larger of (1 ÷ (1 − `tolerance`) − 1) × |median| and the same;
    for WARN likewise with `warn_tolerance`. k is `sigmas`, or more where the values are few (sigmas_needed), and none
    where they are fewer than LEAST_VALUES; the scatter counts up to a loss of LOSS_NEVER_USUAL. The tolerance is never
    less than the indicator's known scatter, and the step in which the tool prints is allowed beside it. Fewer than
    `min_runs` runs give no limit. Values that are not finite are left out, and so are rows of another unit than the
    newest run's.

    Args:
        history: MEASUREMENT_COLUMNS of approved runs of one cluster, hardware, origin and device; any order.
        policy: The suite's.
        better: (benchmark, indicator) → direction; None takes the indicator dictionary. What is not in it, and what
            is better neither way, has no limit.
        scatter: The known scatter of an indicator; None knows of none.
    """
    import numpy as np

    directions = _dictionary() if better is None else better
    rows = history.loc[np.isfinite(history["value"].to_numpy(dtype=float)), [*KEY, "run_id", "value", "unit"]]
    limits = []
    key: Any  # typed Hashable by some versions of its stubs
    for key, group in rows.groupby(list(KEY), sort=True):
        direction = directions.get((str(key[0]), str(key[2])), Better.NEITHER)
        if direction is Better.NEITHER:
            continue
        newest_first = sorted(group["run_id"].unique(), reverse=True)
        unit = group.loc[group["run_id"] == newest_first[0], "unit"].iloc[0]
        recent = group[(group["unit"] == unit) & group["run_id"].isin(newest_first[: policy.window])]
        runs = sorted(recent["run_id"].unique())
        if len(runs) >= policy.min_runs:
            known = scatter(str(key[0]), str(key[1]), str(key[2]), int(key[3])) if scatter else Scatter()
            values = recent["value"].to_numpy(dtype=float)
            limits.append(_limit(key, values, str(unit), runs, _widened(policy, known), direction, known.step))
    return tuple(limits)


def _dictionary() -> dict[tuple[str, str], Better]:
    """Give the direction of what has a usual value; a node's share of its peers is judged among tonight's peers."""
    from plumbline.indicators import indicators  # noqa: PLC0415 - imports every benchmark
    from plumbline.indicators.definitions import SHARE_OF_PEERS  # noqa: PLC0415

    return {key: item.better for key, item in indicators().items() if item.judged and key[1] != SHARE_OF_PEERS}


def _widened(policy: Baseline, known: Scatter) -> Baseline:
    """Give the policy with tolerances that are not below what is known to be scatter."""
    fail, warn = max(policy.tolerance, known.fail), max(policy.warn_tolerance, known.warn)
    return policy.model_copy(update={"tolerance": fail, "warn_tolerance": warn})


def _share(tolerance: float, higher: bool) -> float:
    """Give the part of the median that may be lost: a time may grow by as much as makes a rate fall by `tolerance`."""
    return tolerance if higher else 1 / (1 - tolerance) - 1


def _limit(
    key: Any, values: Any, unit: str, runs: list[str], policy: Baseline, direction: Better, step: float
) -> BaselineLimit:
    import numpy as np

    median = float(np.median(values))
    sigma = MAD_TO_SIGMA * float(np.median(np.abs(values - median)))
    higher = direction is Better.HIGHER
    most = _share(LOSS_NEVER_USUAL, higher) * abs(median)
    known = len(values) >= LEAST_VALUES
    spread = min(most, max(policy.sigmas, sigmas_needed(len(values))) * sigma) if known else 0.0
    margin = max(_share(policy.tolerance, higher) * abs(median), spread) + step
    warn_margin = min(margin, max(_share(policy.warn_tolerance, higher) * abs(median), spread) + step)
    span = runs[0] if len(runs) == 1 else f"{runs[0]} … {runs[-1]}"
    return BaselineLimit(
        benchmark=str(key[0]),
        benchmark_version=str(key[1]),
        indicator=str(key[2]),
        node_count=int(key[3]),
        params=str(key[4]),
        unit=unit,
        value=median,
        lower=median - margin if higher else None,
        upper=None if higher else median + margin,
        warn_lower=median - warn_margin if higher else None,
        warn_upper=None if higher else median + warn_margin,
        runs=len(runs),
        values=len(values),
        source=f"median of {len(values)} values of {len(runs)} approved run{'s' if len(runs) != 1 else ''} ({span})",
    )


def baseline_data(limits: Iterable[BaselineLimit]) -> list[dict[str, Any]]:
    """Give limits as plain data."""
    return [dataclasses.asdict(item) for item in limits]


def baseline_from(data: Iterable[Mapping[str, Any]]) -> tuple[BaselineLimit, ...]:
    """Read limits back. Raises TypeError for missing or unknown fields."""
    return tuple(BaselineLimit(**item) for item in data)
