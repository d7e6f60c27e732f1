"""A finished and judged run as data: what the report, the trackers and the notifier all read, read once.

Everything comes from `derived/` and the sealed `evidence/`; nothing is judged again here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import OutputError
from plumbline.execution.plan import Plan
from plumbline.execution.run_one import file_sha256
from plumbline.model import Device, Origin, VerdictKind
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import MANIFEST, PROVENANCE, RunDirectory

MEASUREMENTS = "measurements.parquet"
VERDICTS = "verdicts.parquet"
VERDICT = "verdict.json"
LAUNCHES = "launches.json"
MLFLOW = "mlflow.json"
"""Written by tracking: where MLflow keeps this run."""

PROXIES = "REDUCED-SIZE PROXIES"
STAMPS: Mapping[str, str] = {
    "SIMULATED": "Every number comes out of the simulator. Nothing here was measured on hardware.",
    "CPU ONLY": "Measured on CPUs, not on GPUs. The figures say nothing about accelerators or their fabric.",
    PROXIES: "Training ran models of reduced size. No figure here is an MLPerf result.",
}
"""What must be said wherever numbers of a run are shown, and what it means."""

Row = Mapping[str, Any]


class JudgedRun:
    """The derived files of one run, each read when first asked for. Raises OutputError for an absent or damaged one."""

    def __init__(self, run: RunDirectory) -> None:
        """Wrap a run; nothing is read yet."""
        self.run = run

    @cached_property
    def summary(self) -> dict[str, Any]:
        """verdict.json."""
        found = self.run.read_derived(VERDICT)
        for key in ("run_id", "cluster", "suite", "origin", "device", "verdict", "gate", "coverage", "reasons"):
            if key not in found:
                raise OutputError(f"has no {key!r}", source=VERDICT)
        return dict(found)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return str(self.summary["cluster"])

    @property
    def suite_name(self) -> str:
        """The suite's name."""
        return str(self.summary["suite"])

    @property
    def verdict(self) -> VerdictKind:
        """The run's own verdict."""
        return VerdictKind(self.summary["verdict"])

    @property
    def gate_open(self) -> bool:
        """Whether the gate is open: only the exact word opens it."""
        return bool(self.summary["gate"] == "open")

    @property
    def origin(self) -> Origin:
        """Measured or simulated."""
        return Origin(self.summary["origin"])

    @property
    def device(self) -> Device:
        """GPU or CPU."""
        return Device(self.summary["device"])

    @cached_property
    def stamps(self) -> tuple[str, ...]:
        """What must stand wherever numbers of this run are shown; empty for real measurements on GPUs."""
        return tuple(
            name
            for name, holds in (
                ("SIMULATED", self.origin is Origin.SIMULATED),
                ("CPU ONLY", self.device is Device.CPU),
                (PROXIES, bool(self.proxies)),
            )
            if holds
        )

    def stamps_of(self, benchmark: str) -> tuple[str, ...]:
        """What must stand beside one benchmark's numbers: storage is no proxy because training is."""
        return tuple(name for name in self.stamps if name != PROXIES or benchmark in self.proxies)

    @cached_property
    def proxies(self) -> frozenset[str]:
        """The benchmarks that ran a model of reduced size: every trainer that ships here, and who says so itself."""
        return frozenset(
            str(launch["benchmark"])
            for launch in self.launches
            if str(launch["benchmark"]).startswith("mlperf_") or (launch.get("facts") or {}).get("proxy")
        )

    @cached_property
    def measurements(self) -> list[dict[str, Any]]:
        """Every row of measurements.parquet."""
        return _rows(self.run, MEASUREMENTS)

    @cached_property
    def verdicts(self) -> list[dict[str, Any]]:
        """Every row of verdicts.parquet."""
        return _rows(self.run, VERDICTS)

    @cached_property
    def launches(self) -> list[dict[str, Any]]:
        """launches.json: one LaunchSummary as plain data for each planned launch."""
        return list(self.run.read_derived(LAUNCHES))

    @cached_property
    def plan(self) -> Plan:
        """What was planned."""
        return self.run.plan()

    @cached_property
    def profile(self) -> ClusterProfile:
        """The profile that the run used."""
        return self.run.profile()

    @cached_property
    def suite(self) -> Suite:
        """The suite that the run used."""
        return self.run.suite()

    @cached_property
    def manifest_files(self) -> dict[str, dict[str, Any]]:
        """Path below evidence/ → sha256 and size_bytes, as sealed."""
        data = json.loads((self.run.evidence / MANIFEST).read_text(encoding="utf-8"))
        return dict(data["files"])

    @cached_property
    def mlflow(self) -> dict[str, Any] | None:
        """mlflow.json, or None when the run was never tracked."""
        try:
            return dict(self.run.read_derived(MLFLOW))
        except OutputError:
            return None


def _rows(run: RunDirectory, name: str) -> list[dict[str, Any]]:
    import pyarrow.lib
    import pyarrow.parquet as pq

    path = run.derived / name
    if not path.is_file():
        raise OutputError("is missing: judge the run first", source=f"{run.run_id}/derived/{name}")
    try:
        return list(_without_nan(pq.read_table(path)).to_pylist())
    except (pyarrow.lib.ArrowException, OSError) as error:
        raise OutputError(f"not readable: {error}", source=f"{run.run_id}/derived/{name}") from None


def _without_nan(table: Any) -> Any:
    """Make nulls of the NaN that data frames put where a number is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            column = table[field.name]
            table = table.set_column(place, field, pc.if_else(pc.is_nan(column), pa.scalar(None, field.type), column))
    return table


def why_untrusted(run: RunDirectory, *names: str) -> str | None:
    """Say why these derived files must not be used as history, or give None when they are what the judge wrote.

    The provenance must name this very manifest and the digest of each file: a copied, edited or outdated file is
    not history.
    """
    try:
        provenance = run.read_derived(PROVENANCE)
        listed, manifest = provenance["files"], provenance["manifest_sha256"]
    except (OutputError, KeyError, TypeError):
        return "not judged, or judging did not finish"
    if not run.sealed or manifest != run.manifest_sha256():
        return "derived/ belongs to other evidence"
    for name in names:
        path = run.derived / name
        if not path.is_file():
            return f"derived/{name} is missing"
        if file_sha256(path) != listed.get(name):
            return f"derived/{name} was changed after judging"
    return None
