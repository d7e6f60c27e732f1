"""What the HPL family prints, line by line: banners, T/V rows, residual checks, footers, progress, trouble.

HPL's own harness and its descendants (NVIDIA, AMD, Intel, HPCC, HPL-AI) share these lines; columns differ, so a row
is read by the names in its header.
Source: HPL_pdinfo.c, HPL_pdtest.c, HPL_pddriver.c of netlib HPL 1.0 to 2.3; ROCm/rocHPL src/; davidrohr/hpl-gpu.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from plumbline.readers.framing import strip_prefix
from plumbline.readers.source import Source, strip_ansi

LONGEST_RECORD_BYTES = 8192
"""No line that these tools print is longer, prefixes and a collector's JSON included."""

_DECIMAL = re.compile(r"\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?")
_VARIANT = re.compile(r"W[RC]C?\d[0-9A-Za-z]{0,20}")
_ROW_START = re.compile(r"\s*(?:HPL_AI\s+)?W[RC]C?\d[0-9A-Za-z]{0,20}\s+\d")
_PARENTHESIS = re.compile(r"\(\s*(.*?)\s*\)")
_RESIDUAL = re.compile(r"=\s*(\S{1,60}?)\s*\.{3,}\s*(PASSED|FAILED)\b")
_WRAPPED = re.compile(r"\s*(\S{1,60})\s*\.{3,}\s*(PASSED|FAILED)\b")
_BANNER = re.compile(
    r"\s*(HPL[A-Za-z-]{0,30})\s+v?(\d[\w.]{0,20})\s+--|\s*(AMD Zen HPL[A-Za-z-]{0,10}) (\d\w{0,20})\s*$"
)
_PROGRESS = re.compile(r"(?:Prog|Fraction)=\s*(\d{1,3}(?:\.\d{1,6})?)(%?)")
_PROGRESS_RATE = re.compile(
    r"(?<!\w)(GF|TF|Gflops|Mflops|Tflops)=\s*(\d{1,20}(?:\.\d{1,6})?(?:[eE][+-]?\d{1,3})?)(?=\s|$)"
)
_OTHER_PROGRESS = (
    re.compile(r"\s{0,4}(\d{1,3}\.\d)% \| \d{9} \|.{0,300}\s(\d\.\d{3}e[+-]\d\d)\s*$"),  # rocHPL, rocHPL-MxP
    re.compile(r"\s{0,4}(\d{1,3}\.\d\d)\s+\d{1,9}(?:\s+\d{1,7}\.\d{3}){4}\s()"),  # Intel, HPL_DRIVER or verbose
)
_RATE_SCALES = {"GF": 1.0, "Gflops": 1.0, "TF": 1e3, "Tflops": 1e3, "Mflops": 1e-3}

_MARKS = re.compile(
    rb"(?:Ax-b|W[RC]|T/V|HPL|FLOP|Flop/s|\*\*\*\*|SLOPPY|AVG =|Final Sc|Size |Residual|Time spent|Total time|Threshold|"
    rb"FAILED|Solver iter|Finished)[^\n]*"
)
_MORE_MARKS = (b" tests ", b" b=", b"   pass", b"   fail", b".. PASSED", b"LINPACK ")
"""A line without a mark is no record. Few and mostly upper case, so that a scan for them costs little."""
_PROGRESS_MARKS = (b"Prog=", b"Fraction=")
_RESULT_MARKS = (b"Ax-b", b"PASSED", b"FAILED", b"GFLOPS", b"Gflops_", b"Finished", b"Residual", b"End of ")
_BLOCK_BYTES = 256 << 10
_PROGRESS_BYTES = 8 << 10
"""Where in a block its last line of progress is looked for."""
_OVERLONG_KEPT = 16
_STRIDE = LONGEST_RECORD_BYTES // 2
"""A longer line spans one of these steps whole."""
_TROUBLE = re.compile(
    r"HPL ERROR|>>> .{1,200} <<<|^ERROR:|MPI_ABORT was invoked|(?:mpirun|mpiexec|prterun) noticed|exited on signal|"
    r"Primary job +terminated|not enough slots|[Ss]egmentation fault|Bus error|^Killed\b|Illegal instruction|"
    r"slurmstepd: error|srun: error|CANCELLED|DUE TO TIME LIMIT|oom.kill|[Oo]ut of memory|bad_alloc|"
    r"CUDA (?:runtime )?error|cuda[A-Z]\w{1,60} failed|NCCL (?:error|failure)|terminate called|"
    r"Memory allocation failed|HIP error|PBS: job killed|received signal|Ctrl-C|Fatal error|command not found|"
    r"No such file or directory|BAD TERMINATION",
    re.MULTILINE,
)
_LAUNCH = re.compile(r"slots|mpi|prte|srun|slurm|hpl|>>>|PBS", re.IGNORECASE)


def of_launcher(trouble: str | None) -> bool:
    """Say whether an error line alone tells that an HPL run was tried: a launcher's, or HPL's own."""
    return trouble is not None and _LAUNCH.search(trouble) is not None


def number(text: str) -> float | None:
    """Give a finite non-negative number that is written out in full ('3.279e+05', '1243.10'), or None."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def whole_number(text: str) -> int | None:
    """Give a non-negative whole number of at most 12 digits, or None."""
    return int(text) if text.isdigit() and text.isascii() and len(text) <= 12 else None


class Line(NamedTuple):
    """A line that may be a record, without colours and launcher prefixes. `whole`: it had its line end."""

    text: str
    whole: bool = True


class Log:
    """A source read once for records; its beginning and end are kept to explain a run that did not finish."""

    def __init__(self, source: Source) -> None:
        """Take over reading of `source`."""
        self._source = source
        self._head = b""
        self._tail: list[bytes] = []
        self._progress = b""

    def records(self) -> Iterator[Line]:
        """Give the lines that may be records, in order."""
        for block, whole in self._blocks():
            for text in _marked(block):
                # No line of these tools starts with one word and a colon: a host name there is pdsh's or a collector's.
                yield Line(strip_prefix(text, hosts=True), whole)

    def _blocks(self) -> Iterator[tuple[bytes, bool]]:
        """Give some hundred KiB of lines at a time, and whether they are whole; a last one without its end is alone."""
        parts: list[bytes] = []
        size = 0
        for block in self._source.blocks():
            if parts and not self._source.ends_whole:
                yield self._kept(parts), True
                parts = []
            parts.append(block)
            size = size + len(block) if len(parts) > 1 else len(block)
            if size >= _BLOCK_BYTES:
                yield self._kept(parts), self._source.ends_whole
                parts = []
        if parts:
            yield self._kept(parts), self._source.ends_whole

    def _kept(self, parts: list[bytes]) -> bytes:
        """Join a block without its overlong lines, and keep it as the newest."""
        block = parts[0] if len(parts) == 1 else b"\n".join(parts)
        if any(
            block.find(b"\n", at, at + _STRIDE) < 0 for at in range(0, len(block), _STRIDE)
        ):  # else none is overlong
            lines = block.split(b"\n")
            block = b"\n".join(raw if len(raw) <= LONGEST_RECORD_BYTES else raw[:_OVERLONG_KEPT] for raw in lines)
        self._head = self._head or block[:_BLOCK_BYTES]
        self._tail = [*self._tail[-1:], block]
        last = block[block.rfind(b"\n", 0, max(len(block) - _PROGRESS_BYTES, 0)) + 1 :]
        if b"Prog=" in last or b"Fraction=" in last:
            self._progress = next(raw for raw in reversed(last.split(b"\n")) if b"Prog=" in raw or b"Fraction=" in raw)
        return block

    def progress(self) -> dict[str, float] | None:
        """Give {'fraction': 0 to 1, 'gflops': the running rate} of the newest progress line: never a result."""
        newest = next((raw for raw in self._backwards() if b"Prog=" in raw or b"Fraction=" in raw), self._progress)
        if not newest:
            return self._other_progress()
        text = strip_ansi(newest.decode("utf-8", "replace"))
        found: dict[str, float] = {}
        if match := _PROGRESS.search(text):
            found["fraction"] = round(float(match[1]) / (100 if match[2] or float(match[1]) > 1 else 1), 8)
        rates = {m[1]: float(m[2]) for m in _PROGRESS_RATE.finditer(text)}
        for name, scale in _RATE_SCALES.items():
            if name in rates and math.isfinite(rates[name]):
                found["gflops"] = round(rates[name] * scale, 6)
                break
        return found or None

    def _backwards(self) -> Iterator[bytes]:
        """Give the newest lines, the last first."""
        return (raw for block in reversed(self._tail) for raw in reversed(block.split(b"\n")))

    def ends_underway(self) -> bool:
        """Say whether the last that a solve printed is its progress: what it was to result in is not there."""
        for block in reversed(self._tail):
            newest = max(block.rfind(mark) for mark in _PROGRESS_MARKS)
            result = max(block.rfind(mark) for mark in _RESULT_MARKS)
            if newest >= 0 or result >= 0:
                return newest > result
        return False

    def _other_progress(self) -> dict[str, float] | None:
        for raw in (raw for raw in self._backwards() if raw[:9].strip()[:1].isdigit()):
            text = strip_prefix(raw.decode("utf-8", "replace"))
            for match in (match for pattern in _OTHER_PROGRESS if (match := pattern.match(text))):
                found = {"fraction": round(float(match[1]) / 100, 8)}
                return found | {"gflops": float(match[2])} if match[2] else found
        return None

    def trouble(self) -> str | None:
        """Give the newest line that tells of an error which ends a run (abort, signal, out of memory), or None."""
        for block in (*reversed(self._tail), self._head):
            text = strip_ansi(block.decode("utf-8", "replace"))
            if found := deque(_TROUBLE.finditer(text), maxlen=1):
                start, end = text.rfind("\n", 0, found[0].start()) + 1, text.find("\n", found[0].end())
                return strip_prefix(text[start : end if end >= 0 else None]).strip()[:200]
        return None


def _marked(block: bytes) -> list[str]:
    """Give the lines of a block that hold a mark, without colours. One scan of all is far cheaper than one a line."""
    spans = [match.span() for match in _MARKS.finditer(block)]
    for mark in _MORE_MARKS:
        at = block.find(mark)
        while at >= 0:
            end = block.find(b"\n", at)
            end = end if end >= 0 else len(block)
            spans.append((at, end))
            at = block.find(mark, end)
    spans.sort()
    found: list[bytes] = []
    last = -1
    for place, end in spans:
        if place > last:
            found.append(block[block.rfind(b"\n", 0, place) + 1 : end])
            last = end
    if not found:
        return []
    return [strip_ansi(text) for text in b"\n".join(found).decode("utf-8", "replace").split("\n")]


@dataclass(frozen=True, slots=True)
class Banner:
    """The title of a program: HPL-NVIDIA 25.4.0, HPLinpack 2.3, HPL-MxP-NVIDIA 26.2.0."""

    name: str
    version: str
    continues: bool = False
    """Whether it stands at HPCC's HPL section, which repeats the title that the suite began with."""

    @property
    def mixed(self) -> bool:
        """Whether the program factors in low precision."""
        return "MxP" in self.name or "AI" in self.name.split("-")

    @property
    def harness(self) -> bool:
        """Whether this is HPL's own title, which variants print below their own."""
        return self.name == "HPLinpack"


def banner(text: str) -> Banner | None:
    """Read a program's title line."""
    match = _BANNER.match(text)
    return Banner(match[1] or match[3], match[2] or match[4]) if match else None


class Row(NamedTuple):
    """A line of a T/V table. `gflops_refined` and `refine_s` are HPL-AI's columns, `residual` Intel's."""

    variant: str | None
    n: int
    nb: int | None
    p: int | None
    q: int | None
    time_s: float
    gflops: float
    per_gpu: float | None = None
    gflops_refined: float | None = None
    refine_s: float | None = None
    mixed: bool = False


STANDARD_LAYOUT = ("T/V", "N", "NB", "P", "Q", "Time", "Gflops")


@lru_cache(maxsize=16)
def layout(text: str) -> tuple[str, ...] | None:
    """Give the column names of a table header ('T/V N NB P Q Time Gflops ( per GPU)'), or None."""
    stripped = text.strip()
    if not stripped.startswith("T/V") or "flops" not in stripped or ":" in stripped:
        return None
    return tuple(_PARENTHESIS.sub(lambda m: "(" + m[1].replace(" ", "_") + ")", stripped).split())


def is_row(text: str) -> bool:
    """Say whether a line begins as a row of a T/V table does, whatever follows."""
    return "W" in text and _ROW_START.match(text) is not None


def row(line: Line, columns: tuple[str, ...] | None) -> Row | None:
    """Read a row by its header's column names. None where any cell is cut, missing or not a number."""
    if not line.whole and not line.text.rstrip().endswith(")"):
        return None  # the last number may go on
    text = _PARENTHESIS.sub(r"\1", line.text) if "(" in line.text else line.text
    cells = text.split()
    mixed = cells[0] == "HPL_AI"
    cells = cells[1:] if mixed else cells
    names = columns or STANDARD_LAYOUT
    if columns is None and len(cells) == len(names) + 1:
        names = (*STANDARD_LAYOUT, "(per_GPU)")
    if len(cells) != len(names):
        return _row_without_header(cells) if mixed else None
    by_name = dict(zip(names, cells, strict=True))
    if names is STANDARD_LAYOUT or names == STANDARD_LAYOUT:
        return _row(by_name, mixed=mixed)
    refined = next((name for name in names if "IRS" in name.upper()), None)
    return _row(
        by_name,
        gflops_refined=number(by_name[refined]) if refined else None,
        refine_s=number(by_name["FGMRES"]) if "FGMRES" in by_name else None,
        per_gpu=next((number(by_name[name]) for name in names if name.startswith("(")), None),
        mixed=mixed or refined is not None,
    )


def _row_without_header(cells: list[str]) -> Row | None:
    """Read an HPL_AI row (21.4 to 22) whose header has blanks in names: variant … Gflops, refinement, …, Gflops_IRS.

    Only taken when the last rate is that of the LU time and the refinement time together.
    """
    if not 10 <= len(cells) <= 11:
        return None
    found = _row(
        dict(zip(STANDARD_LAYOUT, cells, strict=False)),
        gflops_refined=number(cells[-1]), refine_s=number(cells[7]), mixed=True,
    )  # fmt: skip
    if found is None or found.gflops_refined is None or found.refine_s is None:
        return None
    expected = operations(found.n) / 1e9 / (found.time_s + found.refine_s or math.inf)
    return found if 0.95 < found.gflops_refined / max(expected, 1e-300) < 1.05 else None


def _row(
    cells: dict[str, str],
    *,
    mixed: bool,
    gflops_refined: float | None = None,
    refine_s: float | None = None,
    per_gpu: float | None = None,
) -> Row | None:
    if _VARIANT.fullmatch(cells.get("T/V", "")) is None:
        return None
    n, nb, p, q = (whole_number(cells.get(key, "")) for key in ("N", "NB", "P", "Q"))
    time_s, gflops = number(cells.get("Time", "")), number(cells.get("Gflops", ""))
    if not n or not nb or not p or not q or time_s is None or not gflops or not agrees(n, time_s, gflops):
        return None
    return Row(
        variant=cells["T/V"], n=n, nb=nb, p=p, q=q, time_s=time_s, gflops=gflops,
        per_gpu=per_gpu, gflops_refined=gflops_refined, refine_s=refine_s, mixed=mixed,
    )  # fmt: skip


def operations(n: int) -> float:
    """Give the operations that HPL counts: 2/3 n³ + 3/2 n². Source: HPL_pdtest.c."""
    return float(n) * n * (2.0 / 3.0 * n + 1.5)


def agrees(n: int, time_s: float, gflops: float) -> bool:
    """Say whether rate and time tell the same story: a number that lost its end or its exponent doesn't.

    Times are printed with two decimals, so short ones say nothing.
    """
    return time_s < 0.05 or 0.5 < gflops * 1e9 * time_s / operations(n) < 2.0


class Residual(NamedTuple):
    """A residual check. `value` is None where the tool printed no finite number (nan, inf)."""

    text: str
    value: float | None
    passed: bool
    of: int = 1
    """How many checks a test has: HPL 1.x prints three, without ||b|| in them."""


def residual(text: str, *, wrapped: bool = False) -> Residual | None:
    """Read '||Ax-b||_oo/(…)= 0.0036127 ...... PASSED', or its second half when the line before ended at '='.

    A check that claims to pass without a finite number counts as failed.
    """
    match = _RESIDUAL.search(text) if "Ax-b" in text else _WRAPPED.match(text) if wrapped else None
    if match is None:
        return None
    value = number(match[1])
    of = 3 if "Ax-b" in text and "||b||" not in text else 1
    return Residual(match[1], value, match[2] == "PASSED" and value is not None, of)
