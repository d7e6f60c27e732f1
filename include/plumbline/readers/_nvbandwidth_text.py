"""nvbandwidth's text, line by line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from plumbline.readers._nvbandwidth_matrix import Matrix
from plumbline.readers._row_shapes import RowShapes
from plumbline.readers.framing import strip_prefix

_VERSION = "nvbandwidth Version: "
_BANNER = {
    _VERSION: "version",
    "Built from Git version: ": "git_version",
    "CUDA Runtime Version: ": "cuda_runtime",
    "Driver Version: ": "driver",
}
_BANNERS = tuple(_BANNER)
_DEVICE = re.compile(r"(?:Process\s+\d{1,6} \((\S{1,120})\): device|Device) (\d{1,6}): (.{1,160})")
_RUNNING = re.compile(r"Running ([A-Za-z]\w{1,80})\.")
_WAIVED = re.compile(r"(?:Waiving \w{1,80}\.|Waived:.{0,200})")
_ERROR = re.compile(r"(?:Error|ERROR): ?(.{0,300})")
_FAULT = re.compile(
    r"(?:Invalid value when checking the pattern\b|(?:ASSERT|\[\w{1,80}\] .{1,200}) in expression |"
    r"(?:.{0,80}\()?core dumped\)|terminate called after ).{0,300}"
)
"""How a run ends at once: data that came over wrong, a call that failed, a crash."""
_DESCRIPTION = re.compile(r"[A-Za-z].{0,160} (?:bandwidth \((GB/s)\)|\((ns)\))")
_LABELS = re.compile(r"(?:\s+[\w().:-]{1,60})+\s*")
_SUM = re.compile(
    r"(?:SUM|&&&& PERF) ([A-Za-z]\w{1,80}) ([0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\s?\+?(?:GB/s|ns))?\s*", re.ASCII
)
_CELL = re.compile(r"N/A|[0-9]{1,9}\.[0-9]{2}", re.ASCII)
_FOOTER = "The reported results may not reflect the full capabilities"
_OLD_NOTE = "This tool reports current measured bandwidth"
_ROW = re.compile(r"\s*[0-9]{1,4}(?:\s+(?:N/A|[0-9]{1,9}\.[0-9]{2}))+\s*", re.ASCII)
"""A row whose label is a number: nothing that a launcher puts before a line looks like its beginning."""
_MOST_COLUMNS = 4096
_LONGEST_ROW = 20 * _MOST_COLUMNS
REPORT_MARKS = ('"testcases"', '"bandwidth_description"', '"bandwidth_matrix"')
"""Words that only reports have."""
LARGEST_REPORT = 64 << 20
"""Characters of a report that are read; that there were more is seen from one line more."""


@dataclass(slots=True)
class Outcome:
    """What an output holds, text and report alike."""

    banner: dict[str, object] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    tests: dict[str, None] = field(default_factory=dict)
    matrices: list[Matrix] = field(default_factory=list)
    """Those that `take_matrices` did not give yet."""
    names: Counter[str] = field(default_factory=Counter)
    """How many matrices of each name it gave."""
    tests_given: set[str] = field(default_factory=set)
    """The tests whose matrices it gave."""
    sums: dict[str, float] = field(default_factory=dict)
    """Sums as printed, also those that are not the sum of their cells."""
    waived: int = 0
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failed_tests: set[str] = field(default_factory=set)
    ended: bool = False
    has_footer: bool = True
    """False for versions until 0.5, which end without one."""
    touched: bool = False

    def take_matrices(self) -> Iterator[Matrix]:
        """Give the matrices found since the last time, and keep no more of them than their names."""
        for matrix in self.matrices:
            self.names[matrix.name] += 1
            self.tests_given.add(matrix.test)
            yield matrix
        self.matrices.clear()

    def without_matrix(self) -> list[str]:
        """Give the tests that ran, did not fail, and gave no whole matrix."""
        given = self.tests_given | self.failed_tests
        return [name for name in self.tests if name not in given]


def _is_of_interest(line: str) -> bool:
    """Say whether a line may be nvbandwidth's; one chain of tests, for it runs on every line of long logs."""
    return (
        "Device " in line or "ersion" in line or "SUM " in line or "unning " in line or "B/s" in line or "(ns)" in line
        or "PERF" in line or "Waiv" in line or "RROR" in line or "Error" in line or "Process" in line
        or "NOTE" in line or "{" in line or "Warning" in line or " in expression " in line or "nvalid value" in line
        or "core dumped" in line or "terminate called" in line
    )  # fmt: skip


def _numbers(cells: Sequence[str]) -> list[float | None]:
    return [None if cell == "N/A" else float(cell) for cell in cells]


class TextScan:
    """Collects an Outcome; what looks like JSON reports is only gathered in `report_lines`."""

    def __init__(self) -> None:
        """Start at the first line."""
        self.outcome = Outcome()
        self.report_lines: list[str] = []
        self._in_report = False
        self._report_size = 0
        self._test = ""
        self._begun = False
        """Whether a run has begun that gave no result yet."""
        self._matrix: Matrix | None = None
        self._unit: str | None = None
        self._rows = RowShapes(_ROW, _LONGEST_ROW)

    def feed(self, lines: Sequence[str], whole: bool) -> None:
        """Take over lines; `whole` says that they had their line ends."""
        passed = 0
        for at, line in enumerate(lines):
            if at < passed:
                continue
            if self._matrix is not None and whole and (taken := self._plain_rows(self._matrix, lines, at)):
                passed = at + taken
            elif line or self._in_report or self._unit is not None:
                self._feed_line(line, whole)

    def _feed_line(self, line: str, whole: bool) -> None:
        interesting = _is_of_interest(line)
        if not (interesting or self._in_report or self._matrix or self._unit):
            return
        text = strip_prefix(line)
        self._in_report = self._is_of_report(text)
        if self._in_report:
            if self._report_size <= LARGEST_REPORT + 1:
                self.report_lines.append(text)
            self._report_size += len(text) + 1
            return
        if not whole:
            if self._matrix is not None and text.strip():
                self._tear(text)
            return
        if self._unit is not None and text.strip():
            self._begin_matrix(text)
        elif self._matrix is not None and text.strip() and self._row(self._matrix, text):
            return
        elif interesting if text is line else _is_of_interest(text):
            self._line(text.strip())

    def _is_of_report(self, text: str) -> bool:
        """Say whether a line is a report's: from a brace, alone where a text run came before, to the next banner."""
        if self._in_report:
            return _VERSION not in text
        bare = text.strip()
        begins = bare == "{" or (bare[:1] == "{" and not self.outcome.touched) or any(m in text for m in REPORT_MARKS)
        if begins:
            self._miss_end()
        return begins

    def _begin_matrix(self, text: str) -> None:
        unit, self._unit = self._unit or "", None
        labels = text.split()
        if not _LABELS.fullmatch(text[: 64 * _MOST_COLUMNS]) or len(labels) > _MOST_COLUMNS:
            self._tear(text)
            return
        self._matrix = Matrix(self._test, unit, tuple(labels))

    def _plain_rows(self, matrix: Matrix, lines: Sequence[str], at: int) -> int:
        """Take rows whose labels are numbers, as many as there are columns if they are all there. Give how many."""
        if not self._rows.has(lines[at]):
            return 0
        width = len(matrix.columns)
        if not matrix.labels and width > 1 and (square := self._rows.square(lines[at : at + width], width)):
            matrix.labels, cells = square
            matrix.values = _numbers(cells)
            return width
        label, *cells = lines[at].split()
        if len(cells) != width:
            return 0
        matrix.labels.append(label)
        matrix.values += _numbers(cells)
        return 1

    def _row(self, matrix: Matrix, text: str) -> bool:
        """Take a row of the open matrix. False when the line is none."""
        cells = text.split()
        bare = text.strip()
        if cells[0] in ("SUM", "&&&&") or any(form.fullmatch(bare) for form in (_RUNNING, _DESCRIPTION, _FAULT)):
            return False
        values = cells[-len(matrix.columns) :]
        if len(cells) <= len(matrix.columns) or not all(_CELL.fullmatch(cell) for cell in values):
            self._tear(text)
            return True
        label = " ".join(cells[: -len(matrix.columns)])
        matrix.labels.append(label)
        matrix.values += _numbers(values)
        return True

    def _tear(self, text: str) -> None:
        self._matrix = None
        self._miss(f"a matrix of {self._test or 'a test'} is damaged or cut: {text.strip()[:120]}")

    def _line(self, text: str) -> None:
        begins = text[:4]
        if begins in ("SUM ", "&&&&") and (match := _SUM.fullmatch(text)):
            self._sum(match[1], match[2])
        elif begins == "Runn" and (match := _RUNNING.fullmatch(text)):
            self._leave()
            self._test = match[1]
            self.outcome.tests[match[1]] = None
            self.outcome.touched = True
        elif begins == "Waiv" and _WAIVED.fullmatch(text):
            self._leave()
            self._begun = False
            self.outcome.waived += 1
        elif begins in ("Erro", "ERRO") and (match := _ERROR.fullmatch(text)):
            self._leave()
            self._error(match[1])
        elif _FAULT.fullmatch(text):
            self._leave()
            self._error(text[:300])
        elif (
            text[-1:] == ")"
            and text.endswith((" bandwidth (GB/s)", " (ns)"))
            and (match := _DESCRIPTION.fullmatch(text))
        ):
            self._leave()
            self._unit = match[1] or match[2]
        else:
            self._remark(text)

    def _error(self, text: str) -> None:
        self.outcome.errors.append(f"{self._test}: {text}" if self._test else text)
        self.outcome.failed_tests.add(self._test)
        del self.outcome.errors[20:]

    def _remark(self, text: str) -> None:
        outcome = self.outcome
        if text[:7] in ("Device ", "Process") and (match := _DEVICE.fullmatch(text)):
            if len(outcome.devices) < _MOST_COLUMNS:
                outcome.devices.append(match[3].strip())
            return
        if text.startswith(_BANNERS):
            self._banner(text)
        if _FOOTER in text:
            outcome.ended, self._begun = True, False
        elif _OLD_NOTE in text:
            outcome.has_footer = False
        elif text.startswith(("NOTE:", "Warning:")) and len(outcome.warnings) < 10:
            outcome.warnings.append(text[:300])

    def _banner(self, text: str) -> None:
        start = next(start for start in _BANNERS if text.startswith(start))
        value = text.removeprefix(start).strip()
        number = int(value) if value.isascii() and value.isdecimal() and len(value) < 12 else value
        self.outcome.banner.setdefault(_BANNER[start], number)
        self.outcome.touched, self.outcome.ended = True, False  # another run may follow one that has ended
        if _BANNER[start] == "version":
            if self._begun:
                self._leave()
                self._miss("a run that began before another gave no result")
            self._begun = True

    def _miss(self, problem: str) -> None:
        self.outcome.problems.append(problem)
        del self.outcome.problems[20:]

    def _sum(self, name: str, value: str) -> None:
        matrix, self._matrix = self._matrix, None
        self.outcome.touched = True
        if len(self.outcome.sums) < _MOST_COLUMNS:
            self.outcome.sums[name] = float(value)
        if matrix is None or not matrix.labels:
            self._miss(f"the sum of {name} stands without its matrix")
            return
        matrix.name, matrix.printed_sum = name, float(value)
        matrix.test = matrix.test or name
        if matrix.sum_agrees():
            self.outcome.matrices.append(matrix)
            self._begun = False
        else:
            self._miss(f"the sum {value} of {name} is not that of its cells")

    def _leave(self) -> None:
        """Give up a matrix whose sum never came."""
        if self._matrix is not None or self._unit is not None:
            self._unit = None
            self._tear("it has no sum")

    def _miss_end(self) -> None:
        """Tell of a text run beside a report that it has no end: the report has one, and would speak for both."""
        if self.outcome.touched and not self.outcome.ended:
            self._miss("a text run beside the report has no end")

    def finish(self) -> Outcome:
        """Give what was found."""
        self._leave()
        if self.report_lines:
            self._miss_end()
        if self._begun and (self.outcome.names or self.outcome.matrices):
            self._miss("a run after the last result began and gave none")
        return self.outcome
