"""What a run is judged against, collected when it is prepared and sealed with its evidence.

A reference, waiver or approval that changes later can't change the verdict of a run that was prepared before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plumbline.analysis.baseline import KnownScatter, baseline_data, limits_from_history
from plumbline.analysis.scatter import Scatter
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError, OutputError
from plumbline.indicators import indicators
from plumbline.indicators.definitions import SHARE_OF_PEERS
from plumbline.model import Code
from plumbline.references import lint
from plumbline.references.reference import FOLDER, ReferenceSet, load_references, reference_folders, references_data
from plumbline.suites.suite import Suite
from plumbline.tracking.history import load_history
from plumbline.tracking.judged_run import VERDICT
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.ages import nights_since
from plumbline.validation.measured_otherwise import comparable_rows
from plumbline.validation.waivers import load_waivers, waivers_data


def collect_limits(profile: ClusterProfile, suite: Suite, results: Path, run_id: str) -> dict[str, Any]:
    """Give references, baseline, waivers and the age of every place as plain data. Raises ConfigError.

    The baseline is of approved runs of the same origin, of the hardware that the profile names today, and of benchmarks
    that were measured as this run will measure them (tracking/comparability.py); the rest is `left_out`, with reasons.
    """
    for folder in reference_folders():
        if folder != FOLDER and (found := lint.problems(folder)):
            raise ConfigError(f"{folder}: {found[0]}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""))
    approved = load_history(results, profile.name, origin=profile.origin, before=run_id, approved_only=True)
    other = {
        run.run_id: reason for run in approved.runs if (reason := _bad_example(run) or _other_hardware(run, profile))
    }
    rows = approved.table.to_pandas()
    rows = rows[~rows["run_id"].isin(list(other))]
    good = [run for run in approved.runs if run.run_id not in other]
    rows, otherwise = comparable_rows(rows, good, profile, suite)
    left = set(rows["run_id"].unique())
    references = load_references(profile.reference_hardware)
    limits = limits_from_history(rows, suite.baseline, scatter=known_scatter(references, profile))
    return {
        "references": references_data(references),
        "baseline": baseline_data(limits),
        "approved_runs": [run.run_id for run in good if run.run_id in left],
        "unusable": [{"run_id": item.run_id, "reason": item.reason} for item in approved.skipped if item.damaged],
        "left_out": [
            *({"run_id": item.run_id, "reason": item.reason} for item in approved.skipped if not item.damaged),
            *({"run_id": name, "reason": reason} for name, reason in other.items()),
            *otherwise,
        ],
        "waivers": waivers_data(load_waivers(profile.name)),
        "nights": nights_since(results, profile.name, origin=profile.origin, run_id=run_id),
    }


def known_scatter(references: ReferenceSet, profile: ClusterProfile) -> KnownScatter:
    """Give what the references say of equals, as scatter, with the step in which the indicator is printed.

    How far a healthy node is from its peers on one night is how far it is from its own usual value on another.
    """
    dictionary = indicators()

    def scatter(benchmark: str, version: str, indicator: str, node_count: int) -> Scatter:
        found = references.find(
            benchmark=benchmark, benchmark_version=version, indicator=SHARE_OF_PEERS, node_count=node_count,
            concurrency="full", fabric=profile.fabric.name, params={"indicator": indicator}, physical=False,
        )  # fmt: skip
        known = dictionary.get((benchmark, indicator))
        step = known.resolution if known else 0.0
        if found is None or found.lower is None:
            return Scatter(step=step)
        warn = found.lower if found.warn_lower is None else found.warn_lower
        return Scatter(fail=1 - found.lower, warn=1 - warn, step=step)

    return scatter


def _bad_example(run: RunDirectory) -> str | None:
    """Say that something other than a missing baseline closed an approved run's gate; None when nothing did.

    `stages.approve` refuses such a run; one that was approved by another way, or judged anew since, makes no limits.
    """
    closing = [item for item in run.read_derived(VERDICT)["reasons"] if item.get("blocks") is not False]
    bad = next((item for item in closing if item.get("code") != Code.NO_BASELINE.value), None)
    return None if bad is None else f"its gate is closed: {bad.get('code')} at {bad.get('place')}"


def _other_hardware(run: RunDirectory, profile: ClusterProfile) -> str | None:
    """Say that an approved run was measured on hardware that the cluster no longer has; None when on the same."""
    try:
        then = _hardware(run.profile())
    except (ConfigError, OutputError) as error:
        return f"its profile can't be read: {error}"
    now = _hardware(profile)
    return None if then == now else f"measured on {then}, the cluster is now {now}"


def _hardware(profile: ClusterProfile) -> str:
    accelerator, fabric = profile.accelerator, profile.fabric
    rate = f" at {fabric.node_bandwidth_gbit_s:g} Gbit/s" if fabric.node_bandwidth_gbit_s else ""
    return f"{accelerator.per_node} × {accelerator.model} a node with {fabric.name}{rate}"
