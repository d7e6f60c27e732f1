"""The report's way back to the raw output: every launch with its files, digests and relative links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from plumbline.model import Outcome
from plumbline.reports.wording import duration, node_list, shortened
from plumbline.tracking.judged_run import JudgedRun, Row

MOST_LAUNCHES = 250
"""Launches that are listed one by one: those that did not end well first. The manifest lists every file."""
MOST_FILES = 8
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One sealed file: name, link relative to derived/, size and digest."""

    name: str
    href: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch for the table. `well` is False where it did not end by itself with exit code 0, complete."""

    launch_id: str
    nodes: str
    well: bool
    how: str
    duration: str
    attempts: int
    command: str
    files: tuple[File, ...]
    more_files: int
    tail: str
    """The end of its stderr where it did not end well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the run rests on."""

    manifest_sha256: str
    manifest_href: str
    files: int
    size_bytes: int
    documents: tuple[File, ...]
    launches: tuple[Launch, ...]
    left_out: int


def collect_evidence(run: JudgedRun) -> Evidence:
    """List the evidence: documents, then launches in the order of the plan with the bad ones first."""
    files = run.manifest_files
    by_folder: dict[str, list[File]] = {}
    for name, entry in files.items():
        folder = "/".join(name.split("/")[:2]) if name.startswith("raw/") else ""
        by_folder.setdefault(folder, []).append(_file(name, entry))
    records = {file.name: file for file in by_folder.get("", []) if file.name.startswith("records/")}
    launches = sorted(run.launches, key=ended_well)
    shown = launches[: max(MOST_LAUNCHES, 0)]
    return Evidence(
        manifest_sha256=run.run.manifest_sha256(),
        manifest_href="../evidence/manifest.json",
        files=len(files),
        size_bytes=sum(entry["size_bytes"] for entry in files.values()),
        documents=tuple(file for file in by_folder.get("", []) if "/" not in file.name),
        launches=tuple(_launch(run, item, by_folder, records) for item in shown),
        left_out=len(launches) - len(shown),
    )


def _file(name: str, entry: Mapping[str, Any]) -> File:
    return File(name=name, href=quote(f"../evidence/{name}"), size_bytes=entry["size_bytes"], sha256=entry["sha256"])


def ended_well(launch: Row) -> bool:
    """Say whether a launch ended by itself with exit code 0 and output that is complete."""
    statements = launch.get("completeness") or []
    complete = bool(statements) and all(item.get("status") == "complete" for item in statements)
    return launch["outcome"] == Outcome.EXITED and launch["exit_code"] == 0 and complete


def _launch(run: JudgedRun, item: Row, by_folder: Mapping[str, Sequence[File]], records: Mapping[str, File]) -> Launch:
    folder = item["raw_dir"] or ""
    record = records.get(f"records/{folder.rpartition('/')[2]}.json")
    files = ([record] if record else []) + list(by_folder.get(folder, ()))
    well = ended_well(item)
    return Launch(
        launch_id=item["launch_id"],
        nodes=node_list(item["nodes"], 6),
        well=well,
        how=_how(item),
        duration=duration(item["duration_s"]),
        attempts=item["attempts"],
        command=shortened(" ".join(item["argv"]), 600),
        files=tuple(files[:MOST_FILES]),
        more_files=max(0, len(files) - MOST_FILES),
        tail="" if well or not folder else _tail(run, folder),
    )


def _how(item: Row) -> str:
    if item["outcome"] is None:
        return "no record"
    words = str(item["outcome"]) if item["exit_code"] is None else f"exit code {item['exit_code']}"
    statuses = sorted({str(c.get("status")) for c in item.get("completeness") or ()} - {"complete"})
    reason = f": {shortened(item['reason'], 200)}" if item["reason"] and item["reason"] != words else ""
    return f"{words}{reason}" + (f"; output {', '.join(statuses)}" if statuses else "")


def _tail(run: JudgedRun, folder: str) -> str:
    """Give the last lines of stderr: what a person would look at first."""
    path = run.run.evidence / folder / "stderr"
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(shortened(line, 200) for line in lines[-8:] if line.strip())
