"""The judge stage: evidence in, derived files out. Repeating it on the same evidence gives the same rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from enum import Enum
from operator import attrgetter
from typing import Any

from plumbline.amounts import plural
from plumbline.execution.plan import Plan
from plumbline.indicators.derived import derive
from plumbline.model import MEASUREMENT_COLUMNS, Measurement, to_plain
from plumbline.tracking.run_directory import RunDirectory, run_time
from plumbline.validation.compared import left_out
from plumbline.validation.gate import decide, rung_key
from plumbline.validation.judgement import judge
from plumbline.validation.readout import Readout, measured_nodes, read_run
from plumbline.validation.sealed_limits import read_limits

log = logging.getLogger(__name__)
"""One line a step, at level INFO: judging a thousand nodes takes most of a minute."""

NAMED_NODES = 8
"""Groups of up to so many nodes are named node by node."""


def judge_run(run: RunDirectory) -> dict[str, Any]:
    """Write derived/ but for the report; give the content of verdict.json. Raises OutputError, ConfigError."""
    plan, profile, suite = run.plan(), run.profile(), run.suite()
    limits = read_limits(run.read_evidence("references"))
    log.info("reading the output of %s", plural(len(plan.launches), "launch", "launches"))
    readout = derive(read_run(run), plan=plan, profile=profile)
    log.info("validating %s", plural(len(readout.expected), "expected value"))
    judgement = judge(
        readout,
        plan=plan,
        profile=profile,
        suite=suite,
        references=limits.references,
        baseline=limits.baseline,
        waivers=limits.waivers,
        limit_problems=limits.problems,
        otherwise=limits.otherwise,
        today=run_time(run.run_id).date(),
    )
    decision = decide(
        judgement.judged,
        suite.gate,
        nights=_nights(plan, limits.nights),
        launch_nodes={launch.launch_id: launch.nodes for launch in readout.launches},
    )
    log.info("writing %s and their verdicts", plural(len(readout.measurements), "measured value"))
    write_measurements(run, readout.measurements)
    judgement.verdicts.to_parquet(run.derived / "verdicts.parquet", index=False)
    run.write_derived_json("gx.json", judgement.gx)
    run.write_derived_json("launches.json", [to_plain(launch) for launch in readout.launches])
    verdict = {
        "run_id": run.run_id,
        "run_dir": str(run.path),
        "cluster": profile.name,
        "suite": suite.name,
        "origin": profile.origin.value,
        "device": profile.device.value,
        **decision.data(),
        "coverage": _coverage(plan, readout, decision.coverage),
        "compared": {
            "approved_runs": len(limits.approved_runs),
            **judgement.compared,
            "left_out": left_out(limits.baseline, plan),
            "measured_otherwise": to_plain(limits.otherwise),
        },
        "reasons": [_with_nodes(reason, readout) for reason in decision.data()["reasons"]],
        "asked": run.read_evidence("environment").get("asked", []),
        "mlflow_run_id": _mlflow_run_id(run),
    }
    run.write_derived_json("verdict.json", verdict)
    return verdict


def _with_nodes(reason: dict[str, Any], readout: Readout) -> dict[str, Any]:
    """Name the node, or those of a small group, in its place: whoever is called at night needs names, no numbers."""
    if reason["place"] == reason["benchmark"]:  # many places in one reason
        return reason
    if reason["node"]:
        named = reason["node"] in reason["place"]
        return reason if named else {**reason, "place": f"{reason['place']}, node {reason['node']}"}
    launch_id = str(reason["launch_id"] or "").removeprefix("derived-")
    nodes = next((launch.nodes for launch in readout.launches if launch.launch_id == launch_id), ())
    if not 1 < len(nodes) <= NAMED_NODES:
        return reason
    return {**reason, "place": f"{reason['place']} ({', '.join(nodes)})"}


def _coverage(plan: Plan, readout: Readout, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Give coverage of the inventory in nodes, what is missing by name, and rows expected and measured."""
    inventory = [node.name for node in plan.inventory]
    measured = measured_nodes(readout.launches)
    nodes = [name for name in inventory if name not in measured]
    places = [place for place in rows["missing"] if place not in nodes and place.removeprefix("node ") not in nodes]
    return {
        "expected": len(inventory),
        "measured": len(inventory) - len(nodes),
        "missing": [*nodes, *places],
        "rows_expected": rows["expected"],
        "rows_measured": rows["measured"],
    }


def write_measurements(run: RunDirectory, rows: tuple[Measurement, ...]) -> None:
    """Write measurements.parquet: one row a measurement, columns and order of MEASUREMENT_COLUMNS."""
    import pandas as pd

    columns: dict[str, list[Any]] = {
        name: [item.value if isinstance(item, Enum) else item for item in map(attrgetter(name), rows)]
        for name in MEASUREMENT_COLUMNS
    }
    frame = pd.DataFrame(columns, columns=list(MEASUREMENT_COLUMNS))
    for name in ("attempt", "wave", "group", "node_count", "repeat"):
        frame[name] = frame[name].astype("Int64")
    frame["value"] = frame["value"].astype("float64")
    for name in set(MEASUREMENT_COLUMNS) - {"attempt", "wave", "group", "node_count", "repeat", "value"}:
        frame[name] = frame[name].astype("string")
    frame.to_parquet(run.derived / "measurements.parquet", index=False)


def _nights(plan: Plan, nights: Mapping[str, int]) -> Mapping[str, int]:
    """Give nights since each place was last measured; a cluster without any history starts at 0."""
    if nights:
        return nights
    rungs = {rung_key(spec.benchmark, spec.node_count): 0 for spec in plan.launches}
    left_out = {gap.benchmark: 0 for gap in plan.gaps if gap.benchmark}
    return {**{node.name: 0 for node in plan.inventory}, **left_out, **rungs}


def _mlflow_run_id(run: RunDirectory) -> str | None:
    """Give the MLflow run that this run was logged to before, if any."""
    try:
        data = json.loads((run.derived / "mlflow.json").read_text(encoding="utf-8"))
        return str(data["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
