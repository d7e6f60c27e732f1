"""The launcher of simulated clusters: writes what the tools would have printed, and the records beside it.

Everything after it runs unchanged. Times are the simulated night's own; its clock and seed are in simulation.json.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from plumbline.amounts import plural
from plumbline.clusters.inventory import Inventory, static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.launcher import Progress
from plumbline.model import Code, LaunchSpec, Outcome, canonical_json, to_plain
from plumbline.simulation.faults import load_scenario
from plumbline.simulation.night import Night
from plumbline.simulation.outputs import outputs

CLOCK = "simulation.json"
"""Evidence file: seed, moment, and the simulated clock after the last batch."""
PAUSE_S = 10.0
"""Between two batches."""
START_S = 5.0
"""For a launch to start and end, beside what its tool works. Assumption."""


def inventory(profile: ClusterProfile, today: date) -> Inventory:
    """Give the simulated nodes; a missing GPU or a lost node shows when it is used, as on a real cluster."""
    return static_inventory(profile, today)


def launch(profile: ClusterProfile, specs: Sequence[LaunchSpec], evidence: Path, progress: Progress) -> None:
    """Leave raw output and a record for every launch of a batch. Raises ConfigError for a wrong scenario."""
    clock = _read_clock(evidence)
    suite = json.loads((evidence / "suite.json").read_text(encoding="utf-8"))
    scenario = load_scenario(suite.get("faults"), int(profile.simulation.get("seed", 0)))
    night = Night.of(profile, scenario, clock["moment"])
    begin = clock["clock"]
    # A second attempt would tell the same, so whatever has a record is left alone.
    there = {path.name for path in (evidence / "records").glob("*.a1.json")}
    rows = [row for row, spec in enumerate(specs) if f"{spec.launch_id}.a1.json" not in there]
    longest = leave(night, specs, rows, evidence, begin)
    clock["clock"] = begin + timedelta(seconds=longest + PAUSE_S)
    _write_clock(evidence, clock, scenario.seed)
    progress(f"{plural(len(rows), 'launch', 'launches')} simulated: SIMULATED, nothing was measured")


def leave(night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int], evidence: Path, begin: datetime) -> float:
    """Leave raw output and records of those launches of a batch; give the longest simulated duration in seconds."""
    for folder in ("raw", "records"):
        (evidence / folder).mkdir(exist_ok=True)
    printed = outputs(specs[0].benchmark).files(night, specs, rows, begin)
    durations = (
        _leave(night, specs[row], dict(one.files), one.took_s, evidence, begin)
        for row, one in zip(rows, printed, strict=True)
    )
    return max(durations, default=0.0)


def clock_of(evidence: Path) -> datetime | None:
    """Give the simulated clock of a run, None for a real one."""
    return _read_clock(evidence)["clock"] if (evidence / CLOCK).is_file() else None


def _read_clock(evidence: Path) -> dict[str, datetime]:
    if (evidence / CLOCK).is_file():
        data = json.loads((evidence / CLOCK).read_text(encoding="utf-8"))
    else:
        prepared = json.loads((evidence / "environment.json").read_text(encoding="utf-8"))["prepared_at"]
        data = {"moment": prepared, "clock": prepared}
    return {key: datetime.fromisoformat(data[key]) for key in ("moment", "clock")}


def _write_clock(evidence: Path, clock: Mapping[str, datetime], seed: int) -> None:
    data = {"simulated": True, "seed": seed, **{key: value.isoformat() for key, value in clock.items()}}
    (evidence / CLOCK).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _leave(
    night: Night, spec: LaunchSpec, files: dict[str, str], took_s: float, evidence: Path, begin: datetime
) -> float:
    """Write one launch's files and record; give its simulated duration in seconds."""
    outcome, code, reason = _fate(night, spec)
    hangs = outcome is Outcome.TIMEOUT
    duration = max(duration_s(spec, hangs=hangs), 0.0 if hangs else math.ceil(took_s + START_S))
    files.setdefault("stdout", "")
    files.setdefault("stderr", "")
    if outcome is Outcome.TIMEOUT:
        files = {name: text[: len(text) // 2] for name, text in files.items()}
    elif outcome is Outcome.INFRASTRUCTURE:
        files = {"stdout": "", "stderr": ""}
    elif _named(night, spec, night.truth.truncated):
        files = {name: text[: int(len(text) * 0.6)] for name, text in files.items()}
    name = f"{spec.launch_id}.a1"
    folder = evidence / "raw" / name
    folder.mkdir()
    raw_files = []
    for file_name, text in sorted(files.items()):
        data = text.encode()
        (folder / file_name).write_bytes(data)
        raw_files.append({"path": file_name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    record = _record(night, spec, begin, duration, outcome, code, reason, raw_files)
    (evidence / "records" / f"{name}.json").write_text(canonical_json(record) + "\n", encoding="utf-8")
    return duration


def duration_s(spec: LaunchSpec, *, hangs: bool) -> float:
    """Give how long a launch takes in simulated time, whole seconds: by what is asked of it. Assumption.

    Nights with the same plan have the same times, whatever becomes of their launches.
    """
    works = math.ceil(20.0 + 4.0 * spec.node_count.bit_length() + outputs(spec.benchmark).works_s(spec))
    return spec.timeout_s if hangs else min(spec.timeout_s, works)


def _fate(night: Night, spec: LaunchSpec) -> tuple[Outcome, Code | None, str]:
    """Say how the launch ends, by the truth of its nodes."""
    truth = night.truth
    nodes = [night.node(name) for name in spec.nodes]
    for i in nodes:
        if not truth.present[i].all():
            have = int(truth.present[i].sum())
            reason = (
                f"{truth.names[i]} has {have} of {night.model.gpus} GPUs: the pod of {night.model.gpus} stays Pending"
            )
            return Outcome.INFRASTRUCTURE, Code.MISSING_GPU, reason
    for i in nodes:
        if truth.lost[i]:
            return Outcome.INFRASTRUCTURE, Code.NODE_LOST, f"{truth.names[i]} stopped answering in mid-run"
    if name := _named(night, spec, truth.hang):
        return Outcome.TIMEOUT, None, f"no end after {spec.timeout_s:g} s; {name} made no progress"
    return Outcome.EXITED, None, ""


def _named(night: Night, spec: LaunchSpec, faults: Sequence[tuple[int, str | None]]) -> str | None:
    for i, benchmark in faults:
        if benchmark in (None, spec.benchmark) and night.truth.names[i] in spec.nodes:
            return night.truth.names[i]
    return None


def _record(
    night: Night,
    spec: LaunchSpec,
    begin: datetime,
    duration: float,
    outcome: Outcome,
    code: Code | None,
    reason: str,
    raw_files: list[dict[str, Any]],
) -> dict[str, Any]:
    first, started = night.node(spec.nodes[0]), night.began(spec, begin)
    single = len(spec.nodes) == 1
    return {
        "schema_version": 1,
        "launch_id": spec.launch_id,
        "run_id": spec.run_id,
        "cluster": spec.cluster,
        "attempt": 1,
        "spec_sha256": hashlib.sha256(canonical_json(to_plain(spec)).encode()).hexdigest(),
        "outcome": outcome.value,
        "exit_code": 0 if outcome is Outcome.EXITED else None,
        "signal": None,
        "code": code.value if code else None,
        "reason": reason,
        "argv": list(spec.argv),
        "hosts": list(spec.nodes),
        "started_at": _utc(started),
        "ended_at": _utc(started + timedelta(seconds=duration)),
        "duration_s": round(duration, 6),
        "runner_cpu_s": None,
        "origin": spec.origin.value,
        "device": spec.device.value,
        "hardware": night.hardware(spec.nodes[0]) if single else {"simulated": True},
        "environment": {"simulated": True, "driver": night.driver(first)} if single else {"simulated": True},
        "snapshots": {} if outcome is Outcome.INFRASTRUCTURE else snapshots(night, spec.nodes),
        "raw_dir": f"raw/{spec.launch_id}.a1",
        "raw_files": raw_files,
    }


def snapshots(night: Night, nodes: Sequence[str]) -> dict[str, Any]:
    """Give which GPUs every node has before the launch, and what nvidia-smi tells of them after it."""
    gpus = [gpu for name in nodes for gpu in _gpus(night, night.node(name), several=len(nodes) > 1)]
    before = [{key: gpu[key] for key in ("index", "uuid")} for gpu in gpus]
    return {"before": {"gpus": before}, "after": {"gpus": gpus}}


def _gpus(night: Night, node: int, *, several: bool) -> list[dict[str, str]]:
    truth, model = night.truth, night.model
    reasons = {0: "0x0000000000000000", 1: "0x0000000000000060", 2: "0x0000000000000080"}
    name = truth.names[node]
    clocks, widths = truth.clock[node].tolist(), truth.pcie[node].tolist()
    throttle, retired = truth.throttle[node].tolist(), truth.retired[node].tolist()
    return [
        {
            "index": f"{name}/{g}" if several else str(g),
            "uuid": f"GPU-sim-{name}-{g}",
            "clocks.current.sm": str(round(model.sm_clock_mhz * clocks[g])),
            "clocks.max.sm": str(model.sm_clock_mhz),
            "pcie.link.width.current": str(max(1, round(16 * widths[g]))),
            "pcie.link.width.max": "16",
            "clocks_throttle_reasons.active": reasons[throttle[g]],
            "ecc.errors.uncorrected.volatile.total": "0",
            "remapped_rows.correctable": str(retired[g]),
            "remapped_rows.pending": "1" if retired[g] else "0",
        }
        for g in range(model.gpus)
        if truth.present[node, g]
    ]


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
