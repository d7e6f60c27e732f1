"""Build finished, judged run directories out of made-up numbers, without running or judging anything.

TEST DATA: every number here is invented. The profile's title, the suite's note and the trigger say so, so that no
such run can be taken for a measurement.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Batch, Gap, Plan, partition, plan_data
from plumbline.execution.run_one import file_sha256, write_atomically
from plumbline.model import (
    MEASUREMENT_COLUMNS,
    Code,
    Contends,
    Device,
    LaunchSpec,
    Measurement,
    Origin,
    Outcome,
    RawFile,
    RunRecord,
    Verdict,
    VerdictKind,
    canonical_params,
    to_plain,
    verdict,
    worst,
)
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RunDirectory

STAMP = "TEST DATA, invented numbers"
SIZES = tuple(1 << n for n in range(13, 31, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One made-up row before it becomes a Measurement: what, how much, and its limits as fractions of the value."""

    indicator: str
    value: float
    unit: str
    params: Mapping[str, Any] = field(default_factory=dict)
    node: str | None = None
    lower: float | None = None
    upper: float | None = None
    expected: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What the made-up run is like. `speed` multiplies the rates of one benchmark; `slow_nodes` those of one node."""

    cluster: str = "local"
    suite: str = "nightly"
    nodes: int = 4
    when: datetime = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
    device: Device = Device.CPU
    origin: Origin = Origin.MEASURED
    repeats: int = 1
    seed: int = 1
    speed: Mapping[str, float] = field(default_factory=dict)
    slow_nodes: Mapping[str, float] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    missing_launches: Sequence[str] = ()
    failing_launches: Mapping[str, str] = field(default_factory=dict)
    baseline: bool = True
    kernel: str = "6.1.0-test"
    version: str = "1"
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    extra: Sequence[Verdict] = ()
    invalid: Sequence[str] = ()
    """Launches whose rows are judged INVALID."""

    @property
    def run_id(self) -> str:
        """A run id that depends on time and seed only."""
        return f"{self.when.strftime('%Y%m%dT%H%M%SZ')}-{self.seed:06x}"


def build_run(results: Path, scenario: Scenario | None = None, **changes: Any) -> RunDirectory:
    """Write a whole run directory: evidence, seal, derived, provenance."""
    chosen = replace(scenario or Scenario(), **changes)
    run = RunDirectory.create(results, chosen.cluster, chosen.suite, chosen.run_id)
    profile, suite = _profile(chosen), _suite(chosen)
    plan = _plan(chosen, profile)
    for name, data in (
        ("profile", profile.model_dump(mode="json")),
        ("suite", suite.model_dump(mode="json")),
        ("references", {"note": STAMP}),
        ("environment", {"plumbline": "0.1.0", "trigger": STAMP, "tags": {}, "software": {"kernel": chosen.kernel}}),
        ("plan", plan_data(plan)),
    ):
        run.write_evidence(name, data)
    made = {spec.launch_id: list(_made(chosen, spec)) for spec in plan.launches}
    records = {spec.launch_id: _record(run, chosen, spec, made[spec.launch_id], n) for n, spec in enumerate(plan.launches)
               if spec.launch_id not in chosen.missing_launches}  # fmt: skip
    run.seal()
    write_derived(run, chosen, plan, made, records)
    return run


def build_history(results: Path, count: int, scenario: Scenario | None = None, **changes: Any) -> list[RunDirectory]:
    """Write so many nightly runs, one a day, the last at the scenario's time."""
    last = replace(scenario or Scenario(), **changes)
    return [
        build_run(results, replace(last, when=last.when - timedelta(days=count - 1 - n), seed=last.seed + n))
        for n in range(count)
    ]


# -- evidence --------------------------------------------------------------------------------------------------------


def _profile(chosen: Scenario) -> ClusterProfile:
    gpu, simulated = chosen.device is Device.GPU, chosen.origin is Origin.SIMULATED
    names = [{"name": f"n{i + 1:04d}", "leaf": f"leaf{i // 32 + 1:02d}"} for i in range(chosen.nodes)]
    form = {"simulated": chosen.nodes} if simulated else {"listed": names} if gpu else {"emulated": chosen.nodes}
    return ClusterProfile.model_validate(
        {
            "name": chosen.cluster,
            "title": f"{STAMP}: {chosen.nodes} nodes",
            "launcher": "simulated" if simulated else "kubernetes" if gpu else "local",
            "device": chosen.device.value,
            "accelerator": {"model": "H100-SXM5-80GB" if gpu else "cpu", "per_node": 8 if gpu else 1},
            "fabric": {"name": "ndr-8x400g" if gpu else "loopback", "node_bandwidth_gbit_s": 3200 if gpu else None},
            "nodes": form,
            "storage": {"directory": ".plumbline/storage"},
            "exclusions": [
                {"node": node, "reason": reason, "owner": "test", "until": "2099-01-01"}
                for node, reason in chosen.excluded.items()
            ],
        }
    )


def _suite(chosen: Scenario) -> Suite:
    blocks = ["FAIL", "INVALID", "NOT_RUN", "STALE"] + (["WARN"] if chosen.suite == "acceptance" else [])
    names = ("fio", "nccl_tests", "hpl_mxp", "mlperf_gpt3")
    return Suite.model_validate(
        {
            "name": chosen.suite,
            "title": chosen.suite.capitalize(),
            "kind": "acceptance" if chosen.suite == "acceptance" else "nightly",
            "gate": {"blocks": blocks, "coverage_gaps_allowed": chosen.suite != "acceptance"},
            "note": STAMP,
            "benchmarks": [{"benchmark": name} for name in names],
        }
    )


def _plan(chosen: Scenario, profile: ClusterProfile) -> Plan:
    inventory = static_inventory(profile, chosen.when.date())
    usable = [node for node in inventory if node.unusable is None]
    rungs = sorted({1 << n for n in range(20) if 1 << n <= len(usable)} | {len(usable)})
    counts = {"fio": [1], "nccl_tests": rungs, "hpl_mxp": [1], "mlperf_gpt3": rungs}
    launches, batches = [], []
    for benchmark, wanted in counts.items():
        for node_count in wanted:
            specs = [
                _spec(chosen, profile, benchmark, node_count, wave, group, repeat, nodes)
                for repeat in range(1, chosen.repeats + 1)
                for group, (wave, nodes) in enumerate(partition(profile, usable, node_count, chosen.seed))
            ]
            ids = tuple(spec.launch_id for spec in specs)
            batches.append(
                Batch(batch_id=f"{benchmark}-n{node_count}", benchmark=benchmark, node_count=node_count, launch_ids=ids)
            )
            launches += specs
    gaps = tuple(
        Gap(code=node.unusable, place=f"node {node.name}", reason=node.reason, node=node.name)
        for node in inventory
        if node.unusable is not None
    )
    return Plan(
        run_id=chosen.run_id, cluster=chosen.cluster, suite=chosen.suite, seed=chosen.seed, inventory=inventory,
        launches=tuple(launches), batches=tuple(batches), gaps=gaps,
    )  # fmt: skip


def _spec(
    chosen: Scenario, profile: ClusterProfile, benchmark: str, node_count: int, wave: int, group: int, repeat: int,
    nodes: tuple[str, ...],
) -> LaunchSpec:  # fmt: skip
    return LaunchSpec(
        launch_id=f"{benchmark}-n{node_count}-g{group}-r{repeat}",
        run_id=chosen.run_id,
        cluster=chosen.cluster,
        benchmark=benchmark,
        benchmark_version=chosen.version,
        reader={"fio": "fio", "nccl_tests": "nccl_tests", "hpl_mxp": "hpl_mxp", "mlperf_gpt3": "mllog"}[benchmark],
        node_count=node_count,
        wave=wave,
        group=group,
        repeat=repeat,
        nodes=nodes,
        accelerators_per_node=profile.accelerator.per_node,
        device=chosen.device,
        origin=chosen.origin,
        contends=Contends.NONE,
        params={"seconds": 10, **chosen.params.get(benchmark, {})},
        argv=(f"/usr/bin/{benchmark}", "--test-data", f"--nodes={node_count}"),
        timeout_s=600.0,
    )


def _made(chosen: Scenario, spec: LaunchSpec) -> Iterator[Made]:
    """Make the numbers of one launch: rates fall with size and scale the way real ones do, with 1 % scatter."""
    rng = random.Random(f"{chosen.seed}/{spec.launch_id}")
    slowest = min((chosen.slow_nodes.get(node, 1.0) for node in spec.nodes), default=1.0)
    rate = chosen.speed.get(spec.benchmark, 1.0) * slowest
    big = 40.0 if chosen.device is Device.GPU else 1.0

    def about(value: float) -> float:
        return value * rng.gauss(1.0, 0.01)

    if spec.benchmark == "fio":
        for direction, bandwidth, iops in (("read", 2100.0, 52_000.0), ("write", 1400.0, 31_000.0)):
            shape = {"bs": "1M", "clients": 2}
            top = bandwidth * big
            yield Made(indicator=f"{direction}_bandwidth", value=about(top * rate), unit="MB/s", params=shape,
                       lower=top * 0.8, expected=top)  # fmt: skip
            shape = {"bs": "4k", "clients": 2, "iodepth": 16}
            yield Made(indicator=f"{direction}_iops", value=about(iops * rate), unit="IOPS", params=shape,
                       lower=iops * 0.7, expected=iops)  # fmt: skip
            wait = 32e6 / iops
            yield Made(indicator=f"{direction}_latency_p99", value=about(wait / rate), unit="us", params=shape,
                       upper=wait * 1.4, expected=wait)  # fmt: skip
    elif spec.benchmark == "nccl_tests":
        for operation in ("all_reduce", "all_gather"):
            yield from _collective(spec, operation, rate, big, about)
    elif spec.benchmark == "hpl_mxp":
        top, shape = 21.0 * big if big > 1 else 0.21, {"precision": "bf16"}
        yield Made(indicator="effective_flops", value=about(top * rate), unit="TFLOPS", params=shape,
                   lower=top * 0.9, expected=top)  # fmt: skip
        yield Made(indicator="residual", value=abs(about(3.1e-3)), unit="1", params=shape, upper=16.0)
    else:
        good, shape = 0.82 * (1 + 0.06 * math.log2(spec.node_count)), {"mode": "fixed_steps"}
        tokens = 1025.0 * big / good
        yield Made(indicator="step_time", value=about(good / rate), unit="s", params=shape, upper=good * 1.3,
                   expected=good)  # fmt: skip
        yield Made(indicator="tokens_per_s_per_gpu", value=about(tokens * rate), unit="tokens/s", params=shape,
                   lower=tokens * 0.85, expected=tokens)  # fmt: skip


def _collective(spec: LaunchSpec, operation: str, rate: float, big: float, about: Any) -> Iterator[Made]:
    top = 9.5 * big * (1.0 if operation == "all_reduce" else 0.92) / (1 + 0.08 * math.log2(spec.node_count))
    for size in SIZES:
        good = top * size / (size + 4e6)
        params = {"operation": operation, "message_bytes": size}
        yield Made(indicator="bus_bandwidth", value=about(good * rate), unit="GB/s", params=params,
                   lower=good * 0.8, expected=good)  # fmt: skip
    yield Made(indicator="bus_bandwidth_headline", value=about(top * 0.99 * rate), unit="GB/s",
               params={"operation": operation}, lower=top * 0.85, expected=top * 0.99)  # fmt: skip
    delay = 21 + 4 * math.log2(spec.node_count)
    yield Made(indicator="latency_smallest", value=about(delay), unit="us", params={"operation": operation},
               upper=120.0)  # fmt: skip


def _record(run: RunDirectory, chosen: Scenario, spec: LaunchSpec, made: list[Made], number: int) -> RunRecord:
    raw = run.evidence / "raw" / f"{spec.launch_id}.a1"
    raw.mkdir(parents=True)
    text = f"# {STAMP}\n" + "".join(f"{m.indicator} {m.value!r} {m.unit}\n" for m in made)
    (raw / "stdout").write_text(text)
    (raw / "stderr").write_text("")
    started = chosen.when + timedelta(seconds=20 * number)
    failure = chosen.failing_launches.get(spec.launch_id)
    ended = started + timedelta(seconds=12.5)
    record = RunRecord(
        launch_id=spec.launch_id,
        run_id=spec.run_id,
        cluster=spec.cluster,
        attempt=1,
        spec_sha256=spec.digest(),
        outcome=Outcome.EXITED,
        exit_code=1 if failure else 0,
        signal=None,
        reason=failure or "",
        argv=spec.argv,
        hosts=spec.nodes,
        started_at=_iso(started),
        ended_at=_iso(ended),
        duration_s=12.5,
        origin=spec.origin,
        device=spec.device,
        hardware=_hardware(chosen, spec),
        environment={"kernel": chosen.kernel, "os": "Test OS 1", "python": "3.11.7", "affinity_cpus": 2, "env": {"OMP_NUM_THREADS": "1"}},
        snapshots={"before": _snapshot(chosen, started, 0), "after": _snapshot(chosen, ended, 3 if spec.nodes[0] in chosen.slow_nodes else 0)},
        raw_dir=f"raw/{raw.name}",
        raw_files=tuple(
            RawFile(path=p.name, size_bytes=p.stat().st_size, sha256=file_sha256(p)) for p in sorted(raw.iterdir())
        ),
    )  # fmt: skip
    path = run.evidence / "records" / f"{spec.launch_id}.a1.json"
    path.write_text(json.dumps(to_plain(record), indent=1, sort_keys=True))
    return record


def _hardware(chosen: Scenario, spec: LaunchSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"cpu_model": "Test CPU", "cpu_count": 2, "memory_bytes": 24 << 30,
                             "hardware_id": f"test-{spec.nodes[0]}"}  # fmt: skip
    if chosen.device is Device.GPU:
        found["gpus"] = [{"index": str(i), "name": "Test H100", "uuid": f"GPU-{spec.nodes[0]}-{i}"} for i in range(8)]
    return found


def _snapshot(chosen: Scenario, at: datetime, throttled: int) -> dict[str, Any]:
    found: dict[str, Any] = {"taken_at": _iso(at), "load_1m": 0.5 + throttled, "cpu_throttle_count": throttled,
                             "network_counters": {"eth0": {"rx_errors": throttled, "tx_errors": 0}}}  # fmt: skip
    if chosen.device is Device.GPU:
        found["gpus"] = [
            {"index": str(i), "temperature.gpu": str(52 + i + 8 * throttled), "power.draw": "612.5",
             "clocks.current.sm": str(1980 - 300 * throttled), "ecc.errors.uncorrected.volatile.total": "0"}
            for i in range(8)
        ]  # fmt: skip
    return found


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# -- derived ---------------------------------------------------------------------------------------------------------


def write_derived(
    run: RunDirectory, chosen: Scenario, plan: Plan, made: Mapping[str, list[Made]], records: Mapping[str, RunRecord]
) -> None:
    """Write what the judge stage writes, from the made-up rows."""
    rows: list[Measurement] = []
    judged: list[dict[str, Any]] = []
    for spec in plan.launches:
        record = records.get(spec.launch_id)
        for item in made[spec.launch_id]:
            base = _verdict_row(spec, item)
            if record is None or spec.launch_id in chosen.failing_launches:
                judged.append({**base, **_kind(Code.NO_MEASUREMENT, "no value"), "actual": None})
                continue
            rows.append(_measurement(chosen, spec, record, item))
            judged.append(
                base if spec.launch_id not in chosen.invalid else {**base, **_kind(Code.OLD_OUTPUT, "too old")}
            )
        if record is None:
            judged.append(_plain(verdict(Code.NO_RECORD, f"{spec.benchmark} at {spec.node_count} nodes", "was never started",
                                         benchmark=spec.benchmark, launch_id=spec.launch_id, node_count=spec.node_count)))  # fmt: skip
        elif reason := chosen.failing_launches.get(spec.launch_id):
            judged.append(_plain(verdict(Code.BENCHMARK_FAILED, f"{spec.benchmark} at {spec.node_count} nodes", reason,
                                         benchmark=spec.benchmark, launch_id=spec.launch_id, node_count=spec.node_count)))  # fmt: skip
    judged += [_plain(verdict(g.code, g.place, g.reason, node=g.node)) for g in plan.gaps]
    if not chosen.baseline:
        judged.append(_plain(verdict(Code.NO_BASELINE, "the run", "no approved run of this cluster yet: approve one")))
    judged += [_plain(item) for item in chosen.extra]
    _write_tables(run, rows, judged)
    run.write_derived_json("launches.json", [_summary(spec, records.get(spec.launch_id)) for spec in plan.launches])
    run.write_derived_json("verdict.json", _verdict_json(run, chosen, plan, judged, rows))
    run.write_derived_json(
        "gx.json", {"success": True, "statistics": {"evaluated_expectations": 12, "successful_expectations": 12}}
    )
    run.write_provenance({"version": "0.1.0", "note": STAMP})


def _kind(code: Code, message: str) -> dict[str, Any]:
    found = verdict(code, "x", message)
    return {"kind": found.kind.value, "code": code.value, "message": message}


def _verdict_row(spec: LaunchSpec, item: Made) -> dict[str, Any]:
    bad = (item.lower is not None and item.value < item.lower) or (item.upper is not None and item.value > item.upper)
    code = Code.OUTSIDE_REFERENCE if bad else Code.OK
    node = item.node or (spec.nodes[0] if spec.node_count == 1 else None)
    place = f"{spec.benchmark} at {spec.node_count} nodes, group {spec.group}" + (f", node {node}" if node else "")
    limit = f"at least {item.lower:.4g}" if item.lower is not None else f"at most {item.upper:.4g}"
    return {
        **_kind(code, f"{item.value:.4g} {item.unit}, expected {limit}" if bad else "within its limits"),
        "place": place,
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
        "gpu": None,
        "repeat": spec.repeat,
        "lower": item.lower,
        "upper": item.upper,
        "warn_lower": None,
        "warn_upper": None,
        "ceiling": None,
        "baseline": item.expected,
        "item": "row",
    }


def _plain(item: Verdict) -> dict[str, Any]:
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


_INTEGERS = ("attempt", "wave", "group", "node_count", "repeat")
_FLOATS = ("value", "actual", "lower", "upper", "warn_lower", "warn_upper", "ceiling", "baseline")
_VERDICT_COLUMNS = (
    "kind", "code", "place", "message", "benchmark", "indicator", "expected", "actual", "unit", "launch_id", "node_count",
    "group", "node", "params", "reference", "gpu", "repeat", "lower", "upper", "warn_lower", "warn_upper", "ceiling",
    "baseline", "item",
)  # fmt: skip


def _write_tables(run: RunDirectory, rows: list[Measurement], judged: list[dict[str, Any]]) -> None:
    for name, columns, data in (
        ("measurements", MEASUREMENT_COLUMNS, [to_plain(row) for row in rows]),
        ("verdicts", _VERDICT_COLUMNS, judged),
    ):
        schema = pa.schema(
            [(c, pa.int64() if c in _INTEGERS else pa.float64() if c in _FLOATS else pa.string()) for c in columns]
        )
        table = pa.table({c: pa.array([row.get(c) for row in data], schema.field(c).type) for c in columns}, schema)
        if name == "verdicts":  # the judge writes texts as categories
            texts = [c for c in columns if schema.field(c).type == pa.string()]
            table = pa.table({c: table[c].dictionary_encode() if c in texts else table[c] for c in columns})
        pq.write_table(table, run.derived / f"{name}.parquet")


def _summary(spec: LaunchSpec, record: RunRecord | None) -> dict[str, Any]:
    return {
        **{k: to_plain(getattr(spec, k)) for k in ("launch_id", "benchmark", "node_count", "wave", "group", "repeat", "nodes", "argv", "timeout_s")},
        "attempts": 1 if record else 0,
        "outcome": record.outcome.value if record else None,
        "exit_code": record.exit_code if record else None,
        "reason": record.reason if record else "no record",
        "started_at": record.started_at if record else None,
        "duration_s": record.duration_s if record else None,
        "raw_dir": record.raw_dir if record else None,
        "hardware": dict(record.hardware) if record else {},
        "environment": dict(record.environment) if record else {},
        "snapshots": dict(record.snapshots) if record else {},
        "completeness": [{"reader": spec.reader, "status": "complete", "expected": {}, "found": {}, "reason": ""}] if record else [],
        "facts": {"tool_version": "1.2.3-test"} if record else {},
    }  # fmt: skip


def _verdict_json(
    run: RunDirectory, chosen: Scenario, plan: Plan, judged: list[dict[str, Any]], rows: list[Measurement]
) -> dict[str, Any]:
    notable = [row for row in judged if row["kind"] != "PASS"]
    order = [kind.value for kind in VerdictKind]
    notable.sort(key=lambda row: -order.index(row["kind"]))
    gaps = [row for row in notable if row["code"] in ("busy", "preempted", "excluded")]
    blocking = [r for r in notable if r["kind"] in ("FAIL", "INVALID", "NOT_RUN", "STALE") and r not in gaps]
    if chosen.suite == "acceptance":
        blocking = [r for r in notable if r["kind"] != "WAIVED"]
    expected = sum(row["item"] == "row" for row in judged)
    return {
        "run_id": run.run_id,
        "run_dir": str(run.path),
        "cluster": chosen.cluster,
        "suite": chosen.suite,
        "origin": chosen.origin.value,
        "device": chosen.device.value,
        "verdict": worst(VerdictKind(row["kind"]) for row in judged).value,
        "gate": "closed" if blocking else "open",
        "coverage": {
            "expected": chosen.nodes,
            "measured": chosen.nodes,
            "rows_expected": expected,
            "rows_measured": len(rows),
            "missing": sorted({row["place"] for row in notable if row["kind"] in ("NOT_RUN", "STALE")}),
        },
        "reasons": [{**_reason(row), "blocks": row in blocking} for row in notable],
        "mlflow_run_id": None,
    }  # fmt: skip


def _reason(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("code", "benchmark", "indicator", "place", "expected", "actual", "unit", "message", "launch_id", "node_count",
             "group", "node", "params", "reference")  # fmt: skip
    return {"verdict": row["kind"], **{name: row.get(name) for name in names}}


def rewrite_json(run: RunDirectory, name: str, **changes: Any) -> None:
    """Change keys of a derived JSON file and bind derived/ anew, as a stage would."""
    data = json.loads((run.derived / name).read_text())
    write_atomically(run.derived / name, json.dumps({**data, **changes}))
    run.write_provenance({"version": "0.1.0", "note": STAMP})
