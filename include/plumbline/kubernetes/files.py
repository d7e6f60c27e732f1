"""Where the programs inside pods find their work and leave word of themselves, on the results volume.

    <run>/evidence/…                      the run's evidence: plan, profile, records, raw output
    <run>/pods/<launch_id>.json           the LaunchSpec of one launch, for its workers: a plan of 1,024 nodes is large
    <run>/pods/<launcher uid>.heartbeat   changes while that launcher lives
    <run>/pods/<launch_id>.a<n>/<node>.<before|after>.json   what a worker's machine said of itself

Only evidence/ is sealed. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.execution.environment import utc_now
from plumbline.execution.run_one import AttemptTakenError, claim_attempt, write_atomically, write_record
from plumbline.model import KIND_OF_CODE, Code, LaunchSpec, Outcome, RunRecord, VerdictKind, launch_spec, to_plain

BEAT_S = 10.0
"""At most so long between two beats; see `beat_s`."""
ANSWERS = frozenset({Outcome.EXITED, Outcome.SIGNALLED, Outcome.TIMEOUT, Outcome.NOT_STARTED})
"""Outcomes that answer a launch; the same set as in plumbline.execution.launcher, which pods can't import."""


_FAULTS = frozenset(code.value for code, kind in KIND_OF_CODE.items() if kind is VerdictKind.FAIL)


def read_profile(evidence: Path) -> dict[str, Any]:
    """Read the run's profile as plain data."""
    data: dict[str, Any] = json.loads((evidence / "profile.json").read_text(encoding="utf-8"))
    return data


def read_batch(evidence: Path, batch_id: str) -> tuple[LaunchSpec, ...]:
    """Read the launches of a batch from the plan, in order. Raises KeyError for an unknown batch."""
    plan = json.loads((evidence / "plan.json").read_text(encoding="utf-8"))
    wanted = {batch["batch_id"]: set(batch["launch_ids"]) for batch in plan["batches"]}[batch_id]
    return tuple(launch_spec(item) for item in plan["launches"] if item["launch_id"] in wanted)


def read_inventory(evidence: Path) -> list[dict[str, Any]]:
    """Read the plan's usable nodes as plain data, in the plan's order."""
    plan = json.loads((evidence / "plan.json").read_text(encoding="utf-8"))
    return [node for node in plan["inventory"] if node["unusable"] is None]


def write_spec(evidence: Path, spec: LaunchSpec) -> None:
    """Leave one launch's spec for its workers."""
    write_atomically(pods_folder(evidence) / f"{spec.launch_id}.json", json.dumps(to_plain(spec)))


def read_spec(evidence: Path, launch_id: str) -> LaunchSpec:
    """Read what `write_spec` left."""
    return launch_spec(json.loads((pods_folder(evidence) / f"{launch_id}.json").read_text(encoding="utf-8")))


def pods_folder(evidence: Path) -> Path:
    """Give the folder beside the evidence that pods use."""
    return evidence.parent / "pods"


def records_of(evidence: Path, launch_id: str) -> dict[int, Mapping[str, Any]]:
    """Give the records of a launch by attempt; damaged ones are left out."""
    return _read_records((evidence / "records").glob(f"{launch_id}.a*.json"), launch_id)


def _read_records(paths: Iterable[Path], launch_id: str) -> dict[int, Mapping[str, Any]]:
    found = {}
    for path in paths:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["launch_id"] == launch_id:
                found[int(data["attempt"])] = data
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def answered(evidence: Path, launch_id: str) -> bool:
    """Say whether a record answers the launch: then it is never run again."""
    return any(map(_answers, records_of(evidence, launch_id).values()))


def _answers(record: Mapping[str, Any]) -> bool:
    """Say whether a record is final: the command came to an end, or what stopped it is the cluster's own fault.

    Too little memory or a missing GPU is a finding, not an accident: another try could only hide it.
    """
    if record.get("outcome") in ANSWERS:
        return True
    code = record.get("code")
    return record.get("outcome") == Outcome.INFRASTRUCTURE and code in _FAULTS


def next_attempt(evidence: Path, launch_id: str) -> int:
    """Give the first attempt number that nobody has claimed."""
    taken = [path.name.rpartition(".a")[2] for path in (evidence / "raw").glob(f"{launch_id}.a*")]
    return 1 + max((int(number) for number in taken if number.isdigit()), default=0)


def record_fault(
    spec: LaunchSpec, evidence: Path, code: Code, reason: str, *, started_at: str | None = None, duration_s: float = 0.0
) -> RunRecord:
    """Write the record of an attempt that infrastructure ended, under the next free number. Raises OSError.

    An attempt that somebody else claimed is never written over: its owner may still be alive on a lost node.
    """
    number, raw_dir = claim_attempt(evidence, spec.launch_id)
    record = fault_record(spec, number, code, reason, started_at=started_at, duration_s=duration_s, raw_dir=raw_dir)
    write_record(record, evidence)
    return record


def fault_record(
    spec: LaunchSpec,
    attempt: int,
    code: Code,
    reason: str,
    *,
    started_at: str | None,
    duration_s: float,
    raw_dir: Path,
    replaced: Mapping[str, str] | None = None,
) -> RunRecord:
    """Build the record of an attempt that infrastructure ended. `code` STOPPED makes it one that was asked to end."""
    ended = utc_now()
    return RunRecord(
        launch_id=spec.launch_id,
        run_id=spec.run_id,
        cluster=spec.cluster,
        attempt=attempt,
        spec_sha256=spec.digest(),
        outcome=Outcome.STOPPED if code is Code.STOPPED else Outcome.INFRASTRUCTURE,
        exit_code=None,
        signal=None,
        code=code,
        reason=reason,
        argv=spec.argv,
        hosts=(),
        replaced=replaced or {},
        started_at=started_at or ended,
        ended_at=ended,
        duration_s=round(duration_s, 6),
        origin=spec.origin,
        device=spec.device,
        raw_dir=f"raw/{raw_dir.name}",
    )


# ---------------------------------------------------------------------------------------------------------------
# Heartbeat


def beat_s(orphan_s: float) -> float:
    """Give the seconds between two beats for workers that wait `orphan_s` for the next one."""
    return min(BEAT_S, orphan_s / 4)


def beat(evidence: Path, launcher_uid: str) -> None:
    """Say that the launcher lives. The content changes, since a shared file system may keep times back."""
    write_atomically(_heartbeat(evidence, launcher_uid), f"{time.time():.3f}\n")


def has_beaten(evidence: Path, launcher_uid: str) -> bool:
    """Say whether a launcher has ever said that it lives: it has begun."""
    return _heartbeat(evidence, launcher_uid).exists()


def _heartbeat(evidence: Path, launcher_uid: str) -> Path:
    return pods_folder(evidence) / f"{launcher_uid}.heartbeat"


class Heart:
    """Watches a launcher's heartbeat from inside a worker, by content and by this machine's own clock."""

    def __init__(self, evidence: Path, launcher_uid: str, limit_s: float) -> None:
        """Begin with a full `limit_s`; an empty uid is a pod without a launcher, whose heart never stops."""
        self.path = _heartbeat(evidence, launcher_uid)
        self.limit_s = limit_s if launcher_uid else float("inf")
        self._seen, self._changed = "", time.monotonic()

    def stopped(self) -> bool:
        """Look once; say whether the launcher has been silent for too long."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError:
            text = self._seen
        if text != self._seen:
            self._seen, self._changed = text, time.monotonic()
        return time.monotonic() - self._changed > self.limit_s

    def stop_process_when_stopped(self) -> None:
        """Send this process SIGTERM when the launcher falls silent; looks from a thread of its own."""
        if self.limit_s == float("inf"):
            return

        def look() -> None:
            while not self.stopped():
                time.sleep(beat_s(self.limit_s))
            print(f"the launcher has been silent for {self.limit_s:g} s: ending", flush=True)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=look, daemon=True, name="heart").start()


def claim(evidence: Path, spec: LaunchSpec, attempt: int) -> Path:
    """Claim exactly this attempt; give its raw directory. Raises AttemptTakenError."""
    return claim_attempt(evidence, spec.launch_id, attempt)[1]


def without_answer(evidence: Path, specs: Sequence[LaunchSpec]) -> list[LaunchSpec]:
    """Give the launches that nothing has answered yet. One look at the folder, and at the records of these alone."""
    paths: dict[str, list[Path]] = defaultdict(list)
    with contextlib.suppress(OSError):
        for path in (evidence / "records").iterdir():
            if path.suffix == ".json":
                paths[path.name.rpartition(".a")[0]].append(path)
    return [
        spec for spec in specs
        if not any(map(_answers, _read_records(paths[spec.launch_id], spec.launch_id).values()))
    ]  # fmt: skip


__all__ = [
    "ANSWERS", "BEAT_S", "AttemptTakenError", "Heart", "answered", "beat", "beat_s", "claim",
    "fault_record", "has_beaten", "next_attempt", "pods_folder", "read_batch", "read_inventory", "read_profile",
    "read_spec", "record_fault", "records_of", "without_answer", "write_spec",
]  # fmt: skip
