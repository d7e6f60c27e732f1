"""`nvidia-smi --query-gpu=… --format=csv[,noheader][,nounits]`: one line a GPU, one column a field.

The header names the columns and their units; without one, the expectation `fields` does. A line with another number
of cells than the header is no row. Repeated polls (-l) become param `poll`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._expectations import expected_count, expected_words
from plumbline.readers._gpu_state import INDICATORS as _GPU_INDICATORS
from plumbline.readers._smi_csv import Rows, Table, header
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Completeness, Item, Status
from plumbline.readers.source import Source

NAME = "nvidia_smi_csv"
TOOL = "nvidia-smi --query-gpu=… --format=csv (also --query-compute-apps)"
INDICATORS: Mapping[str, tuple[str, str]] = {
    **_GPU_INDICATORS,
    "process_memory": ("MiB", "GPU memory that one process holds (params pid, process)"),
}
FACTS: Mapping[str, str] = {
    "rows": "lines that hold as many cells as the header",
    "columns": "columns of the header",
    "cells_per_row": "the different numbers of cells that rows and damaged rows have",
    "fields": "the header as printed",
    "gpus": "different GPUs",
    "polls": "how often the GPUs were asked",
    "driver_version": "driver version (a list where rows differ)",
    "name": "product name (a list where rows differ)",
    "ecc.mode.current": "ECC now, as printed (a list where rows differ)",
    "mig.mode.current": "MIG now, as printed (a list where rows differ)",
    "devices": "for each GPU its first row's cells that are no readings, by field as printed",
    "faults": "cells where the driver reports a fault in place of a value, or that nobody can read",
    "complaint": "what the tool says when it can't answer",
}
EXPECTATIONS: Mapping[str, str] = {
    "fields": "the query's fields, comma-separated: needed for noheader",
    "gpus": "number of GPUs that must be in every poll",
    "polls": "number of polls that must be there",
}


def sniff(head: str) -> float:
    """Look for a header of query fields with the columns of a row below it."""
    best = 0.0
    lines = [strip_prefix(line) for line in head.splitlines()[:400]]
    for line, following in zip(lines, [*lines, ""][1:], strict=True):
        if (names := header(line)) is not None and len(names[0]) > 1:
            best = max(best, 0.85 if len(following.split(",")) == len(names[0]) else 0.5)
            if head.lstrip("\ufeff \r\n").startswith(line.strip()[:40]):
                return 0.98
    return best


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give per-GPU readings. Params: gpu (UUID, index or bus id), index, bus_id, timestamp, poll (when several)."""
    wanted = expected_words(expect, "fields")
    rows = Rows(wanted)
    first = ""
    for lines in source.line_blocks():
        for line in lines:
            if due := rows.line(line, ended=source.ends_whole):
                yield from due
        first = first or next((line.strip()[:80] for line in lines if line.strip()), "")
    yield from rows.end()
    if rows.said is None and (not rows.tables or (rows.assumed and not rows.tables[0].rows)):
        hint = "" if wanted else "; for noheader say what was queried: --expect fields=index,name,…"
        raise OutputError(f"no header of query fields and no row{hint}", source=source.name, excerpt=first)
    yield from rows.facts()
    yield _completeness(rows, wanted, expect)


def _completeness(rows: Rows, wanted: Sequence[str], expect: Mapping[str, Scalar]) -> Completeness:
    tables = [table for table in rows.tables if not table.processes] or rows.tables
    table = max(tables, key=lambda one: one.rows) if tables else Table([], [])
    gpus, polls = table.per_poll[0], table.poll + 1 if table.rows else 0
    fewest = min(table.per_poll) if table.rows else 0
    found: dict[str, Any] = {"rows": sum(one.rows for one in tables), "gpus": max(gpus, fewest), "polls": polls}
    expected = {key: value for key, value in expect.items() if key in EXPECTATIONS}
    missing = [name for name in wanted if name.lower() not in {n.lower() for n in table.names}]

    want_gpus, want_polls = expected_count(expect, "gpus"), expected_count(expect, "polls")

    def say(status: Status, reason: str) -> Completeness:
        return Completeness(NAME, status, expected, found, reason)

    if rows.said is not None:
        return say(Status.FAILED, rows.said)
    if any("reset" in text or "is lost" in text for text in rows.faults):
        return say(Status.FAILED, rows.faults[0])
    problems = (
        (rows.fault_count, f"{rows.fault_count} cells without a readable value: {(rows.faults or [''])[0]}"),
        (rows.malformed, f"{rows.malformed} lines with another number of cells than the header ({len(table.names)})"),
        (not table.rows, "a header and no row"),
        (rows.doubtful_end, "the last line has no line end: its last cell may be cut"),
        (missing, f"fields missing: {', '.join(missing)}"),
        (want_gpus not in (None, fewest), f"{fewest} GPUs in a poll, {want_gpus} expected"),
        (want_polls not in (None, polls), f"{polls} polls, {want_polls} expected"),
    )  # fmt: skip
    for wrong, reason in problems:
        if wrong:
            return say(Status.INCOMPLETE, reason)
    if want_gpus is None or (polls > 1 and want_polls is None):
        return say(Status.UNKNOWN, "the format has no end mark; expect gpus (and polls) to settle it")
    return say(Status.COMPLETE, "")
