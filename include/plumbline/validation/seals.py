"""Whether evidence still bears its first seal. A manifest can be deleted, and what was changed meanwhile sealed anew.

results/<cluster>/seals.jsonl lists every seal when it is made: run, digest of the manifest, time. Beside it, people's
decisions bear the digest that they were made on, and the seal bears its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from plumbline.execution.environment import utc_now
from plumbline.tracking.json_lines import append_line, lines_of
from plumbline.tracking.run_directory import DECISIONS, RunDirectory

SEALS = "seals.jsonl"
LATEST_SEAL = timedelta(hours=24)
"""How long evidence may lie open after its last launch. Assumption: a day for an orchestrator that was down."""


def note_seal(run: RunDirectory) -> None:
    """Add the run's seal to its cluster's list, once however often this is called. Raises OSError."""
    digest = run.manifest_sha256()
    if any(item is not None and item.get("manifest_sha256") == digest for _, item in _entries(run)):
        return
    line = {"run_id": run.run_id, "suite": run.path.parent.name, "manifest_sha256": digest, "noted_at": utc_now()}
    append_line(_list_of(run), line)


def seal_problems(run: RunDirectory, ended_at: Iterable[str] = ()) -> Iterator[str]:
    """Say what speaks against a run's seal being its first. `ended_at` are the ends of its launches, as recorded."""
    if not run.sealed:
        return
    digest = run.manifest_sha256()
    listed = list(_entries(run))
    if damaged := next((number for number, item in listed if item is None or "manifest_sha256" not in item), None):
        yield f"the list of seals ({SEALS}) is damaged where it names this run, in line {damaged}"
    elif (first := next((item for _, item in listed if item), None)) and first["manifest_sha256"] != digest:
        yield f"it was sealed at {first.get('noted_at')} and has another seal now: it was opened since"
    decided = [item for _, _, item in lines_of(run.path / DECISIONS) if item and "manifest_sha256" in item]
    if other := next((item for item in decided if item["manifest_sha256"] != digest), None):
        yield f"{other.get('by')} decided on it under another seal at {other.get('decided_at')}"
    ends = [moment for text in ended_at if (moment := _moment(text)) is not None]
    sealed = run.sealed_at()
    if sealed is not None and sealed.tzinfo is None:
        yield f"its seal's time {sealed.isoformat()} is of no time zone"
    elif sealed is not None and ends and sealed - max(ends) > LATEST_SEAL:
        open_h = (sealed - max(ends)) / timedelta(hours=1)
        yield f"it lay open for {open_h:.0f} hours between its last launch and its seal"


def _list_of(run: RunDirectory) -> Path:
    return run.path.parents[1] / SEALS


def _entries(run: RunDirectory) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Give number and object of the lines of the list of seals that name the run; None for a damaged one of them."""
    for number, line, item in lines_of(_list_of(run)):
        if run.run_id in line:
            yield number, item


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
