"""p2pBandwidthLatencyTest of the CUDA samples: matrices of bandwidth and latency between GPUs.

The diagonal is a copy inside one GPU's own memory, so it has indicators of its own. Source: NVIDIA/cuda-samples,
p2pBandwidthLatencyTest.cu of 2018 to 2025.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._expectations import expected_count
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status, readings_of
from plumbline.readers.source import Source

NAME = "p2p_bandwidth"
TOOL = "p2pBandwidthLatencyTest (CUDA samples)"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "unidirectional_bandwidth": ("GB/s", "copy from one GPU to another, one direction at a time"),
    "bidirectional_bandwidth": ("GB/s", "copies between two GPUs in both directions at once, added"),
    "gpu_latency": ("us", "time of a small copy, measured on the GPU"),
    "cpu_latency": ("us", "time of a small copy, measured on the CPU"),
    "local_bandwidth": ("GB/s", "copy inside one GPU's memory: the diagonal of the matrices"),
    "local_latency": ("us", "time of a small copy inside one GPU: the diagonal of the matrices"),
}
_TITLES = (
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)",
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
    "Unidirectional P2P=Enabled Bandwidth (P2P Reads) Matrix (GB/s)",
    "Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)",
    "P2P=Disabled Latency Matrix (us)",
    "P2P=Enabled Latency Matrix (us)",
    "P2P=Enabled Latency (P2P Writes) Matrix (us)",
    "P2P=Enabled Latency (P2P Reads) Matrix (us)",
)
FACTS: Mapping[str, str] = {
    **dict.fromkeys(_TITLES, "n GPUs, and the smallest and largest value beside the diagonal"),
    **{f"{title} CPU": "the same as measured on the CPU" for title in _TITLES if "Latency" in title},
    "devices": "GPU models in order",
    "bus_ids": "PCI bus ids in order, hexadecimal",
    "no_access": "pairs of GPUs that cannot reach each other directly",
    "matrices": "how many matrices are whole",
    "errors": "lines that report a failure",
}
EXPECTATIONS: Mapping[str, str] = {"devices": "GPUs that every matrix must have"}

_TITLE = re.compile(
    r"(?:(Unidirectional|Bidirectional) )?P2P=(Enabled|Disabled) (Bandwidth|Latency)(?: \(P2P (Writes|Reads)\))? "
    r"Matrix \((GB/s|us)\)"
)
_DEVICE = re.compile(r"Device: (\d{1,4}), (.{1,120}?), pciBusID: ([0-9a-f]{1,4}),")
_NO_ACCESS = re.compile(r"Device=(\d{1,4}) CANNOT Access Peer Device=(\d{1,4})")
_HEADER = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d{1,4})+)\s*")
_ROW = re.compile(r"\s*(\d{1,4})((?:\s+\d{1,9}\.\d\d)+)\s*", re.ASCII)
_REQUIRED = (
    ("Unidirectional", "Disabled"), ("Unidirectional", "Enabled"), ("Bidirectional", "Disabled"),
    ("Bidirectional", "Enabled"), ("gpu", "Disabled"), ("gpu", "Enabled"),
)  # fmt: skip
_MOST_DEVICES = 1024
_LONGEST_LINE = 20 * _MOST_DEVICES
_MOST_SHAPES = 4096
_ANY_DIGIT = str.maketrans("123456789", "000000000")


@dataclass(slots=True)
class _Matrix:
    title: str
    kind: str
    """Unidirectional or Bidirectional; gpu or cpu for latencies."""
    enabled: bool
    mode: str | None
    size: int
    rows: list[list[float]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return len(self.rows) == self.size

    def readings(self) -> list[Reading]:
        bandwidth = self.kind in ("Unidirectional", "Bidirectional")
        name = f"{self.kind.lower()}_{'bandwidth' if bandwidth else 'latency'}"
        local = "local_bandwidth" if bandwidth else "local_latency"
        unit, enabled, size = "GB/s" if bandwidth else "us", self.enabled, self.size
        more: dict[str, Scalar] = {"mode": self.mode} if self.mode else {}
        places = [
            {"source": source, "target": target, "p2p": enabled, **more}
            if source != target
            else {"gpu": source, "matrix": self.kind.lower(), "p2p": enabled, **more}
            for source in range(size)
            for target in range(size)
        ]
        names = [name] * (size * size)
        names[:: size + 1] = [local] * size
        return readings_of(names, chain.from_iterable(self.rows), repeat(unit), places)

    def summary(self) -> dict[str, Any]:
        values = [value for i, row in enumerate(self.rows) for j, value in enumerate(row) if i != j]
        found: dict[str, Any] = {"n": self.size}
        return found | ({"offdiag_min": min(values), "offdiag_max": max(values)} if values else {})


class _Scan:
    """The matrices of a file as they come."""

    def __init__(self) -> None:
        self.matrices: list[_Matrix] = []
        self.devices: dict[int, tuple[str, str]] = {}
        self.no_access: list[list[int]] = []
        self.errors: list[str] = []
        self.torn: str | None = None
        self.titles = 0
        self._title: re.Match[str] | None = None
        self._open: _Matrix | None = None
        self._shapes: set[str] = set()

    def feed(self, line: str, whole: bool) -> None:
        matrix = self._open
        if matrix is not None:
            # A line of numbers alone has nothing before it that a launcher put there.
            if whole and self._is_row(line):
                self._take_cells(matrix, line)
                return
            if self._row(matrix, strip_prefix(line), whole):
                return
        if whole and (
            "P2P" in line or "Device" in line or "\\D" in line or "PU" in line or "rror" in line or "ail" in line
        ):
            self._line(strip_prefix(line))

    def _row(self, matrix: _Matrix, text: str, whole: bool) -> bool:
        """Take a row of the open matrix. False when the line is none."""
        if not text.strip():
            return True
        if not whole or not self._is_row(text):
            if text.lstrip()[:1].isdigit() or not whole:
                self.torn = self.torn or text.strip()[:160]
                self._open = None
                return True
            if not matrix.is_whole:
                self.torn = self.torn or f"{matrix.title} has {len(matrix.rows)} of {matrix.size} rows"
            self._open = None
            return False
        self._take_cells(matrix, text)
        return True

    def _is_row(self, text: str) -> bool:
        """Say whether a line is a row of numbers. That depends on where its digits stand, not on which they are."""
        shape = text.translate(_ANY_DIGIT)
        if shape in self._shapes:
            return True
        is_row = len(text) < _LONGEST_LINE and _ROW.fullmatch(text) is not None
        if is_row and len(self._shapes) < _MOST_SHAPES:
            self._shapes.add(shape)
        return is_row

    def _take_cells(self, matrix: _Matrix, text: str) -> None:
        label, *texts = text.split()
        cells = list(map(float, texts))
        if int(label) != len(matrix.rows) or len(cells) != matrix.size or matrix.is_whole:
            self.torn = self.torn or text.strip()[:160]
            self._open = None
        else:
            matrix.rows.append(cells)

    def _line(self, text: str) -> None:
        if "P2P=" in text and (match := _TITLE.fullmatch(text.strip())):
            self._title, self.titles = match, self.titles + 1
        elif self._title is not None and (match := _HEADER.fullmatch(text[:_LONGEST_LINE])):
            self._header(self._title, match)
        elif match := _DEVICE.match(text.strip()):
            if len(self.devices) < _MOST_DEVICES:
                self.devices[int(match[1])] = (match[2], match[3])
        elif match := _NO_ACCESS.match(text.strip()):
            if len(self.no_access) < _MOST_DEVICES * _MOST_DEVICES:
                self.no_access.append([int(match[1]), int(match[2])])
        elif "Connectivity Matrix" in text:
            self._title = None
        elif ("Cuda failure" in text or "CUDA error" in text) and len(self.errors) < 10:
            self.errors.append(text.strip()[:300])

    def _header(self, title: re.Match[str], header: re.Match[str]) -> None:
        columns = [int(number) for number in header[2].split()]
        latency = title[3] == "Latency"
        kind = title[1] if not latency else "cpu" if header[1] == "CPU" else "gpu"
        if columns != list(range(len(columns))) or len(columns) > _MOST_DEVICES or kind is None:
            self.torn = self.torn or header.group().strip()[:160]
            return
        mode = title[4].lower() if title[4] else None
        matrix = _Matrix(title[0], kind, title[2] == "Enabled", mode, len(columns))
        self.matrices.append(matrix)
        self._open = matrix

    def finish(self) -> None:
        if self._open is not None and not self._open.is_whole:
            self.torn = self.torn or f"{self._open.title} has {len(self._open.rows)} of {self._open.size} rows"


def sniff(head: str) -> float:
    """Say how sure the text looks like p2pBandwidthLatencyTest."""
    if "P2P=Disabled Bandwidth Matrix" in head or "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]" in head:
        return 0.95
    return 0.7 if "P2P Connectivity Matrix" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give readings matrix by matrix, then facts. Raises OutputError when there is neither banner nor matrix."""
    wanted = expected_count(expect, "devices")
    scan = _Scan()
    first = ""
    for lines in source.line_blocks():
        for line in lines:
            scan.feed(line, source.ends_whole)
        first = first or next((line[:200] for line in lines if line), "")
    scan.finish()
    if not scan.titles and not scan.devices:
        raise OutputError("no banner or matrix of p2pBandwidthLatencyTest", source=source.name, excerpt=first)
    whole = [matrix for matrix in scan.matrices if matrix.is_whole]
    for matrix in whole:
        yield from matrix.readings()
    for name, value in _facts(scan, whole).items():
        yield Fact(name, value)
    yield _completeness(scan, whole, wanted)


def _facts(scan: _Scan, whole: list[_Matrix]) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        f"{matrix.title} CPU" if matrix.kind == "cpu" else matrix.title: matrix.summary() for matrix in whole
    }
    names = [scan.devices[number] for number in sorted(scan.devices)]
    found |= {
        "devices": [name for name, _ in names] or None,
        "bus_ids": [bus for _, bus in names] or None,
        "no_access": scan.no_access or None,
        "errors": scan.errors or None,
        "matrices": len(whole),
    }
    return {name: value for name, value in found.items() if value is not None}


def _completeness(scan: _Scan, whole: list[_Matrix], wanted: int | None) -> Completeness:
    seen = {(matrix.kind, "Enabled" if matrix.enabled else "Disabled") for matrix in whole}
    problems = [f"no whole matrix of {kind} with P2P {state}" for kind, state in _REQUIRED if (kind, state) not in seen]
    halves = [state for kind, state in seen if kind == "cpu"]
    if len(halves) == 1:
        problems.append("the CPU half of a latency matrix is missing")
    if scan.torn:
        problems.insert(0, f"a matrix is damaged or cut: {scan.torn}")
    told = [(matrix.title, matrix.kind) for matrix in whole]
    if len(told) != len(set(told)):
        problems.append("matrices are there twice: several runs in one output")
    sizes = {matrix.size for matrix in whole} | ({len(scan.devices)} if scan.devices else set())
    if len(sizes) > 1:
        problems.append(f"matrices and devices do not agree on the number of GPUs: {sorted(sizes)}")
    elif wanted is not None and sizes != {wanted}:
        problems.append(f"{max(sizes, default=0)} GPUs, expected {wanted}")
    status = Status.COMPLETE if not problems else Status.INCOMPLETE if scan.titles else Status.NOT_STARTED
    return Completeness(
        reader=NAME,
        status=Status.FAILED if scan.errors else status,
        expected={} if wanted is None else {"devices": wanted},
        found={"matrices": len(whole), "devices": len(scan.devices)},
        reason="; ".join([*scan.errors, *problems]),
    )
