"""Build finished, judged run directories out of made-up numbers, without running or judging anything.

TEST DATA: every number here is invented. The profile's title, the suite's note and the trigger say so, so that no
such run can be taken for a measurement.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Batch, Gap, Plan, partition, plan_data
from plumbline.execution.run_one import file_sha256, write_atomically
from plumbline.model import Contends, Device, LaunchSpec, Origin, Outcome, RawFile, RunRecord, to_plain
from plumbline.references.reference import load_references, references_data
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RunDirectory
from tests.run_judged import write_derived
from tests.run_scenario import STAMP, Made, Scenario, make

__all__ = ["STAMP", "Made", "Scenario", "build_history", "build_run", "rewrite_json"]


def _references(chosen: Scenario) -> dict[str, Any]:
    return {"references": references_data(load_references(chosen.references))} if chosen.references else {}


def build_run(results: Path, scenario: Scenario | None = None, **changes: Any) -> RunDirectory:
    """Write a whole run directory: evidence, seal, derived, provenance."""
    chosen = replace(scenario or Scenario(), **changes)
    run = RunDirectory.create(results, chosen.cluster, chosen.suite, chosen.run_id)
    profile, suite = _profile(chosen), _suite(chosen)
    plan = _plan(chosen, profile)
    for name, data in (
        ("profile", profile.model_dump(mode="json")),
        ("suite", suite.model_dump(mode="json")),
        ("references", {"note": STAMP, **_references(chosen)}),
        (
            "environment",
            {
                "plumbline": "0.1.0",
                "trigger": STAMP,
                "tags": {},
                "software": {"kernel": chosen.kernel},
                "asked": list(chosen.asked),
            },
        ),
        ("plan", plan_data(plan)),
    ):
        run.write_evidence(name, data)
    made = {spec.launch_id: list(make(chosen, spec)) for spec in plan.launches}
    records = {
        spec.launch_id: _record(run, chosen, spec, made[spec.launch_id], number)
        for number, spec in enumerate(plan.launches)
        if spec.launch_id not in chosen.missing_launches
    }
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
    pods: dict[str, Any] = {
        "python": "/usr/bin/python3",
        "programs": "/opt/plumbline/bench",
        "kubernetes": {"results": {"claim": "results", "mount": "/mnt/results"}},
        "images": {"fio": "registry.example/plumbline/fio@sha256:" + "a" * 64},
    }
    return ClusterProfile.model_validate(
        {
            "name": chosen.cluster,
            "title": f"{STAMP}: {chosen.nodes} nodes",
            "launcher": "simulated" if simulated else "kubernetes" if gpu else "local",
            "device": chosen.device.value,
            "accelerator": {"model": "H100-SXM5-80GB", "per_node": 8, "resource": "nvidia.com/gpu"}
            if gpu
            else {"model": "cpu", "per_node": 1},
            "fabric": {"name": "ndr-8x400g" if gpu else "loopback", "node_bandwidth_gbit_s": 3200 if gpu else None},
            "nodes": form,
            **(pods if gpu and not simulated else {}),
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
            "omitted": list(chosen.omitted),
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


def _record(run: RunDirectory, chosen: Scenario, spec: LaunchSpec, made: list[Made], number: int) -> RunRecord:
    raw = run.evidence / "raw" / f"{spec.launch_id}.a1"
    raw.mkdir(parents=True)
    text = f"# {STAMP}\n" + "".join(f"{m.indicator} {m.value!r} {m.unit}\n" for m in made)
    (raw / "stdout").write_text(text)
    (raw / "stderr").write_text("")
    started = chosen.when + timedelta(seconds=20 * number)
    failure = chosen.failing_launches.get(spec.launch_id)
    ended = started + timedelta(seconds=12.5)
    throttled = 3 if spec.nodes[0] in chosen.slow_nodes else 0
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
        environment={
            "kernel": chosen.kernel,
            "os": "Test OS 1",
            "python": "3.11.7",
            "affinity_cpus": 2,
            "env": {"OMP_NUM_THREADS": "1"},
        },
        snapshots={"before": _snapshot(chosen, started, 0), "after": _snapshot(chosen, ended, throttled)},
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


def rewrite_json(run: RunDirectory, name: str, **changes: Any) -> None:
    """Change keys of a derived JSON file and bind derived/ anew, as a stage would."""
    data = json.loads((run.derived / name).read_text())
    write_atomically(run.derived / name, json.dumps({**data, **changes}))
    run.write_provenance({"version": "0.1.0", "note": STAMP})
