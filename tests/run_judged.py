"""What the judge stage would write of a made-up run: rows, verdicts, gate. No rule of the real judge is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plumbline.execution.plan import Plan
from plumbline.model import (
    MEASUREMENT_COLUMNS,
    Code,
    LaunchSpec,
    Measurement,
    RunRecord,
    Verdict,
    VerdictKind,
    canonical_params,
    to_plain,
    verdict,
    worst,
)
from plumbline.tracking.run_directory import RunDirectory
from tests.run_scenario import STAMP, Made, Scenario

Judged = dict[str, Any]
_INTEGERS = ("attempt", "wave", "group", "node_count", "repeat")
_FLOATS = ("value", "actual", "lower", "upper", "warn_lower", "warn_upper", "ceiling", "baseline")
_REASON = (
    "code", "benchmark", "indicator", "place", "expected", "actual", "unit", "message", "launch_id", "node_count",
    "group", "node", "params", "reference",
)  # fmt: skip
_COLUMNS = (
    "kind",
    *_REASON,
    "gpu",
    "repeat",
    "lower",
    "upper",
    "warn_lower",
    "warn_upper",
    "ceiling",
    "baseline",
    "item",
)
_ORDER = [kind.value for kind in VerdictKind]
_BLOCKING = ("FAIL", "INVALID", "NOT_RUN", "STALE")


def write_derived(
    run: RunDirectory, chosen: Scenario, plan: Plan, made: Mapping[str, list[Made]], records: Mapping[str, RunRecord]
) -> None:
    """Write everything in derived/ but the report."""
    rows = [
        _measurement(chosen, spec, records[spec.launch_id], item)
        for spec in plan.launches
        if spec.launch_id in records and spec.launch_id not in chosen.failing_launches
        for item in made[spec.launch_id]
    ]
    judged = [*_judged_rows(chosen, plan, made, records), *_judged_launches(chosen, plan, records)]
    judged += [_plain(verdict(gap.code, gap.place, gap.reason, node=gap.node)) for gap in plan.gaps]
    judged += [_plain(item) for item in chosen.extra]
    _write(run, "measurements", MEASUREMENT_COLUMNS, [to_plain(row) for row in rows])
    _write(run, "verdicts", _COLUMNS, judged)
    run.write_derived_json("launches.json", [_summary(spec, records.get(spec.launch_id)) for spec in plan.launches])
    run.write_derived_json("verdict.json", _verdict_json(run, chosen, judged, len(rows)))
    counts = {"evaluated_expectations": 12, "successful_expectations": 12}
    run.write_derived_json("gx.json", {"success": True, "statistics": counts})
    run.write_provenance({"version": "0.1.0", "note": STAMP})


def _judged_rows(
    chosen: Scenario, plan: Plan, made: Mapping[str, list[Made]], records: Mapping[str, RunRecord]
) -> Iterator[Judged]:
    for spec in plan.launches:
        for item in made[spec.launch_id]:
            row = _row(spec, item)
            if spec.launch_id not in records or spec.launch_id in chosen.failing_launches:
                row |= {**_kind(Code.NO_MEASUREMENT, "no value"), "actual": None}
            elif spec.launch_id in chosen.invalid:
                row |= _kind(Code.OLD_OUTPUT, "too old")
            yield row


def _judged_launches(chosen: Scenario, plan: Plan, records: Mapping[str, RunRecord]) -> Iterator[Judged]:
    for spec in plan.launches:
        fields = {"benchmark": spec.benchmark, "launch_id": spec.launch_id, "node_count": spec.node_count}
        place = f"{spec.benchmark} at {spec.node_count} nodes"
        if spec.launch_id not in records:
            yield _plain(verdict(Code.NO_RECORD, place, "was never started", **fields))
        elif reason := chosen.failing_launches.get(spec.launch_id):
            yield _plain(verdict(Code.BENCHMARK_FAILED, place, reason, **fields))


def _kind(code: Code, message: str) -> Judged:
    found = verdict(code, "x", message)
    return {"kind": found.kind.value, "code": code.value, "message": message}


def _row(spec: LaunchSpec, item: Made) -> Judged:
    bad = (item.lower is not None and item.value < item.lower) or (item.upper is not None and item.value > item.upper)
    node = item.node or (spec.nodes[0] if spec.node_count == 1 else None)
    limit = f"at least {item.lower:.4g}" if item.lower is not None else f"at most {item.upper:.4g}"
    code = Code.OUTSIDE_REFERENCE if bad else Code.OK
    return {
        **_kind(code, f"{item.value:.4g} {item.unit}, expected {limit}" if bad else "within its limits"),
        "place": f"{spec.benchmark} at {spec.node_count} nodes, group {spec.group}"
        + (f", node {node}" if node else ""),
        "benchmark": spec.benchmark,
        "indicator": item.indicator,
        "expected": f"{limit} {item.unit} ({STAMP})",
        "actual": item.value,
        "unit": item.unit,
        "launch_id": spec.launch_id,
        "node_count": spec.node_count,
        "group": spec.group,
        "node": node,
        "params": canonical_params(item.params),
        "reference": f"references/test.yaml: {STAMP} (2026-01-01)",
        "repeat": spec.repeat,
        "lower": item.lower,
        "upper": item.upper,
        "baseline": item.expected,
        "item": "row",
    }


def _plain(item: Verdict) -> Judged:
    return {**to_plain(item), "item": "launch"}


def _measurement(chosen: Scenario, spec: LaunchSpec, record: RunRecord, item: Made) -> Measurement:
    return Measurement(
        run_id=spec.run_id,
        suite=chosen.suite,
        cluster=spec.cluster,
        origin=spec.origin,
        device=spec.device,
        launch_id=spec.launch_id,
        attempt=record.attempt,
        wave=spec.wave,
        group=spec.group,
        node=item.node or (spec.nodes[0] if spec.node_count == 1 else None),
        gpu=None,
        hardware_id=record.hardware["hardware_id"],
        node_count=spec.node_count,
        benchmark=spec.benchmark,
        benchmark_version=spec.benchmark_version,
        indicator=item.indicator,
        value=item.value,
        unit=item.unit,
        repeat=spec.repeat,
        params=canonical_params(item.params),
        measured_at=record.ended_at,
    )


def _write(run: RunDirectory, name: str, columns: tuple[str, ...], rows: list[Judged]) -> None:
    types = {c: pa.int64() if c in _INTEGERS else pa.float64() if c in _FLOATS else pa.string() for c in columns}
    table = pa.table({c: pa.array([row.get(c) for row in rows], kind) for c, kind in types.items()})
    if name == "verdicts":  # the judge writes texts as categories
        texts = [c for c, kind in types.items() if kind == pa.string()]
        table = pa.table({c: table[c].dictionary_encode() if c in texts else table[c] for c in columns})
    pq.write_table(table, run.derived / f"{name}.parquet")


def _summary(spec: LaunchSpec, record: RunRecord | None) -> dict[str, Any]:
    names = ("launch_id", "benchmark", "node_count", "wave", "group", "repeat", "nodes", "argv", "timeout_s")
    of_record = ("exit_code", "reason", "started_at", "duration_s", "raw_dir", "hardware", "environment", "snapshots")
    empty = {"reason": "no record", "hardware": {}, "environment": {}, "snapshots": {}}
    statement = {"reader": spec.reader, "status": "complete", "expected": {}, "found": {}, "reason": ""}
    return {
        **{name: to_plain(getattr(spec, name)) for name in names},
        **{name: to_plain(getattr(record, name)) if record else empty.get(name) for name in of_record},
        "attempts": 1 if record else 0,
        "outcome": record.outcome.value if record else None,
        "completeness": [statement] if record else [],
        "facts": {"tool_version": "1.2.3-test"} if record else {},
    }


def _verdict_json(run: RunDirectory, chosen: Scenario, judged: list[Judged], measured: int) -> dict[str, Any]:
    notable = sorted((row for row in judged if row["kind"] != "PASS"), key=lambda row: -_ORDER.index(row["kind"]))
    acceptance = chosen.suite == "acceptance"
    reasons = [
        {
            "verdict": row["kind"],
            **{name: row.get(name) for name in _REASON},
            "blocks": (row["kind"] in _BLOCKING and (acceptance or row["code"] != "excluded"))
            or (acceptance and row["kind"] == "WARN"),
        }
        for row in notable
    ]
    missing = {row["place"] for row in notable if row["kind"] in ("NOT_RUN", "STALE")}
    return {
        "run_id": run.run_id,
        "run_dir": str(run.path),
        "cluster": chosen.cluster,
        "suite": chosen.suite,
        "origin": chosen.origin.value,
        "device": chosen.device.value,
        "verdict": worst(VerdictKind(row["kind"]) for row in judged).value,
        "gate": "closed" if any(reason["blocks"] for reason in reasons) else "open",
        "asked": list(chosen.asked),
        "coverage": {
            "expected": chosen.nodes,
            "measured": chosen.nodes - len(chosen.excluded),
            "missing": sorted(missing),
            "rows_expected": sum(row["item"] == "row" for row in judged),
            "rows_measured": measured,
        },
        "reasons": reasons,
        "mlflow_run_id": None,
    }
