"""What a run took: accelerator or CPU hours, and time on the clock. Every attempt counts, also the failed ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from plumbline.model import Device
from plumbline.tracking.judged_run import JudgedRun, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Hours that were held. `hours` are accelerator hours on GPUs, and hours × CPUs of the machines on CPU."""

    device: Device
    hours: float
    wall_s: float | None
    """From the first start to the last end; None when nothing ran."""
    launches: int
    attempts: int

    @property
    def unit(self) -> str:
        """GPU-hours or CPU-hours."""
        return "GPU-hours" if self.device is Device.GPU else "CPU-hours"

    def text(self) -> str:
        """Say it for people."""
        return f"{self.hours:.1f} {self.unit}" if self.hours >= 10 else f"{self.hours:.2g} {self.unit}"


def cost(run: JudgedRun) -> Cost:
    """Add up what the launches held: duration × nodes × accelerators of each (or × CPUs where there is no GPU)."""
    accelerators = {spec.launch_id: spec.accelerators_per_node for spec in run.plan.launches}
    seconds, starts, ends = 0.0, [], []
    for launch in run.launches:
        durations = list(_durations(run, launch))
        if run.device is Device.GPU:
            width = launch["node_count"] * accelerators.get(launch["launch_id"], run.profile.accelerator.per_node)
        else:
            width = _cpus(launch) * (1 if run.profile.launcher == "local" else launch["node_count"])
        seconds += sum(durations) * width
        if launch["started_at"] and launch["duration_s"] is not None:
            start = datetime.fromisoformat(launch["started_at"])
            starts.append(start)
            ends.append(start + timedelta(seconds=launch["duration_s"]))
    return Cost(
        device=run.device,
        hours=seconds / 3600,
        wall_s=(max(ends) - min(starts)).total_seconds() if starts else None,
        launches=len(run.launches),
        attempts=sum(launch["attempts"] for launch in run.launches),
    )


def _durations(run: JudgedRun, launch: Row) -> Iterator[float]:
    if launch["attempts"] <= 1:
        if launch["duration_s"] is not None:
            yield float(launch["duration_s"])
        return
    for path in (run.run.evidence / "records").glob(f"{launch['launch_id']}.a*.json"):
        try:
            yield float(json.loads(path.read_text(encoding="utf-8"))["duration_s"])
        except (OSError, ValueError, KeyError, TypeError):  # a damaged record has its own verdict; its time is unknown
            continue


def _cpus(launch: Row) -> int:
    environment, hardware = launch.get("environment") or {}, launch.get("hardware") or {}
    return int(environment.get("affinity_cpus") or hardware.get("cpu_count") or 1)
