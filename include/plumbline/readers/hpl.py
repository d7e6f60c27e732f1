"""HPL in double precision: netlib HPL 1.0 to 2.3, NVIDIA, rocHPL, AMD Zen HPL, Intel, HPL-GPU, the HPL part of HPCC.

The result is a row of the T/V table and nothing else: progress lines with a Gflops figure never are. A test counts
when its residual check is there, an output when its 'Finished … tests' footer accounts for every row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Params, Scalar
from plumbline.readers._hpl_harness import Footer, Harness, Tally, Test, Threshold
from plumbline.readers._hpl_lines import Banner, Log, Row, of_launcher
from plumbline.readers._hpl_smp import SharedMemoryTable
from plumbline.readers._numbering import Numbering
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "hpl"
TOOL = "HPL (netlib 1.0 to 2.3, NVIDIA 21 to 26, rocHPL, AMD Zen HPL, Intel, HPL-GPU, HPCC's HPL section), FP64"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "performance": ("GFLOPS", "rate of the whole solve, as printed in the T/V row"),
    "performance_per_gpu": ("GFLOPS", "the same per GPU, where the tool prints it"),
    "time": ("s", "wall time of the solve"),
    "residual": ("1", "scaled residual ||Ax-b|| / (eps (||A|| ||x|| + ||b||) N); HPL 1.x: the largest of its three"),
}
FACTS: Mapping[str, str] = {
    "version": "version of the variant (HPL-NVIDIA 25.4.0), else of HPLinpack",
    "program": "name in the title: HPL-NVIDIA, HPLinpack",
    "harness_version": "version of HPLinpack",
    "tests": "rows with a result",
    "residuals": "residual checks printed",
    "passed": "residual checks that passed",
    "failed": "residual checks that failed",
    "verdict": "PASSED, FAILED, or none without a check",
    "last_residual": "the last scaled residual as printed",
    "threshold": "the bound that residuals were compared with",
    "max_gflops": "the best row's rate in GFLOPS",
    "first": "the first row: tv, N, NB, P, Q, time_s, gflops, per_gpu",
    "last": "the last row",
    "tests_announced": "tests that the footers tell of",
    "tests_failed": "tests that the footers call failed",
    "tests_skipped": "tests that the footers call skipped",
    "last_progress": "newest progress line of a run without result: fraction 0 to 1, running rate in GFLOPS",
    "trouble": "the error line that explains an unfinished run",
}
EXPECTATIONS: Mapping[str, str] = {
    "tests": "how many rows there must be",
    "n": "order N that every row must have",
    "nb": "block size NB that every row must have",
    "p": "process rows P that every row must have",
    "q": "process columns Q that every row must have",
}

_MIXED = re.compile(r"HPL[ -]?MxP|HPL-AI|HPL_AI|HPLMXP_|SLOPPY-TYPE|hpl-harness =")
_SURE = re.compile(r"HPLinpack \d|HPL-NVIDIA|HPL_pdgesv\(\)|^.{0,80}T/V +.*N +NB +P +Q +.*Gflops", re.MULTILINE)
_LIKELY = re.compile(
    r"(?:Column=\d+ +Fraction=|Prog= *\d.*\bGF=)|^.{0,80}W[RC]C?\d\w* +\d+ +\d+ +\d+ +\d+ +\d", re.MULTILINE
)
_SMP = re.compile(r"Size +LDA +Align\. +Time\(s\) +GFlops +Residual")


def sniff(head: str) -> float:
    """Say how sure the text is HPL in double precision."""
    if _MIXED.search(head):
        return 0.2 if _SURE.search(head) else 0.0
    if _SURE.search(head):
        return 0.95
    return 0.9 if _SMP.search(head) else 0.6 if _LIKELY.search(head) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give one set of readings a test, then facts, then completeness. Raises OutputError for anything but HPL."""
    run = _Run(expect)
    log = Log(source)
    yield from run.readings(log)
    progress = log.progress()
    trouble = log.trouble() if run.unfinished else None
    if run.mixed and not run.double:
        raise OutputError("this is HPL-MxP (mixed precision), not HPL: use reader hpl_mxp", source=source.name)
    if not run.anything and progress is None and not of_launcher(trouble):
        raise OutputError("no HPL output: no title, no T/V row, no residual check", source=source.name)
    yield from run.facts(progress, trouble)
    yield run.completeness(progress, trouble)


class _Run:
    """What one output says, accumulated at constant memory."""

    def __init__(self, expect: Mapping[str, Scalar]) -> None:
        self.expect = expect
        self.tally = Tally()
        self.smp = SharedMemoryTable()
        self.numbering = Numbering()
        self.banners: dict[bool, Banner] = {}
        self.unexpected = 0
        self.mixed = self.underway = False
        self.threshold: float | None = None
        self.first: Row | None = None
        self.last: Row | None = None
        self.max_gflops: float | None = None
        self._mixed_since_footer = False

    @property
    def double(self) -> bool:
        """Whether anything was solved in double precision, or a program that does so was started."""
        return bool(self.tally.tests or self.smp.begun or False in self.banners)

    @property
    def anything(self) -> bool:
        """Whether HPL in double precision left any trace but progress."""
        return bool(self.tally.tests or self.banners or self.tally.footers or self.smp.begun)

    @property
    def unfinished(self) -> bool:
        """Whether something is missing, so that an error line is worth looking for."""
        return not self._failed() and bool(self._missing())

    def readings(self, log: Log) -> Iterator[Reading]:
        harness = Harness()
        for line in log.records():
            for event in harness.feed(line):
                yield from self._take(event)
            if self.smp.tables or "Size" in line.text or "LINPACK" in line.text:
                for test in self.smp.feed(line):
                    yield from self._test(test)
        for event in harness.close():
            yield from self._take(event)
        yield from self.numbering.rest()
        self.underway = log.ends_underway()

    def _take(self, event: object) -> Iterator[Reading]:
        if isinstance(event, Test):
            yield from self._test(event)
        elif isinstance(event, Footer):
            if self._mixed_since_footer:
                self.tally.disown()
            else:
                self.tally.end(event)
            self._mixed_since_footer = False
        elif isinstance(event, Threshold):
            self.threshold = event.value
        elif isinstance(event, Banner):
            self._mixed_since_footer = event.mixed or (self._mixed_since_footer and event.harness)
            self.mixed |= event.mixed
            if not self._mixed_since_footer:
                self.banners.setdefault(event.harness, event)
                self.tally.begin(event)

    def _test(self, test: Test) -> Iterator[Reading]:
        if test.mixed:
            self.mixed = self._mixed_since_footer = True
            self.tally.disown()
            return
        self.tally.add(test)
        params: dict[str, Scalar] = {"precision": "FP64"}
        if (row := test.row) is not None:
            params = {"precision": "FP64", "N": row.n, "NB": row.nb, "P": row.p, "Q": row.q, "variant": row.variant}
            if row.variant is None:
                params = {key: value for key, value in params.items() if value is not None}
            self.first = self.first or row
            self.last = row
        gflops = row.gflops if row is not None else test.score
        if gflops is None:
            return
        self.unexpected += any(params.get(key.upper()) != value for key, value in self.expect.items() if key != "tests")
        self.max_gflops = max(gflops, self.max_gflops or gflops)
        yield from self.numbering.add(list(_readings(test, gflops, self.numbering.number(params))))

    def facts(self, progress: dict[str, float] | None, trouble: str | None) -> Iterator[Fact]:
        tally = self.tally
        title = self.banners.get(False) or self.banners.get(True)
        harness = self.banners.get(True)
        values: dict[str, Any] = {
            "version": title.version if title else None,
            "program": title.name if title else None,
            "harness_version": harness.version if harness else None,
            "tests": tally.measured,
            "residuals": tally.residuals,
            "passed": tally.passed,
            "failed": tally.failed,
            "verdict": "FAILED" if self._failed() else "PASSED" if tally.passed else "none",
            "last_residual": tally.last_residual,
            "threshold": self.threshold,
            "max_gflops": self.max_gflops,
            "first": _summary(self.first),
            "last": _summary(self.last),
            "tests_announced": tally.announced if tally.footers else None,
            "tests_failed": tally.failed_tests if tally.footers else None,
            "tests_skipped": tally.skipped if tally.footers else None,
            "last_progress": progress if not tally.measured else None,
            "trouble": trouble,
        }
        for name, value in values.items():
            if value is not None:
                yield Fact(name, value)

    def _failed(self) -> bool:
        return bool(self.tally.failed or self.tally.failed_tests or self.smp.failed)

    def completeness(self, progress: dict[str, float] | None, trouble: str | None) -> Completeness:
        status, reason = self._status(progress, trouble)
        expected: dict[str, Any] = dict(self.expect)
        if self.tally.footers:
            expected.setdefault("tests", self.tally.completed)
        found = {"tests": self.tally.measured, "passed": self.tally.passed, "failed": self.tally.failed}
        return Completeness(NAME, status, expected, found, reason)

    def _status(self, progress: dict[str, float] | None, trouble: str | None) -> tuple[Status, str]:
        tally, told = self.tally, f": {trouble}" if trouble else ""
        if self._failed():
            return Status.FAILED, f"residual checks failed: {max(tally.failed, tally.failed_tests, 1)}"
        if not tally.tests and not tally.footers and progress is None:
            return Status.NOT_STARTED, f"no test ran{told}"
        missing = self._missing()
        if not missing:
            return Status.COMPLETE, ""
        if not tally.footers and trouble:
            return Status.ABORTED, f"stopped{told}"
        return Status.INCOMPLETE, "; ".join(missing)

    def _missing(self) -> list[str]:
        tally = self.tally
        found = [] if self.smp.tables and not self.banners else tally.reasons()
        found += self.smp.reasons()
        if not tally.measured:
            found.insert(0, "no result row")
        if "tests" in self.expect and tally.measured != self.expect["tests"]:
            found.append(f"rows: {tally.measured}, expected: {self.expect['tests']}")
        if tally.measured and self.underway:
            found.append("a test after the last result began and gave none")
        if self.unexpected:
            asked = ", ".join(f"{key.upper()}={value}" for key, value in self.expect.items() if key != "tests")
            found.append(f"rows that are not of {asked}: {self.unexpected}")
        return found


def _summary(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    shown = {"tv": row.variant, "N": row.n, "NB": row.nb, "P": row.p, "Q": row.q,
             "time_s": row.time_s, "gflops": row.gflops, "per_gpu": row.per_gpu}  # fmt: skip
    return {key: value for key, value in shown.items() if value is not None}


def _readings(test: Test, gflops: float, params: Params) -> Iterator[Reading]:
    yield Reading("performance", gflops, "GFLOPS", params)
    if test.row is not None:
        if test.row.per_gpu:
            yield Reading("performance_per_gpu", test.row.per_gpu, "GFLOPS", params)
        yield Reading("time", test.row.time_s, "s", params)
    if (residual := test.residual) is not None:
        yield Reading("residual", residual, "1", params)
