"""p2pBandwidthLatencyTest of the CUDA samples: matrices of bandwidth and latency between GPUs.

The diagonal is a copy inside one GPU's own memory, so it has indicators of its own. Source: NVIDIA/cuda-samples,
p2pBandwidthLatencyTest.cu of 2018 to 2025.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Params, Scalar
from plumbline.readers._expectations import expected_count
from plumbline.readers._row_shapes import RowShapes
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

_BANNER = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"
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
_RUN = "a run"
_MOST_DEVICES = 1024
_LONGEST_LINE = 20 * _MOST_DEVICES
_MOST_KEPT = 64
"""The layouts of larger matrices are made each time, for the memory that they take."""


@dataclass(slots=True)
class _Matrix:
    title: str
    kind: str
    """Unidirectional or Bidirectional; gpu or cpu for latencies."""
    enabled: bool
    mode: str | None
    size: int
    cells: list[float] = field(default_factory=list)
    """Row behind row."""

    @property
    def height(self) -> int:
        return len(self.cells) // self.size

    @property
    def is_whole(self) -> bool:
        return self.height == self.size

    def summary(self) -> dict[str, Any]:
        others = self.cells.copy()
        del others[:: self.size + 1]
        found: dict[str, Any] = {"n": self.size}
        return found | ({"offdiag_min": min(others), "offdiag_max": max(others)} if others else {})


_Layout = tuple[list[str], str, list[Params]]
"""Of a matrix: the indicator of each cell, the unit of all, the params of each."""


def _layout(kind: str, enabled: bool, mode: str | None, size: int) -> _Layout:
    bandwidth = kind in ("Unidirectional", "Bidirectional")
    more: dict[str, Scalar] = {"mode": mode} if mode else {}
    places: list[Params] = [
        {"source": source, "target": target, "p2p": enabled, **more}
        if source != target
        else {"gpu": source, "matrix": kind.lower(), "p2p": enabled, **more}
        for source in range(size)
        for target in range(size)
    ]
    names = [f"{kind.lower()}_{'bandwidth' if bandwidth else 'latency'}"] * (size * size)
    names[:: size + 1] = ["local_bandwidth" if bandwidth else "local_latency"] * size
    return names, "GB/s" if bandwidth else "us", places


class _Whole:
    """The matrices that are whole: what is kept of them, and their readings."""

    def __init__(self) -> None:
        self.told: Counter[tuple[str, str]] = Counter()
        """(title, kind) → how many."""
        self.seen: set[tuple[str, str]] = set()
        """(kind, whether P2P was enabled)"""
        self.sizes: set[int] = set()
        self._last: dict[str, _Matrix] = {}
        self._layout = lru_cache(maxsize=32)(_layout)

    def add(self, matrix: _Matrix) -> list[Reading]:
        """Keep what facts and completeness need; give the readings."""
        self.told[matrix.title, matrix.kind] += 1
        self.seen.add((matrix.kind, "Enabled" if matrix.enabled else "Disabled"))
        self.sizes.add(matrix.size)
        self._last[f"{matrix.title} CPU" if matrix.kind == "cpu" else matrix.title] = matrix
        layout = self._layout if matrix.size <= _MOST_KEPT else _layout
        names, unit, places = layout(matrix.kind, matrix.enabled, matrix.mode, matrix.size)
        return readings_of(names, matrix.cells, repeat(unit), places)

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Give each title's fact: of several matrices, the last one's."""
        return {title: matrix.summary() for title, matrix in self._last.items()}


class _Scan:
    """The matrices of a file as they come."""

    def __init__(self) -> None:
        self.whole: list[_Matrix] = []
        """Those that became whole; whoever reads them on takes them out."""
        self.devices: dict[int, tuple[str, str]] = {}
        self.no_access: list[list[int]] = []
        self.errors: list[str] = []
        self.torn: str | None = None
        self.begun = False
        """Whether the tool's first line was there."""
        self.titles = 0
        self._title: re.Match[str] | None = None
        self._open: _Matrix | None = None
        self._awaited = ""
        """What began and must be followed by a whole matrix: a run or the title of a matrix."""
        self._newest_device = -1
        """The last that the run which waits for its first matrix listed."""
        self._rows = RowShapes(_ROW, _LONGEST_LINE)

    def feed(self, lines: Sequence[str], ended: bool) -> None:
        """Take lines; `ended` says that they have their line ends."""
        passed = 0
        for at, line in enumerate(lines):
            if at < passed:
                continue
            matrix, text = self._open, None
            if matrix is not None:
                # A line of numbers alone has nothing before it that a launcher put there.
                if ended and self._rows.has(line):
                    if not matrix.cells and self._take_rows(matrix, lines[at : at + matrix.size]):
                        passed = at + matrix.size
                    else:
                        self._take_cells(matrix, line)
                    continue
                text = strip_prefix(line)
                if ended and text is not line and self._rows.has(text):
                    self._take_cells(matrix, text)
                    continue
                if self._belongs(matrix, text, ended):
                    continue
            if ended and (
                "P2P" in line or "Device" in line or "\\D" in line or "PU" in line or "rror" in line or "ail" in line
            ):
                self._line(strip_prefix(line) if text is None else text)

    def _belongs(self, matrix: _Matrix, text: str, ended: bool) -> bool:
        """Say whether a line that is no row is part of the open matrix: blank, or torn. It ends the matrix if not."""
        if not text or text.isspace():
            return True
        self._open = None
        if text.lstrip()[:1].isdigit() or not (ended or matrix.is_whole):
            self.torn = self.torn or text.strip()[:160]
            return True
        if not matrix.is_whole:
            self.torn = self.torn or f"{matrix.title} has {matrix.height} of {matrix.size} rows"
        return False

    def _take_rows(self, matrix: _Matrix, lines: Sequence[str]) -> bool:
        """Take all rows of a matrix at once. False when the lines are anything else, or fewer."""
        square = self._rows.square(lines, matrix.size)
        if square is None or square[0] != _labels(matrix.size):
            return False
        self._take(matrix, square[1])
        return True

    def _take_cells(self, matrix: _Matrix, text: str) -> None:
        label, *cells = text.split()
        if int(label) != matrix.height or len(cells) != matrix.size or matrix.is_whole:
            self.torn = self.torn or text.strip()[:160]
            self._open = None
        else:
            self._take(matrix, cells)

    def _take(self, matrix: _Matrix, cells: Sequence[str]) -> None:
        matrix.cells += map(float, cells)
        if matrix.is_whole:
            self.whole.append(matrix)
            self._awaited, self._newest_device = "", -1

    def _begin(self, title: str = "") -> None:
        """Note that a run begins, or the matrix of a title: what began before it must have its matrix."""
        if self._awaited != _RUN or not title:
            self._miss()
        self._awaited, self._newest_device = title or _RUN, -1

    def _miss(self) -> None:
        if self._awaited:
            self.torn = self.torn or f"{self._awaited} began and no matrix followed"

    def _line(self, text: str) -> None:
        if "P2P=" in text and (match := _TITLE.fullmatch(text.strip())):
            self._begin(match[0])
            self._title, self.titles = match, self.titles + 1
        elif self._title is not None and (columns := _columns(text)) is not None:
            self._header(self._title, text, *columns)
        elif "Device: " in text and (match := _DEVICE.match(text.strip())):
            self._list_device(int(match[1]), match[2], match[3])
        elif "CANNOT Access" in text and (match := _NO_ACCESS.match(text.strip())):
            if len(self.no_access) < _MOST_DEVICES * _MOST_DEVICES:
                self.no_access.append([int(match[1]), int(match[2])])
        elif "Connectivity Matrix" in text:
            self._title = None
            self._awaited = self._awaited or _RUN
        elif _BANNER in text:
            self._begin()
            self.begun = True
        elif ("Cuda failure" in text or "CUDA error" in text) and len(self.errors) < 10:
            self.errors.append(text.strip()[:300])

    def _list_device(self, number: int, name: str, bus: str) -> None:
        if not self._awaited or number <= self._newest_device:
            self._begin()  # its banner is lost
        self._newest_device = number
        if len(self.devices) < _MOST_DEVICES:
            self.devices[number] = (name, bus)

    def _header(self, title: re.Match[str], text: str, corner: str, size: int) -> None:
        latency = title[3] == "Latency"
        kind = title[1] if not latency else "cpu" if corner == "CPU" else "gpu"
        if not 0 < size <= _MOST_DEVICES or kind is None:
            self.torn = self.torn or text.strip()[:160]
            return
        mode = title[4].lower() if title[4] else None
        self._open = _Matrix(title[0], kind, title[2] == "Enabled", mode, size)

    def finish(self) -> None:
        if self._open is not None and not self._open.is_whole:
            self.torn = self.torn or f"{self._open.title} has {self._open.height} of {self._open.size} rows"
        self._miss()


@lru_cache(maxsize=64)
def _columns(text: str) -> tuple[str, int] | None:
    """Give the corner of a header and how many columns are numbered in order (0: they are not); None for another."""
    if (match := _HEADER.fullmatch(text[:_LONGEST_LINE])) is None:
        return None
    columns = match[2].split()
    return match[1], len(columns) if list(map(int, columns)) == list(range(len(columns))) else 0


@lru_cache(maxsize=64)
def _labels(size: int) -> Sequence[str]:
    return list(map(str, range(size)))


def sniff(head: str) -> float:
    """Say how sure the text looks like p2pBandwidthLatencyTest."""
    if "P2P=Disabled Bandwidth Matrix" in head or _BANNER in head:
        return 0.95
    return 0.7 if "P2P Connectivity Matrix" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give readings matrix by matrix, then facts. Raises OutputError when there is neither banner nor matrix."""
    wanted = expected_count(expect, "devices")
    scan, whole = _Scan(), _Whole()
    first = ""
    for lines in source.line_blocks():
        scan.feed(lines, source.ends_whole)
        first = first or next((line[:200] for line in lines if line), "")
        for matrix in scan.whole:
            yield from whole.add(matrix)
        scan.whole.clear()
    scan.finish()
    if not scan.begun and not scan.titles and not scan.devices:
        raise OutputError("no banner or matrix of p2pBandwidthLatencyTest", source=source.name, excerpt=first)
    for name, value in _facts(scan, whole).items():
        yield Fact(name, value)
    yield _completeness(scan, whole, wanted)


def _facts(scan: _Scan, whole: _Whole) -> Mapping[str, Any]:
    names = [scan.devices[number] for number in sorted(scan.devices)]
    found = {
        **whole.summaries(),
        "devices": [name for name, _ in names] or None,
        "bus_ids": [bus for _, bus in names] or None,
        "no_access": scan.no_access or None,
        "errors": scan.errors or None,
        "matrices": whole.told.total(),
    }
    return {name: value for name, value in found.items() if value is not None}


def _completeness(scan: _Scan, whole: _Whole, wanted: int | None) -> Completeness:
    problems = [
        f"no whole matrix of {kind} with P2P {state}" for kind, state in _REQUIRED if (kind, state) not in whole.seen
    ]
    halves = [state for kind, state in whole.seen if kind == "cpu"]
    if len(halves) == 1:
        problems.append("the CPU half of a latency matrix is missing")
    if scan.torn:
        problems.insert(0, f"a matrix is damaged or cut: {scan.torn}")
    if any(times > 1 for times in whole.told.values()):
        problems.append("matrices are there twice: several runs in one output")
    sizes = whole.sizes | ({len(scan.devices)} if scan.devices else set())
    if len(sizes) > 1:
        problems.append(f"matrices and devices do not agree on the number of GPUs: {sorted(sizes)}")
    elif wanted is not None and sizes != {wanted}:
        problems.append(f"{max(sizes, default=0)} GPUs, expected {wanted}")
    status = Status.COMPLETE if not problems else Status.INCOMPLETE if scan.titles else Status.NOT_STARTED
    return Completeness(
        reader=NAME,
        status=Status.FAILED if scan.errors else status,
        expected={} if wanted is None else {"devices": wanted},
        found={"matrices": whole.told.total(), "devices": len(scan.devices)},
        reason="; ".join([*scan.errors, *problems]),
    )
