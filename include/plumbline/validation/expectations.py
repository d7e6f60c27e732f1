"""The judge: great-expectations over the joined frame, a handful of vectorised expectations for any number of rows.

RULES is ordered: where a line breaks several, the first is its cause. Results are matched by the rule id in `meta`,
because errored results come first, not in order; an expectation that raised is no result at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plumbline.model import KIND_OF_CODE, Code, VerdictKind

if TYPE_CHECKING:
    import pandas

FIRST_FAILING = 20
"""How many failing rows gx.json names for each expectation; verdicts.parquet names all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One expectation. `check` is not_null, equal (a, b), at_least (a ≥ b) or one_of (a in the values of `values`).

    A pair is skipped where either side is missing: that a value is there is a rule of its own.
    """

    id: str
    code: Code
    check: str
    a: str
    b: str = ""
    values: str = ""
    meaning: str

    @property
    def severity(self) -> str:
        """Critical unless it only warns."""
        return "warning" if KIND_OF_CODE[self.code] is VerdictKind.WARN else "critical"


def _rule(code: Code, rule_id: str, meaning: str, check: str, a: str, b: str = "", values: str = "") -> Rule:
    return Rule(id=rule_id, code=code, check=check, a=a, b=b, values=values, meaning=meaning)


RULES: tuple[Rule, ...] = (
    _rule(Code.UNPLANNED, "planned", "only planned rows are measured", "at_least", "plans", "one"),
    _rule(Code.SCHEMA, "planned_once", "a row is planned once", "at_least", "one", "plans"),
    _rule(Code.NO_MEASUREMENT, "measured", "every planned row was measured", "not_null", "measured"),
    _rule(Code.DUPLICATE, "measured_once", "a row is measured once", "at_least", "one", "copies"),
    _rule(Code.WRONG_CLUSTER, "cluster", "it is of this cluster", "one_of", "cluster", values="cluster"),
    _rule(Code.WRONG_CLUSTER, "origin", "measured and simulated are not mixed", "one_of", "origin", values="origin"),
    _rule(Code.OLD_OUTPUT, "run_id", "it is of this run", "one_of", "run_id", values="run_id"),
    _rule(Code.UNPLANNED, "suite", "it is of this suite", "one_of", "suite", values="suite"),
    _rule(Code.WRONG_HARDWARE, "device", "it ran on the planned device", "one_of", "device", values="device"),
    _rule(Code.WRONG_VERSION, "version", "benchmark version as planned", "equal", "measured_version",
          "benchmark_version"),
    _rule(Code.WRONG_PARAMETERS, "node_count", "node count as planned", "equal", "measured_node_count",
          "planned_nodes"),
    _rule(Code.WRONG_UNIT, "unit", "unit as in the dictionary", "equal", "unit", "indicator_unit"),
    _rule(Code.NOT_A_NUMBER, "finite", "the value is a finite number", "at_least", "greatest", "magnitude"),
    _rule(Code.IMPOSSIBLE_VALUE, "valid_lower", "not below what is possible", "at_least", "value", "valid_lower"),
    _rule(Code.IMPOSSIBLE_VALUE, "valid_upper", "not above what is possible", "at_least", "valid_upper", "value"),
    _rule(Code.ABOVE_CEILING, "ceiling", "not above the physical ceiling", "at_least", "ceiling_limit", "value"),
    _rule(Code.NO_LIMITS, "limits", "its limits can be trusted", "not_null", "limits"),
    _rule(Code.OUTSIDE_REFERENCE, "lower", "at least the reference's lower bound", "at_least", "value", "lower"),
    _rule(Code.OUTSIDE_REFERENCE, "upper", "at most the reference's upper bound", "at_least", "upper", "value"),
    _rule(Code.WORSE_THAN_PEERS, "peers", "not far below its peers", "at_least", "value", "peer_lower"),
    _rule(Code.WORSE_THAN_BASELINE, "baseline_lower", "not below approved history", "at_least", "value",
          "baseline_lower"),
    _rule(Code.WORSE_THAN_BASELINE, "baseline_upper", "not above approved history", "at_least", "baseline_upper",
          "value"),
    _rule(Code.NEAR_LIMIT, "warn_lower", "clear of the lower bound", "at_least", "value", "warn_lower"),
    _rule(Code.NEAR_LIMIT, "warn_upper", "clear of the upper bound", "at_least", "warn_upper", "value"),
    _rule(Code.NEAR_LIMIT, "baseline_warn_lower", "like approved history", "at_least", "value", "baseline_warn_lower"),
    _rule(Code.NEAR_LIMIT, "baseline_warn_upper", "like approved history", "at_least", "baseline_warn_upper", "value"),
    _rule(Code.NO_BASELINE, "baseline", "something to compare with exists", "not_null", "expectation"),
)  # fmt: skip

ROW_COUNT = "row_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What great-expectations found: rule id → failing line numbers; `errors` for what gave no result."""

    failing: Mapping[str, Any]
    row_count_ok: bool
    errors: Mapping[str, str] = field(default_factory=dict)
    gx: Mapping[str, Any] = field(default_factory=dict)


def validate(frame: pandas.DataFrame, expected: int, allowed: Mapping[str, Iterable[str]]) -> Outcome:
    """Run every rule over the frame; `allowed` gives the values of the one_of rules by column."""
    result = _run(frame, expected, allowed)
    return _outcome(result, frame, expected)


def _run(frame: pandas.DataFrame, expected: int, allowed: Mapping[str, Iterable[str]]) -> Any:
    # Before the import: great-expectations logs while it loads.
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    import great_expectations as gx
    from great_expectations.data_context.types import base
    from great_expectations.validator.v1_validator import Validator

    # In memory, and quiet: the default makes a directory in /tmp for documents that nobody reads.
    nothing_on_disk = base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    config = base.DataContextConfig(
        store_backend_defaults=nothing_on_disk,
        progress_bars=base.ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    rows = context.data_sources.add_pandas("run").add_dataframe_asset("rows")
    looked_at = sorted({column for rule in RULES for column in (rule.a, rule.b) if column})
    definition = rows.add_batch_definition_whole_dataframe("all")
    expectations = [
        gx.expectations.ExpectTableRowCountToEqual(value=expected, severity="critical", meta={"id": ROW_COUNT}),
        *(_expectation(gx.expectations, rule, allowed) for rule in RULES),
    ]
    suite = gx.ExpectationSuite(name="plumbline", expectations=expectations)
    # The values of failing rows are left out: with a million of them they would cost more than judging does.
    form = {"result_format": "COMPLETE", "exclude_unexpected_values": True, "partial_unexpected_count": FIRST_FAILING}
    # Batch.validate would get the batch, and with it a digest of all rows, a second time.
    judge = Validator(definition, result_format=form, batch_parameters={"dataframe": frame[looked_at]})
    return judge.validate_expectation_suite(suite)


def _expectation(gxe: Any, rule: Rule, allowed: Mapping[str, Iterable[str]]) -> Any:
    shared = {"severity": rule.severity, "meta": {"id": rule.id}, "description": rule.meaning}
    pair = {"column_A": rule.a, "column_B": rule.b, "ignore_row_if": "either_value_is_missing"}
    if rule.check == "not_null":
        return gxe.ExpectColumnValuesToNotBeNull(column=rule.a, **shared)
    if rule.check == "equal":
        return gxe.ExpectColumnPairValuesToBeEqual(**pair, **shared)
    if rule.check == "one_of":
        return gxe.ExpectColumnValuesToBeInSet(column=rule.a, value_set=list(allowed[rule.values]), **shared)
    return gxe.ExpectColumnPairValuesAToBeGreaterThanB(**pair, or_equal=True, **shared)


def _outcome(result: Any, frame: pandas.DataFrame, expected: int) -> Outcome:
    import numpy as np

    by_id = {item.expectation_config.meta.get("id"): item for item in result.results}
    failing: dict[str, Any] = {}
    errors: dict[str, str] = {}
    report = []
    for rule in RULES:
        item: Any = by_id.get(rule.id)
        problem = _problem(item, len(frame))
        lines = np.array([] if problem else item.result.get("unexpected_index_list") or [], dtype=np.int64)
        if not problem and item.success is not (len(lines) == 0):
            problem = f"success is {item.success} with {len(lines)} failing rows"
        if problem:
            errors[rule.id] = problem
        failing[rule.id] = lines
        report.append(_report(rule, lines, errors.get(rule.id), frame))
    count = by_id.get(ROW_COUNT)
    if problem := _problem(count, len(frame)):
        errors[ROW_COUNT] = problem
    return Outcome(
        failing=failing,
        row_count_ok=bool(count is not None and count.success),
        errors=errors,
        gx=_gx(report, len(frame), expected, bool(count is not None and count.success), errors),
    )


def _problem(item: Any, rows: int) -> str:
    """Say why a result can't be used: absent, raised, or not about every row."""
    if item is None:
        return "no result came back"
    raised = item.exception_info or {}
    infos = raised.values() if raised and all(isinstance(v, dict) for v in raised.values()) else [raised]
    messages = [str(info.get("exception_message")) for info in infos if info.get("raised_exception")]
    if messages:
        return f"the expectation raised: {messages[0]}"
    seen = item.result.get("element_count", item.result.get("observed_value"))
    return "" if seen == rows else f"{seen} of {rows} rows were looked at"


def _report(rule: Rule, lines: Any, error: str | None, frame: pandas.DataFrame) -> dict[str, Any]:
    return {
        "id": rule.id,
        "meaning": rule.meaning,
        "severity": rule.severity,
        "code": rule.code.value,
        "success": error is None and len(lines) == 0,
        "failing": len(lines),
        "error": error,
        "first_failing": _named(frame, lines[:FIRST_FAILING]),
    }


def _named(frame: pandas.DataFrame, lines: Any) -> list[dict[str, Any]]:
    if not len(lines):
        return []
    named = frame[["launch_id", "indicator", "node", "gpu", "params"]].iloc[lines].astype(object)
    records: list[dict[str, Any]] = named.where(named.notna(), None).to_dict("records")
    return records


def _gx(report: list[dict[str, Any]], rows: int, expected: int, count_ok: bool, errors: Mapping[str, str]) -> Any:
    import great_expectations as gx

    total, good = len(report) + 1, sum(item["success"] for item in report) + (count_ok and ROW_COUNT not in errors)
    worst = {item["severity"] for item in report if not item["success"]} | ({"critical"} if not count_ok else set())
    return {
        "great_expectations": gx.__version__,
        "success": good == total,
        "max_severity_failure": "critical" if "critical" in worst else "warning" if worst else None,
        "statistics": {
            "evaluated_expectations": total,
            "successful_expectations": good,
            "unsuccessful_expectations": total - good,
            "success_percent": 100.0 * good / total,
            "rows": rows,
            "expected_rows": expected,
        },
        "expectations": [
            {"id": ROW_COUNT, "meaning": "as many rows as planned", "severity": "critical", "success": count_ok,
             "expected": expected, "rows": rows, "error": errors.get(ROW_COUNT)},
            *report,
        ],
    }  # fmt: skip
