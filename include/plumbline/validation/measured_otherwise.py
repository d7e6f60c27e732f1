"""Which rows of approved runs were measured as a run will measure them: other parameters make other numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks import benchmark
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError, OutputError
from plumbline.execution.plan import entry_params
from plumbline.model import Params
from plumbline.suites.suite import Suite
from plumbline.tracking.comparability import Difference, Setting, difference
from plumbline.tracking.run_directory import RunDirectory

if TYPE_CHECKING:
    import pandas

LeftOut = dict[str, Any]
"""run_id, benchmark, reason, and the indicators where it is not the whole benchmark."""


def comparable_rows(
    rows: pandas.DataFrame, runs: Sequence[RunDirectory], profile: ClusterProfile, suite: Suite
) -> tuple[pandas.DataFrame, list[LeftOut]]:
    """Give the rows of `runs` that a run of this suite can be compared with, and what is left out of them and why.

    Benchmarks that the suite doesn't measure stay: nothing is compared with them. A run's suite and profile say how it
    measured; its plan, which says the same for every launch, is megabytes on a thousand nodes.
    """
    import numpy as np

    names = {entry.benchmark for entry in suite.benchmarks}
    today = {name: Setting(version=benchmark(name).VERSION, params=_params(profile, suite, name)) for name in names}
    kinds = rows.groupby(["run_id", "benchmark", "benchmark_version"], sort=False).ngroup().to_numpy()
    numbers, first = np.unique(kinds, return_index=True)
    measured: dict[str, list[tuple[str, str, int]]] = {}
    for number, line in zip(numbers.tolist(), first.tolist(), strict=True):
        run_id, name, version = (str(rows[column].iat[line]) for column in ("run_id", "benchmark", "benchmark_version"))
        if name in names:
            measured.setdefault(run_id, []).append((name, version, number))
    keep = np.ones(len(rows), dtype=bool)
    told: list[LeftOut] = []
    for run in runs:
        for name, number, found in _differences(run, measured.get(run.run_id, []), today):
            lines = np.flatnonzero(kinds == number)
            of_benchmark = {"run_id": run.run_id, "benchmark": name}
            if found.reason:
                keep[lines] = False
                told.append({**of_benchmark, "reason": found.reason})
                continue
            params = rows["params"].iloc[lines]
            reasons = params.map({text: found.summary(text) for text in params.unique()})
            others = lines[reasons.notna().to_numpy()]
            keep[others] = False
            for reason, indicators in rows["indicator"].iloc[others].groupby(reasons.dropna()):
                told.append({**of_benchmark, "reason": str(reason), "indicators": sorted(indicators.unique())})
    return rows[keep], told


def _differences(
    run: RunDirectory, measured: Sequence[tuple[str, str, int]], today: dict[str, Setting]
) -> Iterator[tuple[str, int, Difference]]:
    """Give (benchmark, its number, in what it differs) for what a run measured otherwise than it is measured today."""
    if not measured:
        return
    try:
        profile, suite = run.profile(), run.suite()
    except (ConfigError, OutputError) as error:
        yield from ((name, number, _unknown(error)) for name, _, number in measured)
        return
    for name, version, number in measured:
        try:
            found = difference(Setting(version=version, params=_params(profile, suite, name)), today[name])
        except ConfigError as error:
            found = _unknown(error)
        if found is not None:
            yield name, number, found


def _unknown(error: Exception) -> Difference:
    return Difference(reason=f"how it was measured can't be told: {error}")


def _params(profile: ClusterProfile, suite: Suite, name: str) -> tuple[Params, ...]:
    """Give the parameters of a benchmark's entries, with node counts where there are several. Raises ConfigError."""
    entries = [entry for entry in suite.benchmarks if entry.benchmark == name]
    found: list[dict[str, Any]] = [dict(entry_params(profile, entry, f"suite {suite.name}")) for entry in entries]
    if len(entries) > 1:
        for params, entry in zip(found, entries, strict=True):
            params["node_counts"] = str(entry.node_counts)
    return tuple(found)
