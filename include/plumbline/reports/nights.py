"""One page for a history of simulated nights: what the verdict said beside what was planted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from plumbline.reports.report import templates
from plumbline.simulation.faults import UNGRADED, Fault
from plumbline.tracking.run_directory import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class NightLine:
    """One night: verdict, gate, the first reason that closed it, what was planted, where its run is."""

    night: date
    verdict: str
    gate: str
    reasons: tuple[str, ...]
    """What closes the gate, one message a place, the worst first."""
    planted: tuple[str, ...]
    run_id: str
    run_dir: Path

    @classmethod
    def of(cls, night: date, verdict: Mapping[str, Any], faults: Sequence[Fault], run: RunDirectory) -> NightLine:
        """Take a night from its verdict.json."""
        return cls(
            night=night,
            verdict=verdict["verdict"],
            gate=verdict["gate"],
            reasons=tuple(f"{r['place']}: {r['message']} ({r['code']})" for r in verdict["reasons"] if r["blocks"]),
            planted=tuple(_planted(fault) for fault in faults),
            run_id=run.run_id,
            run_dir=run.path,
        )

    @property
    def outcome(self) -> str:
        """Say how verdict and truth agree: found, false alarm, missed, or quiet."""
        if self.planted:
            return "found" if self.gate == "closed" else "missed"
        return "false alarm" if self.gate == "closed" else "quiet"

    def text(self) -> str:
        """Give the line for a terminal."""
        told = self.reasons[0] if self.reasons else ""
        planted = f"  planted: {'; '.join(self.planted)}" if self.planted else ""
        return f"{self.night}  {self.verdict:8} gate {self.gate:6} {self.outcome:11}{planted}  {told[:160]}".rstrip()


def _planted(fault: Fault) -> str:
    """Name a planted fault, with how badly it is planted where its kind has degrees."""
    degree = "" if fault.kind in UNGRADED else f" ({fault.severity:.0%})"
    return f"{fault.kind} {fault.component}{degree}"


def write_nights(path: Path, lines: Sequence[NightLine], cluster: str, suite: str) -> None:
    """Write the page, replacing an older one whole."""
    links = {line.run_id: os.path.relpath(line.run_dir / "derived" / "report.html", path.parent) for line in lines}
    counts = {name: sum(line.outcome == name for line in lines) for name in ("found", "missed", "false alarm", "quiet")}
    page = templates().get_template("nights.html.j2").render(
        lines=lines, links=links, counts=counts, cluster=cluster, suite=suite
    )  # fmt: skip
    part = path.with_suffix(".part")
    part.write_text(page, encoding="utf-8")
    part.replace(path)
