"""What nvidia-smi prints for people: -L, topo -m, topo -p2p, nvlink -s, dmon, the boxed table, and captures of several.

A capture is cut into sections at lines that name a command (`# $ nvidia-smi topo -m`, a shell prompt, `set -x`);
readings then carry the param `section`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._expectations import expected_count
from plumbline.readers._gpu_state import INDICATORS as _GPU_INDICATORS
from plumbline.readers._gpu_state import complaint
from plumbline.readers._smi_csv import Rows, header
from plumbline.readers._smi_monitor import LINK_INDICATORS, Listing, Monitor, monitor_header
from plumbline.readers._smi_table import BoxedTable
from plumbline.readers._smi_topology import Matrix, matrix_facts, matrix_header, nvlinks
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source, strip_ansi

NAME = "nvidia_smi_text"
TOOL = "nvidia-smi -L, topo -m, topo -p2p, nvlink -s, dmon, the plain table, captures of several commands"
INDICATORS: Mapping[str, tuple[str, str]] = {
    **_GPU_INDICATORS,
    **LINK_INDICATORS,
    "process_memory": ("MiB", "GPU memory that one process holds (params pid, process)"),
}
FACTS: Mapping[str, str] = {
    "commands": "commands that the capture names, each cut to 90 characters",
    "sections": "number of those commands",
    "crlf": "lines that end with CRLF",
    "parts": "outputs that were recognised, in order",
    "gpus": "number of GPUs",
    "gpu_list": "GPUs as listed: index, name, UUID, bus id, MIG devices",
    "driver": "driver version",
    "cuda": "highest CUDA version of the driver",
    "processes": "rows in the table of processes",
    "link_matrix": "topo -m: how each device is linked with each other one",
    "link_counts": "topo -m: pairs of GPUs for each kind of link",
    "cpu_affinity": "topo -m: CPUs near each GPU",
    "numa_affinity": "topo -m: NUMA node near each GPU",
    "nics": "topo -m: name of each NIC",
    "p2p_matrix": "topo -p2p: status of each pair",
    "p2p_ok_pairs": "topo -p2p: pairs of GPUs that are OK both ways",
    "not_supported_pairs": "topo -p2p: number of pairs of GPUs that can't, either way",
    "nvlink_inactive": "nvlink -s: links that are down",
    "faults": "places where the driver reports a fault in place of a value",
    "complaint": "what the tool says when it can't answer",
}
EXPECTATIONS: Mapping[str, str] = {
    "gpus": "number of GPUs that every output must have",
    "sections": "number of commands that the capture must hold",
}

_COMMANDS = (
    re.compile(r"# \$ (?P<command>.+)"),
    re.compile(r"\$ (?P<command>\S.*)"),
    re.compile(
        r"(?:\([\w.-]{1,40}\) ?)?\[?[\w.-]{1,40}@[\w.-]{1,80}[: ][^\n#$]{0,200}[#$] ?"
        r"(?P<command>[^\n#$]{0,200}nvidia-smi.*)"
    ),
    re.compile(r"\+{1,3} (?P<command>(?:\S{1,200}/)?nvidia-smi\b.*)"),
    re.compile(r"(?:#{1,4}|={2,10}|-{2,10}|>{1,3}) ?`?(?P<command>nvidia-smi\b[^=\n`]*?)`?(?: ?[=-]{2,10})?:?"),
)
_NIC = re.compile(r"\s{1,8}(NIC\d{1,3}): (\S{1,60})\s*")
_HINT = re.compile(r"NIC\d|, ?\w+[._]\w+")
_GPU_LINE = re.compile(r"GPU \d{1,3}: .{1,80} \(UUID: GPU-")
_SHOWN = 90
_MOST = 1000
_ROWS_AT_ONCE = 64


@dataclass(slots=True)
class _Capture:
    """The state of reading: which output the lines are in, and all outputs so far."""

    commands: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    matrices: list[Matrix] = field(default_factory=list)
    tables: list[BoxedTable] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    monitors: list[Monitor] = field(default_factory=list)
    csvs: list[Rows] = field(default_factory=list)
    current: Matrix | BoxedTable | Listing | Monitor | Rows | None = None
    nics: dict[str, str] = field(default_factory=dict)
    said: str | None = None
    """What the tool says that it can't do, the first time."""

    section: Mapping[str, Scalar] = field(default_factory=dict)
    """In which section of the capture the next reading stands, as a param; {} before any command."""


def sniff(head: str) -> float:
    """Look for the table's banner, a matrix, a listing, or a command of a capture."""
    if "<nvidia_smi_log" in head:
        return 0.0
    score = 0.0
    for line in strip_ansi(head).splitlines()[:600]:
        text = strip_prefix(line)
        if text.startswith("| NVIDIA-SMI ") or matrix_header(text) is not None:
            score = max(score, 0.95)
        elif _GPU_LINE.match(text) or monitor_header(text) is not None or _command(text) is not None:
            score = max(score, 0.9)
    return score


def _may_begin(line: str) -> bool:
    """Say whether a line may begin an output; one chain of tests, for it runs on every line of long logs."""
    return (
        "GPU" in line or "gpu" in line or "NVIDIA-SMI" in line or "NVML" in line or "No devices" in line
        or "handle" in line or "uuid" in line or "index" in line
        or (("," in line or "NIC" in line) and _HINT.search(line) is not None)
    )  # fmt: skip


def _command(line: str) -> str | None:
    """Give the command that a line of a capture names, or None."""
    if "nvidia-smi" not in line and not line.startswith("# $ "):
        return None
    for pattern in _COMMANDS:
        if match := pattern.fullmatch(line):
            return match["command"]
    return None


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give readings of tables, monitors and links. Params: gpu (index), bus_id, mig, link, peer, poll, section."""
    capture = _Capture()
    first = ""
    for lines in source.line_blocks():
        ended = source.ends_whole
        at = 0
        while at < len(lines):
            current, line = capture.current, lines[at]
            if type(current) is Monitor and ended:
                taken, due = current.rows(lines[at : at + _ROWS_AT_ONCE], capture.section)
                yield from due
                at += taken
                if taken:
                    continue
            at += 1
            if current is not None or _may_begin(line) or _command(line) is not None:
                yield from _line(capture, line, ended=ended)
        first = first or next((line.strip()[:80] for line in lines if line.strip()), "")
    yield from _close(capture)
    if not capture.parts and not capture.commands and capture.said is None:
        raise OutputError("nothing that nvidia-smi prints for people", source=source.name, excerpt=first)
    yield from _facts(capture, source.crlf_ends)
    yield _completeness(capture, expect, ended=source.ends_whole)


def _line(capture: _Capture, raw: str, *, ended: bool) -> Iterator[Reading]:
    if (command := _command(raw)) is not None:
        yield from _close(capture)
        if len(capture.commands) < _MOST:
            capture.commands.append(command[:_SHOWN])
            capture.section = {"section": len(capture.commands) - 1}
        return
    if capture.current is None and not _may_begin(raw):
        return
    line = raw if isinstance(capture.current, (Rows, Monitor)) else strip_prefix(raw)
    if capture.said is None and ("NVIDIA-SMI" in line or "NVML" in line or "No devices" in line or "handle" in line):
        capture.said = complaint(line)
    if (begun := _begin(capture, line, ended)) is not None:
        yield from _close(capture)
        capture.current = begun
        if isinstance(begun, Matrix):
            return
    elif match := _NIC.fullmatch(line):
        if ended:
            capture.nics[match[1]] = match[2]
        return
    yield from _place(capture, _feed(capture, line, ended=ended))


def _begin(capture: _Capture, line: str, ended: bool) -> Matrix | BoxedTable | Listing | Monitor | Rows | None:
    """Say whether a line begins another output, and keep that output."""
    current = capture.current
    begun: Matrix | BoxedTable | Listing | Monitor | Rows | None = None
    if line.startswith("| NVIDIA-SMI "):
        begun = BoxedTable()
        capture.tables.append(begun)
    elif ended and (matrix := matrix_header(line)) is not None:
        begun = matrix
        capture.matrices.append(matrix)
    elif line.startswith("GPU ") and not isinstance(current, Listing) and "(UUID:" in line:
        begun = Listing()
        capture.listings.append(begun)
    elif line.startswith("#") and not isinstance(current, Monitor) and (monitor := monitor_header(line)) is not None:
        begun = monitor
        capture.monitors.append(monitor)
    elif ended and "," in line and not isinstance(current, Rows) and header(line) is not None:
        begun = Rows()
        capture.csvs.append(begun)
    if begun is not None and len(capture.parts) < _MOST:
        names = {BoxedTable: "table", Matrix: "topology", Listing: "list", Monitor: "dmon", Rows: "csv"}
        capture.parts.append(names[type(begun)])
    return begun


def _feed(capture: _Capture, line: str, *, ended: bool) -> Iterator[Reading]:
    """Hand a line to the output that it belongs to."""
    current = capture.current
    if isinstance(current, Matrix):
        current.take(line, ended=ended)
    elif isinstance(current, BoxedTable):
        yield from current.take(line, ended=ended)
    elif isinstance(current, Rows):
        if line.strip():
            yield from current.line(line, ended=ended)
        else:
            yield from current.end()
            capture.current = None
    elif current is not None:
        readings = current.take(line, ended=ended)
        yield from readings or ()


def _close(capture: _Capture) -> Iterator[Reading]:
    """End the output that is under way."""
    current, capture.current = capture.current, None
    if isinstance(current, Rows):
        yield from _place(capture, current.end())
    elif isinstance(current, Matrix) and not current.is_p2p:
        links = (
            Reading("nvlinks", float(count), "count", {"gpu": gpu, "peer": peer})
            for gpu, peer, count in nvlinks(current)
        )
        yield from _place(capture, links)


def _place(capture: _Capture, readings: Iterable[Reading]) -> Iterator[Reading]:
    """Say of readings in which section of a capture they stand."""
    section = capture.section
    for item in readings:
        yield Reading(item.indicator, item.value, item.unit, {**item.params, **section}) if section else item


def _facts(capture: _Capture, crlf: int) -> Iterator[Fact]:
    yield Fact("commands", capture.commands)
    yield Fact("sections", len(capture.commands))
    yield Fact("crlf", crlf)
    yield Fact("parts", ["p2p" if part == "topology" and p2p else part for part, p2p in _parts(capture)])
    if counts := _gpu_counts(capture):
        yield Fact("gpus", max(counts.values()))
    if gpus := _gpu_list(capture):
        yield Fact("gpu_list", gpus)
    yield from _table_facts(capture.tables)
    for matrix in {matrix.is_p2p: matrix for matrix in capture.matrices}.values():
        yield from matrix_facts(matrix)
    if capture.nics:
        yield Fact("nics", capture.nics)
    if inactive := [text for listing in capture.listings for text in listing.inactive]:
        yield Fact("nvlink_inactive", inactive)
    if faults := _faults(capture):
        yield Fact("faults", faults[:100])
    if capture.said is not None:
        yield Fact("complaint", capture.said)


def _table_facts(tables: list[BoxedTable]) -> Iterator[Fact]:
    for name in ("driver", "cuda"):
        values = [getattr(table, name) for table in tables if getattr(table, name)]
        if values:
            yield Fact(name, values[0])
    if tables:
        yield Fact("processes", max(table.processes for table in tables))


def _parts(capture: _Capture) -> Iterator[tuple[str, bool]]:
    matrices = iter(capture.matrices)
    for part in capture.parts:
        yield part, part == "topology" and (matrix := next(matrices, None)) is not None and matrix.is_p2p


def _gpu_list(capture: _Capture) -> list[dict[str, Any]]:
    """Give the GPUs by index, with what listings and tables say of them."""
    found: dict[int, dict[str, Any]] = {}
    for table in capture.tables:
        for gpu in table.gpus:
            found.setdefault(gpu["index"], {}).update(gpu)
    for listing in capture.listings:
        for index, gpu in listing.gpus.items():
            found.setdefault(index, {}).update(gpu)
    return [found[index] for index in sorted(found)]


def _gpu_counts(capture: _Capture) -> dict[str, int]:
    """Give the number of GPUs that each kind of output has; the smallest where there are several of a kind."""
    counts: dict[str, int] = {}
    pairs = [
        *(("topology", len(matrix.gpus)) for matrix in capture.matrices),
        *(("table", len(table.gpus)) for table in capture.tables),
        *(("list", len(listing.gpus)) for listing in capture.listings),
        *(("dmon", len(monitor.gpus)) for monitor in capture.monitors),
    ]
    for kind, count in pairs:
        counts[kind] = min(counts.get(kind, count), count)
    return counts


def _faults(capture: _Capture) -> list[str]:
    return [text for table in capture.tables for text in table.faults] + [
        text for rows in capture.csvs for text in rows.faults
    ]


def _completeness(capture: _Capture, expect: Mapping[str, Scalar], *, ended: bool) -> Completeness:
    expected = {key: value for key, value in expect.items() if key in EXPECTATIONS}
    found: dict[str, Any] = {"parts": len(capture.parts), "sections": len(capture.commands), **_gpu_counts(capture)}
    gpus, sections = expected_count(expect, "gpus"), expected_count(expect, "sections")
    if capture.said is not None:
        return Completeness(NAME, Status.FAILED, expected, found, capture.said)
    faults = _faults(capture)
    if any("reset" in text or "is lost" in text for text in faults):
        return Completeness(NAME, Status.FAILED, expected, found, faults[0])
    if problem := next(_problems(capture, gpus, sections), None):
        return Completeness(NAME, Status.INCOMPLETE, expected, found, problem)
    alone = len(capture.parts) == 1 and len(capture.commands) <= 1 and bool(capture.matrices or capture.tables)
    settled = gpus is not None and capture.parts and (len(capture.commands) <= 1 or sections is not None)
    if (alone or (settled and ended)) and not capture.monitors:
        return Completeness(NAME, Status.COMPLETE, expected, found, "")
    reason = "the output has no end mark; expect gpus (and sections of a capture) to settle it"
    return Completeness(NAME, Status.UNKNOWN, expected, found, reason)


def _problems(capture: _Capture, gpus: int | None, sections: int | None) -> Iterator[str]:
    """Name what is damaged or missing."""
    for text in _faults(capture):
        yield f"fault in place of a value: {text}"
    yield from _damages(capture)
    counts = _gpu_counts(capture)
    if len(set(counts.values())) > 1:
        yield f"outputs differ in the number of GPUs: {', '.join(f'{kind} {n}' for kind, n in counts.items())}"
    for kind, count in counts.items():
        if gpus is not None and count != gpus:
            yield f"{kind} has {count} GPUs, {gpus} expected"
    if gpus is not None and not counts:
        yield f"no output names GPUs, {gpus} expected"
    if sections is not None and sections != len(capture.commands):
        yield f"{len(capture.commands)} sections, {sections} expected"


def _damages(capture: _Capture) -> Iterator[str]:
    """Name outputs that stop early or hold lines that are no rows."""
    for matrix in capture.matrices:
        if not matrix.whole:
            missing = ", ".join(matrix.missing or matrix.damaged)
            yield f"matrix of {len(matrix.devices)} devices without a whole row for {missing}"
    for table in capture.tables:
        if not table.whole:
            yield f"table that stops or is damaged: {', '.join(table.damaged) or f'after {len(table.gpus)} GPUs'}"
        elif not table.gpus:
            yield "table without a GPU"
    damaged = [text for listing in capture.listings for text in listing.damaged]
    damaged += [f"{monitor.damaged} rows of dmon" for monitor in capture.monitors if monitor.damaged]
    damaged += [f"{rows.malformed} rows of csv" for rows in capture.csvs if rows.malformed]
    damaged += ["the last cell of csv, which has no line end" for rows in capture.csvs if rows.doubtful_end]
    if damaged:
        yield f"cut or damaged: {damaged[0]}"
