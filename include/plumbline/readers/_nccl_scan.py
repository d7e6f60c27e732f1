"""Line by line through an output of nccl-tests: which run does a line belong to, and what does it say?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from plumbline.errors import OutputError
from plumbline.readers import _nccl_json as report
from plumbline.readers import _nccl_log as log
from plumbline.readers._nccl_run import Run
from plumbline.readers._nccl_table import Layout, Row, is_header, placements, starts_like_row
from plumbline.readers.framing import peel
from plumbline.readers.reading import Reading
from plumbline.readers.source import strip_ansi

_MOST_RUNS = 10_000
_MOST_FAULTS = 20
_LARGEST_REPORT = 256 << 20
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(-?nan|-?inf|\d{1,18}(?:\.\d{1,18})?(?:e[+-]\d\d)?)(?:\s+(OK|FAILED))?")
_PROGRAM_LINE = re.compile(r"# (plumbline [a-z_]{1,40}: .{1,200})")
_LAST_ERROR = re.compile(r"# error: (.{1,300})")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_REPORT_LINE = re.compile(r'\s*(?:$|[{}\[\]",\d-]|true|false|null)')
_NEWS = (b" via ", b" WARN ", b"-> Algo", b"Using network", b"NVLS", b"ersion")
_TELLING = (b"Out of bounds", b"bus bandwidth", b"nThread", b"ersion", b"_perf", b'"numCycle"', b"numCycle,")
_SIGNS = (
    b"ailure", b"rror", b"ignal", b"fault", b"Killed", b"CANCELLED", b"LIMIT", b"imeout", b"unable", b"enough", b"ound",
    b"No such", b"nvalid", b"memory", b"denied", b"noticed", b"detected", b"insufficient", b"no CUDA", b"requested",
    b"supported",
)  # fmt: skip


class Scan:
    """What was read so far. Memory does not grow with the input, but with the number of runs and ranks in it."""

    def __init__(self) -> None:
        """Start at the first line."""
        self._all: list[Run] = []
        self.chatter = log.Chatter()
        self.faults: list[tuple[str, str]] = []
        self.program: str | None = None
        self.first_line = ""
        self._open: dict[str, Run] = {}
        self._places: dict[str, tuple[bool, ...]] = {}
        self._fragments: dict[int, str] = {}
        self._in_table = 0
        self._report: list[str] | None = None
        self._report_depth = 0
        self._csv_names: list[str] | None = None
        self._report_bytes = 0
        self._record: Mapping[str, Any] | None = None
        self._averaged: set[int] = set()

    @property
    def runs(self) -> list[Run]:
        """The runs in order, each told once."""
        return [run for run in self._all if not run.duplicate]

    # -- lines ---------------------------------------------------------------------------------------------------

    def feed(self, raw: bytes, whole: bool = True) -> Iterable[Reading]:
        """Take over one line; `whole` says that it had its line end. Gives the readings that are due."""
        if not self.first_line and raw.strip():
            self.first_line = raw[:200].decode("utf-8", "replace")
        if b"NCCL " in raw and (b"NCCL INFO" in raw or b"NCCL WARN" in raw):
            if self._in_table and whole:
                self._glued(_text(raw))
            for word in _NEWS:
                if word in raw:
                    self.chatter.nccl_line(_text(raw))
                    break
            return ()
        telling = b"#" in raw or self._in_table or self._report is not None or raw.lstrip()[:1] == b"{"
        if not telling and not any(word in raw for word in _TELLING):
            for sign in _SIGNS:
                if sign in raw:
                    self._fault(_text(raw))
                    break
            return ()
        return self._line(_text(raw), whole)

    def _line(self, line: str, whole: bool) -> Iterable[Reading]:
        origin, text = peel(line)
        if self._report is not None or (text[:1] in "{ " and report.starts_report(text)):
            return self._report_line(line, text, whole)
        if self._csv_names or '"numCycle"' in line or line.startswith("numCycle,"):
            return self._record_line(line, whole)
        if text[:1].isalnum() and ": " in text[:120]:
            host, inner = peel(text, hosts=True)
            if inner.lstrip()[:1] in ("#", *"0123456789"):
                origin, text = f"{origin} {host}" if origin else host, inner
        run = self._open.get(origin)
        if run is not None and run.begun and not run.ended and "#" not in text:
            due = self._table_line(run, text, whole)
            if due is not None:
                return due
        if whole:
            return self._telling_line(origin, text)
        return ()

    def _telling_line(self, origin: str, text: str) -> Iterable[Reading]:
        """Read a line of the banner, the header or the footer, or what a launcher says."""
        if is_header(text):
            return self._begin_table(origin, text)
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
            self._open[origin].operation = log.program_named(text) or self._open[origin].operation
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
        return self._append(Run(index=len(self._all)), origin)

    def _append(self, run: Run, origin: str | None) -> list[Reading]:
        if len(self._all) >= _MOST_RUNS:
            raise OutputError(f"more than {_MOST_RUNS} runs in one file")
        due: list[Reading] = []
        if run.index == 1:
            due = list(self._all[0].hand_out(with_run=True))
        if origin is not None:
            if (last := self._open.get(origin)) is not None:
                self._in_table -= last.begun and not last.ended
                due += self._close(last)
            run.operation = self.chatter.next_program()
            self._open[origin] = run
        self._all.append(run)
        return due

    def _begin_table(self, origin: str, text: str) -> Iterable[Reading]:
        due: Iterable[Reading] = ()
        run = self._open.get(origin)
        if run is None or run.ended or run.rows:
            due = self._append(Run(index=len(self._all)), origin)
        run = self._open[origin]
        run.layout = Layout(text, self._places.pop(origin, None))
        self._in_table += not run.begun
        run.begun = True
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
            return self._row(run, row)
        if fragment is not None and whole and (row := run.layout.row(fragment + text)) is not None:
            return self._row(run, row)
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

    def _row(self, run: Run, row: Row) -> Iterable[Reading]:
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
            due = self._append(Run(index=len(self._all)), origin)
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
            run.duplicate = any(other.layout is None and other.is_twin(run) for other in self._all)
            if run.index:
                return [*due, *self._close(run)]
        return due

    def _close(self, run: Run) -> list[Reading]:
        """Give what is left of a run's readings: its rows that wait, and once its average."""
        if run.duplicate:
            return []
        with_run = len(self.runs) > 1
        due = list(run.hand_out(with_run))
        if run.average is not None and run.index not in self._averaged:
            self._averaged.add(run.index)
            params: dict[str, Any] = {"operation": run.name()} if run.name() else {}
            if with_run:
                params["run"] = run.index
            due.append(Reading("average_bus_bandwidth", run.average, "GB/s", params))
        return due

    def finish(self) -> Iterator[Reading]:
        """Give what is left at the end of the input."""
        if self._report is not None:
            yield from self._end_report()
        yield from self._merge_record(None)
        for index, fragment in self._fragments.items():
            self._all[index].torn = self._all[index].torn or fragment.strip()
        for run in self._all:
            if not run.has_footer:
                run.duplicate = any(other.layout is not None and other.is_twin(run) for other in self._all)
            yield from self._close(run)

    # -- reports -------------------------------------------------------------------------------------------------

    def _report_line(self, line: str, text: str, whole: bool) -> Iterable[Reading]:
        if self._report is None:
            self._report, self._report_depth, self._report_bytes = [], 0, 0
        elif not _REPORT_LINE.match(text) or self._report_bytes > _LARGEST_REPORT:
            due = list(self._end_report())
            return [*due, *self._line(line, whole)]
        self._report.append(text)
        self._report_bytes += len(text)
        bare = _STRING.sub("", text)
        self._report_depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        return self._end_report() if self._report_depth <= 0 else ()

    def _end_report(self) -> Iterable[Reading]:
        lines, self._report = self._report or [], None
        run = report.report_run("\n".join(lines), len(self._all))
        if run is None:
            return ()
        twin = next((other for other in self._all if other.layout is not None and other.is_twin(run)), None)
        if twin is not None:
            twin.take_over(run)
            return ()
        return self._append(run, None)

    def _record_line(self, line: str, whole: bool) -> Iterable[Reading]:
        due: list[Reading] = []
        if line.startswith("numCycle,"):
            self._csv_names = [name.strip() for name in line.split(",")]
            return due
        if '"numCycle"' in line:
            for record in report.record_objects(line):
                due += self._merge_record(record if record is not None else {})
        elif self._csv_names and line.count(",") >= len(self._csv_names) - 1:
            record = report.record_of_csv(self._csv_names, line) if whole else None
            due += self._merge_record(record if record is not None else {})
        elif line.strip():
            self._csv_names = None
            return self._line(line, whole)
        return due

    def _merge_record(self, record: Mapping[str, Any] | None) -> list[Reading]:
        """Join the out-of-place and the in-place record of one size into one row."""
        before, self._record = self._record, record
        if before is None:
            return []
        first = report.record_row(before)
        second = report.record_row(record) if record is not None else None
        key = report.record_key(before)
        if first and second and key == report.record_key(record or {}) and _are_pair(first, second):
            self._record = None
            first = first._replace(groups=first.groups + second.groups, values=first.values + second.values)
        due: list[Reading] = []
        last = self._all[-1] if self._all and not self._all[-1].has_footer else None
        if key is None or first is None:
            if last is None:
                last = Run(index=len(self._all), has_footer=False, begun=True)
                due += self._append(last, None)
            last.torn = last.torn or "a record of the report"
            return due
        if last is None or (last.operation, last.nranks) != key:
            last = Run(index=len(self._all), operation=key[0], nranks=key[1], has_footer=False, begun=True)
            due += self._append(last, None)
        return [*due, *self._row(last, first)]


def _are_pair(first: Row, second: Row) -> bool:
    same = first[:3] == second[:3] and first.redop == second.redop
    return same and (first.groups[0][0], second.groups[0][0]) == (False, True)


def _text(raw: bytes) -> str:
    return strip_ansi(raw.decode("utf-8", "replace"))
