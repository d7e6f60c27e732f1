"""HPL's harness as it runs: which tests there were, how each check ended, whether the footer accounts for all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from plumbline.readers._hpl_lines import (
    Banner,
    Line,
    Residual,
    Row,
    banner,
    is_row,
    layout,
    number,
    residual,
    row,
)

_FINISHED = re.compile(r"\s*Finished\s+(\d{1,9}) tests with the following results:")
_COUNT = re.compile(
    r"\s*(\d{1,9}) tests (?:completed and (passed|failed) residual checks,|completed (without) checking,|"
    r"(skipped) because of illegal input values\.)"
)
_SCORE = re.compile(r"\s*Final Score:\s+(\S+) GFLOPS")
_CONSOLE_CHECK = re.compile(r"\s*Residual Check:\s+(PASSED|FAILED)")
_THRESHOLD = re.compile(r"residuals are less than\s+(\S+)")


@dataclass(slots=True, kw_only=True)
class Test:
    """One solved system. `row` is None where its line is missing or damaged; `score` is rocHPL's console line."""

    row: Row | None = None
    score: float | None = None
    residuals: list[Residual] = field(default_factory=list)
    damaged: bool = False
    mixed: bool = False

    @property
    def measured(self) -> bool:
        """Whether there is a rate."""
        return self.row is not None or self.score is not None

    @property
    def checked(self) -> bool:
        """Whether all residual checks of a test are there."""
        return bool(self.residuals) and len(self.residuals) >= self.residuals[0].of

    @property
    def residual(self) -> float | None:
        """Give the largest scaled residual; None where a check is missing or has no finite number."""
        values = [check.value for check in self.residuals if check.value is not None]
        return max(values) if self.checked and len(values) == len(self.residuals) else None


@dataclass(slots=True, kw_only=True)
class Footer:
    """What the harness says of itself at the end: how many tests, and how they ended."""

    finished: int
    passed: int = 0
    failed: int = 0
    without: int = 0
    skipped: int = 0

    @property
    def completed(self) -> int:
        """How many rows the tests above it must have."""
        return max(self.passed + self.failed + self.without, self.finished - self.skipped)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The bound that residuals are compared with."""

    value: float


Event = Test | Footer | Banner | Threshold


class Harness:
    """Takes lines one by one and gives what they complete, in order: tests, footers, banners, thresholds."""

    def __init__(self) -> None:
        """Start before the first line."""
        self.columns: tuple[str, ...] | None = None
        self._test: Test | None = None
        self._footer: Footer | None = None
        self._mixed = False
        self._wrapped = False
        self._in_suite = False

    @property
    def in_table(self) -> bool:
        """Whether a test's row was seen last, so that a residual check belongs to it."""
        return self._test is not None

    def feed(self, line: Line) -> Iterable[Event]:
        """Take one line. What is given must be gone through before the next is taken."""
        text = line.text
        wrapped, self._wrapped = self._wrapped, False
        if "Ax-b" in text or wrapped:
            if check := residual(text, wrapped=wrapped):
                return self._check(check)
            self._wrapped = text.rstrip().endswith("=")
        events: Iterable[Event] = ()
        if "T/V" in text and line.whole and (names := layout(text)):
            self.columns = names
            events = self.close()
        elif is_row(text):
            events = list(self.close())
            found = row(line, self.columns)
            mixed = self._mixed or (found is not None and found.mixed)
            self._test = Test(row=found, damaged=found is None, mixed=mixed)
        elif " tests " in text or "Finished" in text:
            events = self._count(text)
        elif "HPL" in text and (title := self._title(text)):
            events = [*self.close(), title]
            self._mixed = title.mixed or (self._mixed and title.harness)
            self.columns = None
        elif "HPLMXP_" in text and self._test is not None:
            self._test.mixed = True
        elif "Final Score" in text or "Residual Check" in text:
            events = self._console(text)
        return events

    def _title(self, text: str) -> Banner | None:
        title = banner(text)
        if title is None:
            self._in_suite |= "Begin of HPL section" in text
        elif self._in_suite:
            title, self._in_suite = replace(title, continues=True), False
        return title

    def close(self) -> Iterator[Event]:
        """Give the test that is open, at the end of the output or where another begins."""
        if self._test is not None:
            test, self._test = self._test, None
            yield test

    def _check(self, check: Residual) -> Iterator[Event]:
        if self._test is None:
            yield Test(residuals=[check], mixed=self._mixed)
        else:
            self._test.residuals.append(check)

    def _console(self, text: str) -> Iterator[Event]:
        """Read rocHPL's console lines, which repeat the table unless that went to a file."""
        if "Final Score" in text and (match := _SCORE.match(text)):
            if self._test is None or self._test.residuals or self._test.score is not None:
                yield from self.close()
                self._test = Test(score=number(match[1]), mixed=self._mixed)
        elif (
            "Residual Check" in text
            and (match := _CONSOLE_CHECK.match(text))
            and self._test is not None
            and not self._test.residuals
        ):
            self._test.residuals.append(Residual("", None, match[1] == "PASSED"))

    def _count(self, text: str) -> Iterator[Event]:
        if match := _FINISHED.match(text):
            yield from self.close()
            self._footer = Footer(finished=int(match[1]))
        elif self._footer is not None and (match := _COUNT.match(text)):
            name = match[2] or match[3] or match[4]
            setattr(self._footer, name, int(match[1]))
            if name == "skipped":
                footer, self._footer = self._footer, None
                yield footer
        elif (match := _THRESHOLD.search(text)) and (bound := number(match[1])) is not None:
            yield Threshold(bound)


class Titles:
    """The titles since the last result: a program and HPL's harness print one each, a second one is another run's."""

    def __init__(self) -> None:
        """Start before the first title."""
        self.lost = 0
        """Runs that printed a title and no result before the next began."""
        self._seen: set[bool] = set()

    @property
    def waiting(self) -> bool:
        """Whether a run has begun that gave no result yet."""
        return bool(self._seen)

    def note(self, title: Banner) -> None:
        """Take a title."""
        if title.harness in self._seen and not title.continues:
            self.lost += 1
            self._seen.clear()
        self._seen.add(title.harness)

    def answered(self) -> None:
        """Note that the run that printed them gave a result, or is none of those that are counted."""
        self._seen.clear()


class Tally:
    """Counts over tests and footers: enough to say whether everything announced was seen, at constant memory."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.tests = self.measured = self.unchecked = self.damaged = 0
        self.residuals = self.passed = self.failed = 0
        self.last_residual: str | None = None
        self.footers = 0
        self.announced = self.completed = self.failed_tests = self.skipped = self.without = 0
        self.problems: list[str] = []
        self.titles = Titles()
        self._open = 0
        self._run_open = False

    def begin(self, title: Banner) -> None:
        """Note that a program started: its footer must follow."""
        self.titles.note(title)
        self._run_open = True

    def disown(self) -> None:
        """Note that the run whose title came last is none of those that are counted."""
        self.titles.answered()
        self._run_open = self._open > 0

    def add(self, test: Test) -> None:
        """Count one test."""
        self.tests += 1
        self._open += test.measured
        self._run_open = True
        self.measured += test.measured
        self.damaged += not test.measured
        self.unchecked += not test.checked
        for check in test.residuals:
            self.residuals += 1
            self.passed += check.passed
            self.failed += not check.passed
            self.last_residual = check.text or self.last_residual

    def end(self, footer: Footer) -> None:
        """Compare a footer with the tests since the last one."""
        self.footers += 1
        self.announced += footer.finished
        self.completed += footer.completed
        self.failed_tests += footer.failed
        self.skipped += footer.skipped
        self.without += footer.without
        if self._open != footer.completed and len(self.problems) < 10:
            self.problems.append(f"readable rows: {self._open}, tests in the footer: {footer.completed}")
        self._open, self._run_open = 0, False
        self.titles.answered()

    def reasons(self) -> list[str]:
        """Say what is missing, most telling first; empty when all that was announced is there."""
        found = list(dict.fromkeys(self.problems))
        if self.footers == 0:
            found.append("no 'Finished … tests' footer")
        elif self._run_open:
            found.append("a run after the last 'Finished … tests' footer has none")
        if self.titles.lost:
            found.append(f"runs that began before another and have no 'Finished … tests' footer: {self.titles.lost}")
        if self.unchecked:
            found.append(f"tests without a residual check: {self.unchecked}")
        if self.damaged and self.footers == 0:
            found.append(f"tests without a readable row: {self.damaged}")
        if self.skipped:
            found.append(f"tests skipped because of illegal input values: {self.skipped}")
        if self.footers and self.completed == 0:
            found.append("no test was completed")
        return found
