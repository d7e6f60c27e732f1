"""HPL-MxP results that are not T/V rows: NVIDIA's result block, the ICL reference's lines, Fugaku's last line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from plumbline.model import Scalar
from plumbline.readers._hpl_lines import Line, Residual, number, residual, whole_number
from plumbline.readers.reading import Reading

FUGAKU_BOUND = 16.0
"""hpl-harness must be below it; RIKEN's program prints the number without a verdict. Source: hpl-mxp.org, Rules."""
PRECISION_OF_NUMBER = {"1": "FP8", "2": "FP16"}
"""SLOPPY-TYPE in NVIDIA's images up to 25.x. Source: sample scripts of hpc-benchmarks 24.03."""

_RATE = re.compile(r"\s*(LU )?GFLOPS = (\S+), per (\w{1,20}) = +([^\s-]\S*)")
_PAIR = re.compile(r"([A-Z][A-Z-]{0,20}) = ([^\s,]+)")
_TITLE = re.compile(r"\s*\*{3,} HPL[ -]?MxP Result\s+\*{3,}")
_STEP = re.compile(r"\s*\*{3,} test (loop )?(\d{1,6}) of (\d{1,6}) (starts|done)\s*\*{3,}")
_SPREAD = re.compile(
    r"\s*(LU|Iterative Solver|GEMM|matgen) (seconds|GFLOPS): AVG = (\S+), MAX = (\S+) \((\d+)->([^)\s]+)\), "
    r"MIN = (\S+) \((\d+)->([^)\s]+)\)"
)
_ITERATION = re.compile(r"\s*(?:Solver iteration|# iterative refinement: step=)\s*(\d{1,6})")
_THRESHOLD = re.compile(r"\s*Threshold[ .]*=\s*(\S+)")
_MATMUL = re.compile(r"\s*Matrix product GFLOPS = (\S+), size = (\d+), precision = (\w+)\s")
_DEVICE = re.compile(r"\s*HPL-MxP device: (.{1,200})")
_REFERENCE = re.compile(
    r"\s*(Time spent in factorization|Time spent in GMRES|Total time|Effective operation per sec) *: *(\S+) "
    r"(?:second|GFLOPs)\b"
)
_REFERENCE_TITLE = "Mixed-Precision Benchmark"
_REFERENCE_NAMES = {
    "Time spent in factorization": "time_lu", "Time spent in GMRES": "time_solver",
    "Total time": "time", "Effective operation per sec": "performance",
}  # fmt: skip
_FUGAKU_SIZE = re.compile(r"\s*n=(\d{1,12}) b=(\d{1,9}) r=(\d{1,9}) c=(\d{1,9})\s*$")
_FUGAKU = re.compile(r"\s*(\S+) sec\. (\S+) GFlop/s resid = +(\S+) hpl-harness = (\S+)")
_PARAMS = ("N", "NB", "P", "Q", "variant", "precision")
_RATES = (
    "performance", "performance_per_gpu", "performance_lu", "performance_lu_per_gpu", "matmul_rate", "gemm_per_gpu",
    "gemm_per_gpu_min",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Solve:
    """One solved system. Fields are None where the output does not say."""

    n: int | None = None
    nb: int | None = None
    p: int | None = None
    q: int | None = None
    variant: str | None = None
    sloppy: str | None = None
    performance: float | None = None
    performance_per_gpu: float | None = None
    performance_lu: float | None = None
    performance_lu_per_gpu: float | None = None
    time: float | None = None
    time_lu: float | None = None
    time_solver: float | None = None
    iterations: int | None = None
    matmul_rate: float | None = None
    gemm_per_gpu: float | None = None
    gemm_per_gpu_min: float | None = None
    checks: list[Residual] = field(default_factory=list)
    has_lu: bool = False
    """Whether this format prints the factorization's rate beside the reportable one."""

    @property
    def measured(self) -> bool:
        """Whether there is a reportable rate."""
        return self.performance is not None

    @property
    def missing(self) -> str | None:
        """Name what a whole result would have and this one lacks, or None."""
        if self.performance is None:
            return "performance"
        if self.has_lu and self.performance_lu is None:
            return "performance_lu"
        return None if self.checks else "residual"

    @property
    def precision(self) -> str | None:
        """Give the precision of the factorization as a word."""
        return PRECISION_OF_NUMBER.get(self.sloppy, self.sloppy).upper() if self.sloppy else None

    def params(self) -> dict[str, Scalar]:
        """Give the coordinates of this solve's readings."""
        values = (self.n, self.nb, self.p, self.q, self.variant, self.precision)
        return {name: value for name, value in zip(_PARAMS, values, strict=True) if value is not None}

    def readings(self, params: dict[str, Scalar]) -> Iterator[Reading]:
        """Give every number that is there."""
        for name in _RATES:
            if value := getattr(self, name):
                yield Reading(name, value, "GFLOPS", params)
        for name in ("time", "time_lu", "time_solver"):
            if (value := getattr(self, name)) is not None:
                yield Reading(name, value, "s", params)
        values = [check.value for check in self.checks if check.value is not None]
        if values and len(values) == len(self.checks):
            yield Reading("residual", max(values), "1", params)
        if self.iterations is not None:
            yield Reading("iterations", self.iterations, "count", params)

    def summary(self) -> dict[str, Any]:
        """Give this solve as facts."""
        shown = {
            "N": self.n, "NB": self.nb, "NPROW": self.p, "NPCOL": self.q, "tv": self.variant, "sloppy": self.sloppy,
            "gflops": self.performance, "lu_gflops": self.performance_lu, "per_gpu": self.performance_per_gpu,
            "lu_per_gpu": self.performance_lu_per_gpu, "time_s": self.time,
        }  # fmt: skip
        summary = {key: value for key, value in shown.items() if value is not None}
        return {"mxp": summary, "sloppy": self.sloppy, "precision": self.precision}


class Steps:
    """What 'test 1 of 2 starts' and '… done' tell of: whether each that started also ended, and the last came."""

    def __init__(self, name: str) -> None:
        """Watch the tests or the loops."""
        self.name = name
        self.total = 0
        self._index = 0
        self._open = False
        self._lost = False

    def note(self, index: int, total: int, starts: bool) -> None:
        """Take one such line."""
        if starts:
            self._lost |= self._open or (index <= self._index < self.total)
        elif not self._open:
            return
        self.total, self._index, self._open = total, index, starts

    def reason(self) -> str | None:
        """Say what is missing, or None."""
        if self._open:
            return f"{self.name} {self._index} of {self.total} has no end"
        if self._index < self.total:
            return f"only {self._index} of {self.total} {self.name}s"
        return f"a {self.name} has no end" if self._lost else None


class Blocks:
    """Takes lines one by one and gives the solves in them."""

    def __init__(self) -> None:
        """Start before the first line."""
        self.started = self.ran = False
        self.facts: dict[str, Any] = {}
        self.tests, self.loops = Steps("test"), Steps("test loop")
        self._solve = Solve()
        self._block = False
        self._reference = False
        self._fugaku: tuple[int, int, int, int] | None = None
        self._waiting = False
        """Whether a program of the reference or Fugaku's has begun and has no result yet."""
        self._unanswered = False
        self._lost = 0

    @property
    def announced(self) -> int:
        """How many results the output itself tells of; 0 where it doesn't."""
        return self.tests.total * max(self.loops.total, 1)

    def feed(self, line: Line) -> Iterable[Solve]:
        """Take one line. What is given must be gone through before the next is taken."""
        text = line.text
        if "****" in text:
            return self._starred(text)
        if "Ax-b" in text:
            return self._check(text)
        if "AVG =" in text:
            self._spread(text)
        elif "GFlop/s" in text:
            return self._of_fugaku(line)
        elif "SLOPPY-TYPE" in text:
            self._size(line)
        elif not ("GFLOPS" in text and self._rate(line)):
            self._other(line)
        return ()

    def close(self) -> Iterator[Solve]:
        """Give what is open at the end of the output."""
        self._unanswered = self._solve.time_lu is not None and not self._solve.measured
        yield from self._flush()

    def reasons(self) -> list[str]:
        """Say what of the announced structure is missing."""
        found = [reason for steps in (self.tests, self.loops) if (reason := steps.reason())]
        if self._lost:
            found.append(f"runs that began before another and gave no result: {self._lost}")
        if self._waiting or self._unanswered:
            found.append("a run began and gave no result")
        return ["the result block has no end title", *found] if self._block else found

    def _begin(self) -> None:
        """Note that a run of the reference or of Fugaku's program begins."""
        self._lost += self._waiting
        self._waiting = True
        self._solve, self._reference = Solve(), False

    def _starred(self, text: str) -> Iterator[Solve]:
        if _TITLE.match(text):
            self.started = True
            self._block = not self._block
            if not self._block:
                yield from self._flush()
        elif match := _STEP.match(text):
            yield from self._step(match)

    def _flush(self) -> Iterator[Solve]:
        solve, self._solve, self._reference = self._solve, Solve(), False
        if solve.measured or solve.checks or solve.performance_lu is not None:
            self._waiting = False
            yield solve

    def _step(self, match: re.Match[str]) -> Iterator[Solve]:
        self.started = True
        index, total, starts = int(match[2]), int(match[3]), match[4] == "starts"
        if match[1]:
            self.ran |= starts
            yield from self._flush_keeping_component_test()
            self.loops.note(index, total, starts)
        else:
            if starts:
                yield from self._flush()
                self.loops = Steps("test loop") if self.loops.reason() is None else self.loops
            self.tests.note(index, total, starts)

    def _flush_keeping_component_test(self) -> Iterator[Solve]:
        kept = self._solve
        if kept.measured or kept.checks:
            yield from self._flush()
        else:
            self._solve = Solve(
                gemm_per_gpu=kept.gemm_per_gpu, gemm_per_gpu_min=kept.gemm_per_gpu_min, matmul_rate=kept.matmul_rate
            )

    def _check(self, text: str) -> Iterator[Solve]:
        check = residual(text)
        if check is None:
            return
        self.started = self.ran = True
        if self._solve.measured and not self._reference:
            yield from self._flush()
        self._solve.checks.append(check)
        if self._reference:
            yield from self._flush()

    def _rate(self, line: Line) -> bool:
        match = _RATE.match(line.text)
        if match is None:
            return False
        self.started = self.ran = self._solve.has_lu = True
        cut = not line.whole and not line.text[match.end() :].strip()
        per_unit = None if cut or match[3] != "GPU" else number(match[4])
        if match[1]:
            self._solve.performance_lu = None if cut else number(match[2])
            self._solve.performance_lu_per_gpu = per_unit
        else:
            self._solve.performance = number(match[2])
            self._solve.performance_per_gpu = per_unit
        return True

    def _size(self, line: Line) -> None:
        pairs = dict(_PAIR.findall(line.text))
        self._solve.n, self._solve.nb = whole_number(pairs.get("N", "")), whole_number(pairs.get("NB", ""))
        self._solve.p, self._solve.q = whole_number(pairs.get("NPROW", "")), whole_number(pairs.get("NPCOL", ""))
        self._solve.sloppy = pairs.get("SLOPPY-TYPE") if line.whole else None

    def _spread(self, text: str) -> None:
        match = _SPREAD.match(text)
        if match is None:
            return
        mean, largest, smallest = number(match[3]), number(match[4]), number(match[7])
        if match[1] == "GEMM":
            if match[2] == "GFLOPS":
                self._solve.gemm_per_gpu, self._solve.gemm_per_gpu_min = mean, smallest
                self.facts["gemm_slowest"] = {"rank": int(match[8][:9]), "host": match[9]}
        elif match[1] == "matgen":
            if match[2] == "seconds" and largest is not None:
                self.facts["generation_s"] = self.facts.get("generation_s", 0.0) + largest
        elif match[1] == "LU":
            self._lost += self._solve.time_lu is not None
            self.ran = True
            self._solve.time_lu = largest
            self.facts["lu_slowest"] = {"rank": int(match[5][:9]), "host": match[6]}
        else:
            self.ran = True
            self._solve.time_solver = largest

    def _of_fugaku(self, line: Line) -> Iterator[Solve]:
        match = _FUGAKU.match(line.text)
        if match is None:
            return
        self.started = self.ran = True
        self._solve.time, self._solve.performance = number(match[1]), number(match[2])
        if self._fugaku is not None:
            self._solve.n, self._solve.nb, self._solve.p, self._solve.q = self._fugaku
        if line.whole:
            value = number(match[4])
            self._solve.checks = [Residual(match[4], value, value is not None and value < FUGAKU_BOUND)]
        yield from self._flush()

    def _other(self, line: Line) -> None:
        text = line.text
        # A look for a word costs a fraction of a pattern's failure.
        if (" time" in text or "Time " in text or "Effective" in text) and (match := _REFERENCE.match(text)):
            self._take_reference(_REFERENCE_NAMES[match[1]], number(match[2]))
        elif _REFERENCE_TITLE in text:
            self._begin()
        elif "iterati" in text and (match := _ITERATION.match(text)):
            self.ran = True
            self._solve.iterations = int(match[1])
        elif "Matrix product" in text and (match := _MATMUL.match(text)):
            self._solve.matmul_rate = number(match[1])
        elif "Threshold" in text and (match := _THRESHOLD.match(text)):
            self.facts["threshold"] = number(match[1]) if line.whole else None
        elif "device: " in text and (match := _DEVICE.match(text)):
            self.facts["device"] = match[1].strip()
        elif line.whole and "n=" in text and (match := _FUGAKU_SIZE.match(text)):
            self._begin()
            n, nb, p, q = (int(match[i]) for i in range(1, 5))
            self._fugaku = (n, nb, p, q)

    def _take_reference(self, name: str, value: float | None) -> None:
        """Take a figure of the reference, which tells each once a run."""
        if getattr(self._solve, name) is not None:
            self._begin()
        self.started = self.ran = self._reference = self._waiting = True
        setattr(self._solve, name, value)
