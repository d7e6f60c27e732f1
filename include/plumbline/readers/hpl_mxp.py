"""HPL-MxP and HPL-AI: NVIDIA 20.10 to 26, rocHPL-MxP, the HPL-AI reference, Fugaku's, Plumbline's own.

`performance` is the reportable figure, over factorization and refinement; `performance_lu` leaves the refinement out
and is 1.5 to 6 times larger. They are told apart by their names, never by order.
Source: ROCm/rocHPL-MxP src/hplmxp_ptest.cpp; icl/hpl-ai hpl-ai.c; RIKEN-RCCS/hpl-ai main.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._hpl_harness import Footer, Harness, Tally, Test, Threshold, Titles
from plumbline.readers._hpl_lines import Banner, Log, of_launcher
from plumbline.readers._mxp_blocks import Blocks, Solve
from plumbline.readers._numbering import Numbering
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "hpl_mxp"
TOOL = "HPL-MxP / HPL-AI (NVIDIA 20.10 to 26, rocHPL-MxP, ICL reference, RIKEN Fugaku, Plumbline's own)"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "performance": ("GFLOPS", "reportable rate: operations / (factorization + refinement)"),
    "performance_lu": ("GFLOPS", "rate of the low-precision factorization alone"),
    "performance_per_gpu": ("GFLOPS", "the reportable rate per GPU, where printed"),
    "performance_lu_per_gpu": ("GFLOPS", "the factorization's rate per GPU, where printed"),
    "time": ("s", "time to solution, where the tool prints one"),
    "time_lu": ("s", "time of the factorization (of the slowest process)"),
    "time_solver": ("s", "time of the refinement (of the slowest process)"),
    "residual": ("1", "scaled residual ||Ax-b|| / (eps (||A|| ||x|| + ||b||) N)"),
    "iterations": ("count", "refinement iterations"),
    "gemm_per_gpu": ("GFLOPS", "NVIDIA's component test: matrix-product rate per GPU, mean over GPUs"),
    "gemm_per_gpu_min": ("GFLOPS", "the same of the slowest GPU; fact gemm_slowest names it"),
    "matmul_rate": ("GFLOPS", "Plumbline's own: the device's dense matrix-product rate in the same run and precision"),
}
FACTS: Mapping[str, str] = {
    "version": "version in the title",
    "program": "name in the title",
    "tests": "solved systems with a rate",
    "residuals": "residual checks",
    "passed": "residual checks that passed",
    "failed": "residual checks that failed",
    "verdict": "PASSED, FAILED, or none without a check",
    "last_residual": "the last scaled residual as printed",
    "threshold": "the bound that residuals were compared with",
    "sloppy": "SLOPPY-TYPE as printed: 1 FP8, 2 FP16, or the word",
    "precision": "the precision of the factorization",
    "mxp": "the last result: N, NB, NPROW, NPCOL, sloppy, gflops, lu_gflops, per_gpu, lu_per_gpu",
    "first": "T/V tables: the first row",
    "last": "T/V tables: the last row",
    "max_gflops": "the best reportable rate in GFLOPS",
    "gemm_slowest": "rank and host of the slowest GPU in the component test",
    "lu_slowest": "rank and host that were last to finish the factorization",
    "generation_s": "seconds in which the matrices were generated, by the slowest process, where printed",
    "device": "Plumbline's own: what it computed on",
    "last_progress": "newest progress line of a run without result",
    "trouble": "the error line that explains an unfinished run",
}
EXPECTATIONS: Mapping[str, str] = {
    "tests": "how many results there must be",
    "n": "order N that every result must have",
    "nb": "block size NB that every result must have",
    "p": "process rows that every result must have",
    "q": "process columns that every result must have",
    "precision": "precision of the factorization that every result must have: FP16, BF16, FP8, FP32 …",
}

_ASKED = {"n": "N", "nb": "NB", "p": "P", "q": "Q", "precision": "precision"}
"""expectation → the coordinate of a result's readings"""
_SURE = re.compile(
    r"HPL-MxP-NVIDIA|HPL[ -]MxP Result|HPL-MxP-Plumbline|HPL_AI +W[RC]|HPLMXP_|SLOPPY-TYPE|hpl-harness =|"
    r"HPL-AI Mixed-Precision Benchmark|HPL-AI-NVIDIA|Effective operation per sec"
)


def sniff(head: str) -> float:
    """Say how sure the text is HPL in mixed precision."""
    return 0.97 if _SURE.search(head) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give one set of readings a solve, then facts, then completeness. Raises OutputError for anything but HPL-MxP."""
    run = _Run(expect)
    log = Log(source)
    yield from run.readings(log)
    trouble = log.trouble() if run.unfinished else None
    if not run.anything:
        if run.double:
            raise OutputError("this is HPL in double precision, not HPL-MxP: use reader hpl", source=source.name)
        if not of_launcher(trouble):
            raise OutputError("no HPL-MxP output: no title, no result, no residual check", source=source.name)
    progress = log.progress()
    yield from run.facts(progress, trouble)
    yield run.completeness(progress, trouble)


class _Run:
    """What one output says, accumulated at constant memory."""

    def __init__(self, expect: Mapping[str, Scalar]) -> None:
        self.expect = {key: str(v).upper() if key == "precision" else v for key, v in expect.items()}
        self.asked = [(key, name) for key, name in _ASKED.items() if key in self.expect]
        self.blocks = Blocks()
        self.tally = Tally()
        self.tables = False
        self.double = self._in_double = self.underway = False
        self.title: Banner | None = None
        self.titles = Titles()
        self.threshold: float | None = None
        self.numbering = Numbering()
        self.solves = self.incomplete = self.unexpected = 0
        self.residuals = self.passed = self.failed = 0
        self.last_residual: str | None = None
        self.last: Solve | None = None
        self.max_gflops = 0.0

    @property
    def anything(self) -> bool:
        """Whether HPL-MxP left any trace."""
        titled = self.title is not None and self.title.mixed
        return titled or self.tables or self.blocks.started or bool(self.solves or self.residuals)

    @property
    def unfinished(self) -> bool:
        """Whether something is missing, so that an error line is worth looking for."""
        return not self._failed() and bool(self._missing())

    def readings(self, log: Log) -> Iterator[Reading]:
        harness = Harness()
        for line in log.records():
            in_table = harness.in_table
            for event in harness.feed(line):
                yield from self._take(event)
            if not in_table or "Ax-b" not in line.text:
                for solve in self.blocks.feed(line):
                    yield from self._solve(solve)
        for event in harness.close():
            yield from self._take(event)
        for solve in self.blocks.close():
            yield from self._solve(solve)
        self.underway = log.ends_underway()
        yield from self.numbering.rest()

    def _take(self, event: object) -> Iterator[Reading]:
        if isinstance(event, Test):
            if event.row is None and event.score is None and not event.damaged:
                return  # a residual without a row: the result blocks read it
            if not event.mixed:
                self.double = True
                if event.checked:
                    self.titles.answered()
                return
            self.tables = True
            self.tally.add(event)
            if event.measured:
                yield from self._solve(_of_row(event))
        elif isinstance(event, Footer):
            self.titles.answered()
            if self.tables:
                self.tally.end(event)
        elif isinstance(event, Threshold):
            self.threshold = event.value
        elif isinstance(event, Banner):
            self.title = event if self.title is None or not event.harness else self.title
            self._take_title(event)

    def _take_title(self, title: Banner) -> None:
        """Take the title of a run; one in double precision is awaited by its own reader."""
        self._in_double = not title.mixed and (not title.harness or self._in_double)
        self.double |= not title.mixed and not title.harness
        if self._in_double:
            self.titles.answered()
        else:
            self.titles.note(title)

    def _solve(self, solve: Solve) -> Iterator[Reading]:
        self.solves += solve.measured
        self.incomplete += solve.missing is not None
        for check in solve.checks:
            self.residuals += 1
            self.passed += check.passed
            self.failed += not check.passed
            self.last_residual = check.text or self.last_residual
        if solve.measured or solve.checks:
            self.titles.answered()
        params = solve.params()
        if solve.performance is not None:
            self.last = solve
            self.max_gflops = max(solve.performance, self.max_gflops)
            self.unexpected += any(self.expect[key] != params.get(name) for key, name in self.asked)
        if readings := list(solve.readings(self.numbering.number(params))):
            yield from self.numbering.add(readings)

    def facts(self, progress: dict[str, float] | None, trouble: str | None) -> Iterator[Fact]:
        values: dict[str, Any] = {
            "version": self.title.version if self.title else None,
            "program": self.title.name if self.title else None,
            "tests": self.solves,
            "residuals": self.residuals,
            "passed": self.passed,
            "failed": self.failed,
            "verdict": "FAILED" if self._failed() else "PASSED" if self.passed else "none",
            "last_residual": self.last_residual,
            "threshold": self.threshold,
            "max_gflops": self.max_gflops if self.last else None,
            **(self.last.summary() if self.last else {}),
            **self.blocks.facts,
            "last_progress": progress if not self.solves else None,
            "trouble": trouble,
        }
        for name, value in values.items():
            if value is not None:
                yield Fact(name, value)

    def _failed(self) -> bool:
        return bool(self.failed or self.tally.failed_tests)

    def completeness(self, progress: dict[str, float] | None, trouble: str | None) -> Completeness:
        status, reason = self._status(progress, trouble)
        expected: dict[str, Any] = dict(self.expect)
        if self.blocks.announced:
            expected.setdefault("tests", self.blocks.announced)
        found = {"tests": self.solves, "passed": self.passed, "failed": self.failed}
        return Completeness(NAME, status, expected, found, reason)

    def _status(self, progress: dict[str, float] | None, trouble: str | None) -> tuple[Status, str]:
        told = f": {trouble}" if trouble else ""
        if self._failed():
            return Status.FAILED, f"residual checks failed: {max(self.failed, self.tally.failed_tests)}"
        if not self.solves and not self.residuals and not self.tally.tests and progress is None and not self.blocks.ran:
            return Status.NOT_STARTED, f"no solve ran{told}"
        missing = self._missing()
        if not missing:
            return Status.COMPLETE, ""
        return (Status.ABORTED, f"stopped{told}") if trouble else (Status.INCOMPLETE, "; ".join(missing))

    def _missing(self) -> list[str]:
        found = self.tally.reasons() if self.tables else []
        found += self.blocks.reasons()
        if self.titles.lost:
            found.append(f"runs that began before another and gave no result: {self.titles.lost}")
        if self.solves and (self.titles.waiting or self.underway):
            found.append("a run after the last result began and gave none")
        if not self.solves:
            found.insert(0, "no result")
        if self.incomplete:
            found.append(f"results that lack a figure or their residual check: {self.incomplete}")
        if "tests" in self.expect and self.solves != self.expect["tests"]:
            found.append(f"results: {self.solves}, expected: {self.expect['tests']}")
        if self.unexpected:
            asked = ", ".join(f"{key}={value}" for key, value in self.expect.items() if key != "tests")
            found.append(f"results that are not of {asked}: {self.unexpected}")
        return found


def _of_row(test: Test) -> Solve:
    """Give a T/V row as a solve: HPL_AI prints both figures, rocHPL-MxP the reportable one."""
    solve = Solve(checks=test.residuals)
    row = test.row
    if row is None:
        solve.performance = test.score
        return solve
    solve.n, solve.nb, solve.p, solve.q, solve.variant = row.n, row.nb, row.p, row.q, row.variant
    if row.mixed:
        solve.performance, solve.performance_lu = row.gflops_refined, row.gflops
        solve.time_lu, solve.time_solver = row.time_s, row.refine_s
    else:
        solve.performance, solve.time = row.gflops, row.time_s
    solve.has_lu = row.mixed
    return solve
