"""A text report of fio as it is being read: its blocks and status sections, and what of them is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.readers._fio_model import Job, Latency, Run, Transfer


@dataclass(slots=True)
class _Kind:
    """One kind of latency as it is being read."""

    mean_us: float | None = None
    percentiles: dict[float, float] = field(default_factory=dict)


@dataclass(slots=True)
class Block:
    """The block of one job as it is being read."""

    name: str
    group: int
    hostname: str | None
    pid: int
    members: int
    error: int
    error_text: str
    transfers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Direction → the fields of its Transfer, but for the latencies."""
    latency: dict[str, dict[str, _Kind]] = field(default_factory=dict)
    """Direction → kind → what was read of it."""

    def kind(self, way: str, kind: str) -> _Kind:
        """Give what was read of a kind of latency in a direction, to be added to."""
        kinds = self.latency.get(way)
        if kinds is None:
            kinds = self.latency[way] = {}
        found = kinds.get(kind)
        if found is None:
            found = kinds[kind] = _Kind()
        return found

    def built(self, options: Mapping[str, str] | None) -> Job:
        """Give the job, with the options that the report shows of it."""
        transfers = tuple(
            Transfer(
                **fields,
                latency={
                    kind: Latency(mean_us=read.mean_us, percentiles=read.percentiles)
                    for kind, read in self.latency.get(way, {}).items()
                },
            )
            for way, fields in self.transfers.items()
        )
        return Job(
            name=self.name, group=self.group, hostname=self.hostname, pid=self.pid, members=self.members,
            error=self.error, error_text=self.error_text, transfers=transfers, options=options or {},
        )  # fmt: skip


@dataclass(slots=True)
class Host:
    """What one machine printed in one run ('' where fio ran alone)."""

    started: int = 0
    starts: int = 0
    """How often processes were started."""
    defined: int = 0
    """How many processes the jobs have at least, as they're listed before the start."""
    status: dict[int, set[str]] = field(default_factory=dict)
    group: int | None = None


@dataclass(slots=True)
class Report:
    """One report as it is being read."""

    version: str | None = None
    options: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    blocks: dict[tuple[str, str, int, int], Block] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    banners: int = 0
    all_clients: Block | None = None


def follows_begun(report: Report) -> bool:
    """Say whether a run began before the report's own and reported nothing.

    Its jobs were listed, or its processes started, but they are not in the report.
    """
    return bool(report.blocks) and any(
        0 < host.started < host.defined or (host.starts > 1 and host.started > _shown(report, name))
        for name, host in report.hosts.items()
    )


def _shown(report: Report, host: str) -> int:
    """Give how many processes of a machine the report shows."""
    return sum(block.members or 1 for (at, *_), block in report.blocks.items() if at == host)


def runs_of(report: Report) -> Iterator[Run]:
    """Give the run that a report tells of, or none where it shows no job."""
    if report.blocks or report.all_clients:
        yield _run_of(report)


def _run_of(report: Report) -> Run:
    return Run(
        container="text",
        version=report.version,
        jobs=tuple(block.built(report.options.get((block.name, block.group))) for block in report.blocks.values()),
        all_clients=report.all_clients.built(None) if report.all_clients else None,
        problems=tuple(_missing(report)),
    )


def _missing(report: Report) -> list[str]:
    """Say what a text report lacks: the status section of a group, or blocks of processes that were started."""
    missing = []
    for (host, name, group, _), block in report.blocks.items():
        seen = report.hosts[host].status.get(group)
        place = f" on {host}" if host else ""
        if seen is None:
            missing.append(f"the report stops before the status of group {group}{place}")
        elif not block.transfers.keys() <= seen and "mixed" not in seen:
            missing.append(f"the status of group {group}{place} stops before all directions of {name}")
    for name, machine in report.hosts.items():
        shown = _shown(report, name)
        if machine.started > shown:
            place = f" on {name}" if name else ""
            missing.append(f"{machine.started} processes started{place}, {shown} reported")
    reporting = len({host for host, *_ in report.blocks})
    if report.banners > reporting:
        missing.append(f"{report.banners} clients connected, {reporting} reported")
    return list(dict.fromkeys(missing))
