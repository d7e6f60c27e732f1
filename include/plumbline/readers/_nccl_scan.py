"""Line by line through an output of nccl-tests: which run does a line belong to, and what does it say?"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from plumbline.errors import OutputError
from plumbline.readers import _nccl_log as log
from plumbline.readers._nccl_reports import Reports
from plumbline.readers._nccl_run import Run
from plumbline.readers._nccl_table import Block, Layout, Row, is_header, placements, starts_like_row
from plumbline.readers.framing import peel
from plumbline.readers.reading import Reading

_MOST_RUNS = 10_000
_MOST_FAULTS = 20
_MOST_AT_ONCE = 64
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(-?nan|-?inf|\d{1,18}(?:\.\d{1,18})?(?:e[+-]\d\d)?)(?:\s+(OK|FAILED))?")
_PROGRAM_LINE = re.compile(r"# (plumbline [a-z_]{1,40}: .{1,200})")
_LAST_ERROR = re.compile(r"# error: (.{1,300})")
_HEAD_LINES = 2000
_TAIL_LINES = 300
"""So many lines that say nothing of a table are searched for a launcher's complaint, at the start and at the end."""
_TABLE_STARTS = frozenset((" ", "", ".", "	", "…", *"0123456789"))
_REPORT_STARTS = frozenset(("{", "n"))


class Scan:
    """What was read so far. Memory does not grow with the input, but with the number of runs and ranks in it."""

    def __init__(self) -> None:
        """Start at the first line."""
        self._all: list[Run] = []
        self._reported: list[Run] = []
        """Those of them that reports in JSON or CSV tell."""
        self.chatter = log.Chatter()
        self.faults: list[tuple[str, str]] = []
        self.program: str | None = None
        self._open: dict[str, Run] = {}
        self._places: dict[str, tuple[bool, ...]] = {}
        self._fragments: dict[int, str] = {}
        self._in_table = 0
        self._at_once = 2
        self._plain: Run | None = None
        """The one run whose table is open, when its lines carry no prefix: rows are then known by their first byte."""
        self._lines = 0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._averaged: set[int] = set()
        self.reports = Reports(self)

    def new_run(self, **fields: Any) -> Run:
        """Give a run with the next number; `append` makes it one of the file's."""
        return Run(index=len(self._all), **fields)

    def last(self) -> Run | None:
        """Give the newest run."""
        return self._all[-1] if self._all else None

    def twin_table(self, run: Run) -> Run | None:
        """Give the run in text that a report tells again, or None."""
        return next((other for other in self._all if other.layout is not None and other.is_twin(run)), None)

    @property
    def runs(self) -> list[Run]:
        """The runs in order, each told once."""
        return [run for run in self._all if not run.duplicate]

    # -- lines ---------------------------------------------------------------------------------------------------

    def feed_all(self, lines: list[str], whole: bool) -> Iterator[Iterable[Reading]]:
        """Take over lines; `whole` says that they had their line ends. Gives the readings as they are due."""
        at = 0
        while at < len(lines):
            line, run = lines[at], self._plain
            if line[:1] == " " and run is not None and run.layout and whole and not self._fragments:
                if run.streams and (block := self._block(run.layout, lines, at)):
                    yield run.add_block(block, with_run=run.index > 0)
                    at += len(block.sizes)
                    continue
                row = run.layout.row(line)
                due = self.feed(line, whole) if row is None else self.add_row(run, row)
            else:
                due = self.feed(line, whole)
            at += 1
            if due:
                yield due

    def _block(self, layout: Layout, lines: list[str], at: int) -> Block | None:
        """Read rows that follow each other; how many at once grows while there are, and shrinks where there aren't."""
        block = layout.block(lines[at : at + self._at_once])
        whole = block is not None and len(block.sizes) == self._at_once
        self._at_once = min(4 * self._at_once, _MOST_AT_ONCE) if whole else max(2, self._at_once // 4)
        return block

    def feed(self, line: str, whole: bool = True) -> Iterable[Reading]:
        """Take over one line; `whole` says that it had its line end. Gives the readings that are due.

        Cheap tests come first: of most logs, hardly a line has something to say.
        """
        first = line[:1]
        if " NCCL " in line and (" NCCL INFO" in line or " NCCL WARN" in line):
            if self._in_table and whole and (self._plain is None or first == " "):
                self._glued(line)
            self.chatter.nccl_line(line)
            return ()
        self._lines += 1
        if (
            "#" in line
            or self._lines < _HEAD_LINES
            or (self._in_table and (self._plain is None or first in _TABLE_STARTS))
            or self.reports.is_open
            or first in _REPORT_STARTS
            or "_perf" in line
        ):
            return self._line(line, whole)
        if "ignal" in line or "Test " in line or "Segm" in line or "Killed" in line or "CANCELLED" in line:
            self._fault(line)
        else:
            self._tail.append(line)
        return ()

    def _line(self, line: str, whole: bool) -> Iterable[Reading]:
        origin, text = peel(line)
        if self.reports.wants(text):
            return self.reports.line(line, text, whole)
        if text[:1].isalnum() and ": " in text[:120]:
            host, inner = peel(text, hosts=True)
            if inner.lstrip()[:1] in ("#", *"0123456789"):
                origin, text = f"{origin} {host}" if origin else host, inner
        run = self._open.get(origin)
        if run is not None and run.begun and not run.ended and "#" not in text:
            if origin[:1] == "[" and origin in text:  # MPICH and Intel MPI tag anew what the tool writes after a pause
                text = text.replace(f"{origin} ", "")
            due = self._table_line(run, text, whole)
            if due is not None:
                return due
        if not whole:
            return ()
        if is_header(text):
            return self._begin_table(origin, text, plain=text is line)
        return self._telling_line(origin, text)

    def _telling_line(self, origin: str, text: str) -> Iterable[Reading]:
        """Read a line of the banner or the footer, or what a launcher says."""
        if "bus bandwidth" in text or "Out of bounds" in text:
            return self._footer(origin, text)
        if "-place" in text and (found := placements(text)):
            self._places[origin] = found
        elif "nThread" in text and (said := log.settings(text)):
            due = self._new_run(origin, lambda run: bool(run.settings) or run.begun)
            self._open[origin].settings = said
            return due
        elif " device " in text and (rank := log.rank_line(text)):
            due = self._new_run(origin, lambda run: run.begun)
            self._open[origin].ranks.append(rank)
            self.chatter.hosts.add(rank["host"])
            return due
        elif "Collective test starting" in text or "nccl-tests version" in text:
            due = self._new_run(origin, lambda run: run.begun or bool(run.settings))
            self._open[origin].operation = log.operation_started(text) or self._open[origin].operation
            self.chatter.version_line(text)
            return due
        else:
            self._remark(origin, text)
        return ()

    def _remark(self, origin: str, text: str) -> None:
        run = self._open.get(origin)
        if (most := log.memory_limit(text)) is not None and run is not None:
            run.memory_limit = most
        elif (match := _LAST_ERROR.match(text)) and run is not None:
            run.extra["last_error"] = match[1].strip()
        elif match := _PROGRAM_LINE.match(text):
            self.program = match[1]
        elif "Collective test concluded" in text and run is not None:
            run.operation = run.operation or log.program_named(text)
            return
        self.chatter.version_line(text)
        self._fault(text)

    def _fault(self, line: str) -> None:
        if len(self.faults) < _MOST_FAULTS and (found := log.fault(line)) and found not in self.faults:
            self.faults.append(found)
        if "_perf" in line and (named := log.program_named(line)):
            self.chatter.programs[named] = None

    # -- runs and tables -----------------------------------------------------------------------------------------

    def _new_run(self, origin: str, is_over: Callable[[Run], bool]) -> Iterable[Reading]:
        """Begin a run for this origin unless one is open that lacks just what comes now."""
        run = self._open.get(origin)
        if run is not None and not is_over(run) and not run.ended:
            return ()
        return self.append(self.new_run(), origin)

    def append(self, run: Run, origin: str | None) -> list[Reading]:
        """Take over a new run: of lines with this origin, or (None) of a report. Gives the readings that are due.

        Raises OutputError above 10,000 runs.
        """
        if len(self._all) >= _MOST_RUNS:
            raise OutputError(f"more than {_MOST_RUNS} runs in one file")
        due: list[Reading] = []
        self._all.append(run)
        if run.index == 1:
            due = self._all[0].hand_out(with_run=True)
        if origin is None:
            self._reported.append(run)
        else:
            if (last := self._open.get(origin)) is not None:
                self._in_table -= last.begun and not last.ended
                self._plain = None
                due += self._close(last)
            run.operation = self.chatter.next_program()
            self._open[origin] = run
        return due

    def _begin_table(self, origin: str, text: str, plain: bool) -> Iterable[Reading]:
        due: Iterable[Reading] = ()
        run = self._open.get(origin)
        if run is None or run.ended or run.rows:
            due = self.append(self.new_run(), origin)
        run = self._open[origin]
        run.layout = Layout(text, self._places.pop(origin, None))
        self._in_table += not run.begun
        run.begun = True
        self._plain = run if plain and self._in_table == 1 else None
        return due

    def _table_line(self, run: Run, text: str, whole: bool) -> Iterable[Reading] | None:
        """Read a line while a table is open; None when it is no part of it."""
        if run.layout is None:
            return None
        row = run.layout.row(text) if whole else None
        fragment = self._fragments.pop(run.index, None)
        if row is not None:
            if fragment is not None:
                run.torn = run.torn or fragment.strip()
            return self.add_row(run, row)
        if fragment is not None and whole and (row := run.layout.row(fragment + text)) is not None:
            return self.add_row(run, row)
        if fragment is not None:
            self._fragments[run.index] = fragment
        if starts_like_row(text):
            self._hold(run, text, sure=False)
            return ()
        if text.strip() in ("...", "…", "[...]"):
            run.elided = True
            return ()
        return None if text.strip() else ()

    def _hold(self, run: Run, text: str, sure: bool) -> None:
        """Keep the beginning of a row whose rest may follow. Between groups of columns the tool may be interrupted."""
        if (before := self._fragments.pop(run.index, None)) is not None:
            run.torn = run.torn or before.strip()
        if sure or (run.layout is not None and run.layout.at_edge(text)):
            self._fragments[run.index] = text
        else:
            run.torn = run.torn or text.strip()[:160]

    def _glued(self, line: str) -> None:
        """Take what stands before NCCL's own message in a line, where a row was interrupted by it."""
        origin, text = peel(line)
        run = self._open.get(origin)
        if run is None or run.layout is None or not run.begun or run.ended or not text:
            return
        at, sure = log.nccl_tag(text, self.chatter.hosts)
        if not at or not text[:at].strip():
            return
        before = self._fragments.get(run.index)
        if before is not None and not starts_like_row(text[:at]):
            self._fragments.pop(run.index)
            self._hold(run, before + text[:at], sure)
        elif starts_like_row(text[:at] + " "):
            self._hold(run, text[:at], sure)

    def add_row(self, run: Run, row: Row) -> Iterable[Reading]:
        """Take over one row. Gives the readings that are due."""
        if run.add(row):
            return run.hand_out(with_run=run.index > 0)
        return ()

    def _footer(self, origin: str, text: str) -> Iterable[Reading]:
        bounds, average = _OUT_OF_BOUNDS.search(text), _AVERAGE.search(text)
        if bounds is None and average is None:
            return ()
        due: Iterable[Reading] = ()
        run = self._open.get(origin)
        if run is None:
            due = self.append(self.new_run(), origin)
            run = self._open[origin]
        if (fragment := self._fragments.pop(run.index, None)) is not None:
            run.torn = run.torn or fragment.strip()
        ended = run.ended
        if bounds and (run.out_of_bounds is None or bounds[2] == "FAILED"):
            run.out_of_bounds, run.oob_status = int(bounds[1]), bounds[2]
        if average and not run.average_seen:
            run.average_seen, run.average_status = True, average[2]
            run.average = None if average[1][-1] in "nf" else float(average[1])
        if run.ended and not ended:
            self._in_table -= run.begun
            self._plain = None
            run.duplicate = any(report.is_twin(run) for report in self._reported)
            if run.index:
                return [*due, *self._close(run)]
        return due

    def _close(self, run: Run) -> list[Reading]:
        """Give what is left of a run's readings: its rows that wait, and once its average."""
        if run.duplicate:
            return []
        with_run = len(list(islice((run for run in self._all if not run.duplicate), 2))) > 1
        due = run.hand_out(with_run)
        if run.average is not None and run.index not in self._averaged:
            self._averaged.add(run.index)
            params: dict[str, Any] = {"operation": run.name()} if run.name() else {}
            if with_run:
                params["run"] = run.index
            due.append(Reading("average_bus_bandwidth", run.average, "GB/s", params))
        return due

    def finish(self) -> Iterator[Reading]:
        """Give what is left at the end of the input."""
        for line in self._tail:
            self._fault(line)
        yield from self.reports.finish()
        for index, fragment in self._fragments.items():
            self._all[index].torn = self._all[index].torn or fragment.strip()
        for run in self._all:
            if not run.has_footer:
                run.duplicate = self.twin_table(run) is not None
            yield from self._close(run)
