"""What a run is judged against, collected when it is prepared and sealed with its evidence.

A reference, waiver or approval that changes later can't change the verdict of a run that was prepared before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plumbline.analysis.baseline import baseline_data, limits_from_history
from plumbline.clusters.profile import ClusterProfile
from plumbline.references.reference import load_references, references_data
from plumbline.suites.suite import Suite
from plumbline.tracking.history import last_measured, load_history
from plumbline.validation.waivers import load_waivers, waivers_data


def collect_limits(profile: ClusterProfile, suite: Suite, results: Path, run_id: str) -> dict[str, Any]:
    """Give references, baseline, waivers and last measured nights as plain data. Raises ConfigError.

    The baseline is of approved runs of the same origin only; hardware and parameters are matched row by row.
    """
    approved = load_history(results, profile.name, origin=profile.origin, before=run_id, approved_only=True)
    last = last_measured(results, profile.name, origin=profile.origin, before=run_id)
    return {
        "references": references_data(load_references(profile.reference_hardware)),
        "baseline": baseline_data(limits_from_history(approved.table.to_pandas(), suite.baseline)),
        "approved_runs": [run.run_id for run in approved.runs],
        "left_out": [{"run_id": item.run_id, "reason": item.reason} for item in approved.skipped],
        "waivers": waivers_data(load_waivers(profile.name)),
        "nights": {name: item.nights_before(run_id) + 1 for name, item in last.items()},
    }
