"""From sealed evidence to rows: which attempt answers each launch, what it yielded, what it should have yielded.

Plausibility comes before performance: a record that is not this launch's, is older than the run, or whose raw files
are not those that the record lists, never yields a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plumbline.benchmarks import benchmark
from plumbline.benchmarks.benchmark import Measured
from plumbline.errors import OutputError, PlumblineError
from plumbline.execution.launcher import ANSWERS
from plumbline.execution.plan import Plan
from plumbline.model import (
    Code,
    LaunchSpec,
    Measurement,
    Outcome,
    RunRecord,
    Verdict,
    canonical_params,
    to_plain,
    verdict,
)
from plumbline.readers.reading import Status
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.record_checks import (
    earlier_verdicts,
    launch_fields,
    launch_place,
    out_of_time,
    outcome_problems,
    record_verdicts,
    replacement_verdicts,
)
from plumbline.validation.seals import seal_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow:
    """One row that the plan says must exist; its key is (launch_id, indicator, node, gpu, params)."""

    launch_id: str
    benchmark: str
    benchmark_version: str
    indicator: str
    node_count: int
    wave: int
    group: int | None
    node: str | None
    gpu: str | None
    repeat: int
    params: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSummary:
    """How one launch went, for the report and for tracking."""

    launch_id: str
    benchmark: str
    node_count: int
    wave: int
    group: int
    repeat: int
    nodes: tuple[str, ...]
    attempts: int
    outcome: str | None
    """None where no record came back."""
    exit_code: int | None
    reason: str
    started_at: str | None
    duration_s: float | None
    argv: tuple[str, ...]
    timeout_s: float
    raw_dir: str | None
    hardware: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    snapshots: Mapping[str, Any] = field(default_factory=dict)
    """Of launches on one node: a group's GPUs are in its record, and would make this a hundred times as large."""
    completeness: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """All that the evidence of a run says, before limits are applied.

    `verdicts` holds what needs no limit: missing records, failed launches, unreadable output, findings, gaps.
    """

    measurements: tuple[Measurement, ...]
    expected: tuple[ExpectedRow, ...]
    verdicts: tuple[Verdict, ...]
    launches: tuple[LaunchSummary, ...]


def row_key(row: ExpectedRow | Measurement) -> tuple[str, str, str | None, str | None, str]:
    """Give what identifies a row within a run."""
    return (row.launch_id, row.indicator, row.node, row.gpu, row.params)


def duplicates(rows: Iterable[Measurement]) -> list[Measurement]:
    """Give the rows whose key was seen before: a number that is there twice counts as no number."""
    seen: set[Any] = set()
    found = []
    for row in rows:
        key = row_key(row)
        if key in seen:
            found.append(row)
        seen.add(key)
    return found


# -- reading a run -----------------------------------------------------------------------------------------------


def read_run(run: RunDirectory) -> Readout:
    """Read everything that a run's evidence holds. Raises OutputError only when the plan itself is unreadable."""
    plan, profile = run.plan(), run.profile()
    suite_name = plan.suite
    verdicts = [*_evidence_verdicts(run, plan), *_gap_verdicts(plan)]
    records, about_records = _records_by_launch(run, plan)
    ends = [record.ended_at for record, _ in records.values() if record is not None]
    verdicts += [verdict(Code.EVIDENCE_CHANGED, "seal", problem) for problem in seal_problems(run, ends)]
    begun, too_old = _begun(run), out_of_time(run, plan, profile, records)
    verdicts += about_records
    hardware = run.read_evidence("environment").get("hardware", {}).get("hardware_id")
    measurements: list[Measurement] = []
    expected: list[ExpectedRow] = []
    launches: list[LaunchSummary] = []
    for planned in plan.launches:
        record, earlier = records.get(planned.launch_id, (None, ()))
        spec = planned.placed(record.replaced) if record is not None else planned
        expected += _expected_rows(spec)
        attempts = len(earlier)
        measured = Measured()
        if record is None:
            verdicts.append(_no_record(run, spec))
        else:
            found = list(record_verdicts(run, profile, planned, record, hardware))
            found += replacement_verdicts(plan, planned, record, earlier)
            found += earlier_verdicts(planned, record, earlier)
            if message := too_old.get(planned.launch_id):
                found.append(verdict(Code.OLD_OUTPUT, launch_place(planned), message, **launch_fields(planned)))
            verdicts += found
            if not any(v.kind.value == "INVALID" for v in found):
                measured, more = _measure(run, spec, record)
                verdicts += more
                measurements += _rows(spec, record, measured, suite_name)
        launches.append(_summary(spec, record, max(attempts, begun[spec.launch_id]), measured))
    for row in duplicates(measurements):
        verdicts.append(
            verdict(
                Code.DUPLICATE, place_of(row), f"{row.indicator} is there twice: neither counts",
                benchmark=row.benchmark, indicator=row.indicator, launch_id=row.launch_id, params=row.params,
                node_count=row.node_count,
            )
        )  # fmt: skip
    return Readout(
        measurements=tuple(measurements), expected=tuple(expected), verdicts=tuple(verdicts), launches=tuple(launches)
    )


def place_of(row: ExpectedRow | Measurement) -> str:
    """Name a row's place for people: 'nccl_tests at 4 nodes, group 0, node n0003'."""
    parts = [f"{row.benchmark} at {row.node_count} node{'s' if row.node_count != 1 else ''}"]
    if row.group is not None:
        parts.append(f"group {row.group}")
    if row.node:
        parts.append(f"node {row.node}")
    if row.gpu:
        parts.append(f"GPU {row.gpu}")
    return ", ".join(parts)


def _evidence_verdicts(run: RunDirectory, plan: Plan) -> Iterator[Verdict]:
    for path in (run.evidence, *run.evidence.iterdir(), *(run.evidence / "raw").glob("*")):
        if path.is_symlink() and path.is_dir():
            message = "it is a link to a folder elsewhere, which no seal covers"
            yield verdict(Code.EVIDENCE_CHANGED, f"evidence/{path.relative_to(run.evidence).as_posix()}", message)
    if plan.run_id != run.run_id:
        yield verdict(Code.OLD_OUTPUT, "run", f"this is a copy of run {plan.run_id} under another name")
    for problem in run.problems():
        if problem["path"].startswith("evidence/"):
            yield verdict(Code.EVIDENCE_CHANGED, problem["path"], f"evidence is {problem['problem']} since the seal")


def _gap_verdicts(plan: Plan) -> Iterator[Verdict]:
    for gap in plan.gaps:
        yield verdict(
            gap.code, gap.place, gap.reason, benchmark=gap.benchmark, node=gap.node, node_count=gap.node_count
        )


Records = dict[str, tuple[RunRecord | None, Sequence[RunRecord]]]
"""By launch: the record that counts, and all attempts in their order."""


def _records_by_launch(run: RunDirectory, plan: Plan) -> tuple[Records, list[Verdict]]:
    """Choose the record that answers each launch: the first answer, never the best one."""
    planned = {spec.launch_id for spec in plan.launches}
    by_launch: dict[str, list[RunRecord]] = {}
    verdicts: list[Verdict] = []
    for path, record in run.records():
        if isinstance(record, OutputError):
            verdicts.append(verdict(Code.UNREADABLE, path.name, str(record)))
        elif odd := _oddity(record):
            verdicts.append(verdict(Code.UNREADABLE, path.name, odd))
        elif record.launch_id not in planned:
            verdicts.append(verdict(Code.UNPLANNED, path.name, f"no launch {record.launch_id!r} was planned"))
        elif path.name != f"{record.launch_id}.a{record.attempt}.json":
            verdicts.append(verdict(Code.UNPLANNED, path.name, f"holds {record.launch_id} attempt {record.attempt}"))
        else:
            by_launch.setdefault(record.launch_id, []).append(record)
    chosen: Records = {}
    for launch_id, records in by_launch.items():
        records.sort(key=lambda r: r.attempt)
        answers = [r for r in records if r.outcome in ANSWERS]
        if len(answers) > 1:
            verdicts.append(
                verdict(
                    Code.DUPLICATE, launch_id, f"{len(answers)} attempts gave an answer; the first counts",
                    launch_id=launch_id, benchmark=launch_id.partition("-")[0],
                )
            )  # fmt: skip
        chosen[launch_id] = (answers[0] if answers else records[-1], records)
    return chosen, verdicts


def _oddity(record: RunRecord) -> str | None:
    """Say what of a record can't be: a duration of nan compares with nothing, an exit code of false passes for 0."""
    for name in ("hardware", "environment", "snapshots", "replaced"):
        if not isinstance(getattr(record, name), Mapping):
            return f"{name} is not a mapping"
    if not all(isinstance(name, str) for pair in record.replaced.items() for name in pair):
        return f"replaced is {dict(record.replaced)!r}"
    for name, value in (("duration_s", record.duration_s), ("runner_cpu_s", record.runner_cpu_s)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
        if not number and (value is not None or name == "duration_s"):
            return f"{name} is {value!r}"
    ended = record.outcome is Outcome.EXITED
    if (type(record.exit_code) is int) != ended or (not ended and record.exit_code is not None):
        return f"it {record.outcome.value} with exit code {record.exit_code!r}"
    if ended and record.signal is not None:
        return f"it exited, and by signal {record.signal!r}"
    return None


def _begun(run: RunDirectory) -> Counter[str]:
    """Count the attempts that left raw output, record or not: one that was killed before its record counts too."""
    return Counter(path.name.rpartition(".a")[0] for path in (run.evidence / "raw").glob("*.a*"))


def _no_record(run: RunDirectory, spec: LaunchSpec) -> Verdict:
    begun = sorted(p.name for p in (run.evidence / "raw").glob(f"{spec.launch_id}.a*"))
    message = f"{begun[-1]} began and left no record" if begun else "was never started"
    return verdict(Code.NO_RECORD, launch_place(spec), message, **launch_fields(spec))


def _measure(run: RunDirectory, spec: LaunchSpec, record: RunRecord) -> tuple[Measured, list[Verdict]]:
    """Read the launch's output; what a failed launch did measure is kept, beside the verdict that closes the gate."""
    place, fields = launch_place(spec), launch_fields(spec)
    verdicts = [verdict(code, place, message, **fields) for code, message in outcome_problems(run, record)]
    if record.outcome not in ANSWERS or record.outcome is Outcome.NOT_STARTED:
        return Measured(), verdicts
    try:
        measured = benchmark(spec.benchmark).measure(spec, record, run.evidence / record.raw_dir)
    except OutputError as error:
        verdicts.append(verdict(Code.UNREADABLE, place, str(error), **fields))
        return Measured(), verdicts
    except PlumblineError as error:
        verdicts.append(verdict(Code.JUDGE_ERROR, place, str(error), **fields))
        return Measured(), verdicts
    except Exception as error:  # a defect in one benchmark must not lose the others' numbers
        message = f"reading raised {type(error).__name__}: {error}"
        verdicts.append(verdict(Code.JUDGE_ERROR, place, message, **fields))
        return Measured(), verdicts
    for finding in measured.findings:
        more = {"indicator": finding.indicator, "params": canonical_params(finding.params)}
        node = {"node": finding.node} if finding.node else {}
        verdicts.append(verdict(finding.code, place, finding.message, **{**fields, **more, **node}))
    for statement in measured.completeness:
        if code := _CODE_OF_STATUS.get(statement.status):
            message = f"{statement.reader}: {statement.status.value}: {statement.reason}"
            verdicts.append(verdict(code, place, message, **fields))
    if not measured.completeness:
        verdicts.append(verdict(Code.COMPLETENESS_UNKNOWN, place, "no output was read", **fields))
    return measured, verdicts


_CODE_OF_STATUS = {
    Status.INCOMPLETE: Code.INCOMPLETE_OUTPUT,
    Status.ABORTED: Code.ABORTED,
    Status.FAILED: Code.BENCHMARK_FAILED,
    Status.NOT_STARTED: Code.NO_MEASUREMENT,
    Status.UNKNOWN: Code.COMPLETENESS_UNKNOWN,
}


def _expected_rows(spec: LaunchSpec) -> Iterator[ExpectedRow]:
    for item in benchmark(spec.benchmark).expected(spec):
        yield ExpectedRow(
            launch_id=spec.launch_id,
            benchmark=spec.benchmark,
            benchmark_version=spec.benchmark_version,
            indicator=item.indicator,
            node_count=spec.node_count,
            wave=spec.wave,
            group=spec.group,
            node=_node(spec, item.node),
            gpu=item.gpu,
            repeat=spec.repeat,
            params=canonical_params(item.params),
        )


def _node(spec: LaunchSpec, said: str | None) -> str | None:
    """Give the node of a row: the one that the benchmark says, else the only one of the launch."""
    return said or (spec.nodes[0] if len(spec.nodes) == 1 else None)


def _rows(spec: LaunchSpec, record: RunRecord, measured: Measured, suite: str) -> Iterator[Measurement]:
    for value in measured.values:
        yield Measurement(
            run_id=spec.run_id,
            suite=suite,
            cluster=spec.cluster,
            origin=spec.origin,
            device=spec.device,
            launch_id=spec.launch_id,
            attempt=record.attempt,
            wave=spec.wave,
            group=spec.group,
            node=_node(spec, value.node),
            gpu=value.gpu,
            hardware_id=record.hardware.get("hardware_id"),
            node_count=spec.node_count,
            benchmark=spec.benchmark,
            benchmark_version=spec.benchmark_version,
            indicator=value.indicator,
            value=value.value,
            unit=value.unit,
            repeat=spec.repeat,
            params=canonical_params(value.params),
            measured_at=record.ended_at,
        )


def _summary(spec: LaunchSpec, record: RunRecord | None, attempts: int, measured: Measured) -> LaunchSummary:
    return LaunchSummary(
        launch_id=spec.launch_id,
        benchmark=spec.benchmark,
        node_count=spec.node_count,
        wave=spec.wave,
        group=spec.group,
        repeat=spec.repeat,
        nodes=spec.nodes,
        attempts=attempts,
        outcome=record.outcome.value if record else None,
        exit_code=record.exit_code if record else None,
        reason=record.reason if record else "no record",
        started_at=record.started_at if record else None,
        duration_s=record.duration_s if record else None,
        argv=spec.argv,
        timeout_s=spec.timeout_s,
        raw_dir=record.raw_dir if record else None,
        hardware=record.hardware if record else {},
        environment=record.environment if record else {},
        snapshots=record.snapshots if record and len(spec.nodes) == 1 else {},
        completeness=tuple(to_plain(item) for item in measured.completeness),
        facts=_facts(measured),
    )


def _facts(measured: Measured) -> dict[str, Any]:
    """Give facts by name; a name that several output files gave holds a list."""
    found: dict[str, list[Any]] = {}
    for fact in measured.facts:
        found.setdefault(fact.name, []).append(to_plain(fact.value))
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def measured_nodes(launches: Sequence[LaunchSummary]) -> set[str]:
    """Give the nodes that took part in at least one launch that ended by itself with exit code 0."""
    return {node for item in launches if item.outcome == Outcome.EXITED and item.exit_code == 0 for node in item.nodes}
