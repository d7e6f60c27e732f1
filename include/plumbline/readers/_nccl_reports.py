"""Reports (JSON, CSV) in the middle of other lines: collecting them, and what they add to the runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from plumbline.readers import _nccl_json as report
from plumbline.readers._nccl_table import Row
from plumbline.readers.reading import Reading

if TYPE_CHECKING:
    from plumbline.readers._nccl_scan import Scan

_LARGEST_REPORT = 256 << 20
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_REPORT_LINE = re.compile(r'\s*(?:$|[{}\[\]",\d-]|true|false|null)')
_CSV_HEADER = "numCycle,"


class Reports:
    """What is collected of a report that began on an earlier line."""

    def __init__(self, scan: Scan) -> None:
        """Start with no report open. Runs and rows go to `scan`."""
        self._scan = scan
        self._report: list[str] | None = None
        self._depth = 0
        self._bytes = 0
        self._csv_names: list[str] | None = None
        self._record: Mapping[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to a report."""
        return self._report is not None or self._csv_names is not None

    def wants(self, text: str) -> bool:
        """Say whether a line (without prefix) belongs to a report or begins one."""
        if self.is_open or report.RECORD in text or text.startswith(_CSV_HEADER):
            return True
        return text[:1] in ("{", " ") and report.starts_report(text)

    def line(self, line: str, text: str, whole: bool) -> Iterable[Reading]:
        """Take over a line that `wants` accepted: as it stands and without prefix. Gives the readings that are due."""
        if self._report is None and (self._csv_names or report.RECORD in text or text.startswith(_CSV_HEADER)):
            return self._record_line(line, text, whole)
        return self._report_line(line, text, whole)

    def finish(self) -> Iterator[Reading]:
        """Give what is left at the end of the input."""
        if self._report is not None:
            yield from self._end_report()
        yield from self._merge_record(None)

    def _report_line(self, line: str, text: str, whole: bool) -> Iterable[Reading]:
        if self._report is None:
            self._report, self._depth, self._bytes = [], 0, 0
        elif not _REPORT_LINE.match(text) or self._bytes > _LARGEST_REPORT:
            due = list(self._end_report())
            return [*due, *self._scan.feed(line, whole)]
        self._report.append(text)
        self._bytes += len(text)
        bare = _STRING.sub("", text)
        self._depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        return self._end_report() if self._depth <= 0 else ()

    def _end_report(self) -> Iterable[Reading]:
        lines, self._report = self._report or [], None
        run = report.report_run("\n".join(lines), self._scan.new_run())
        if run is None:
            return ()
        if (twin := self._scan.twin_table(run)) is not None:
            twin.take_over(run)
            return ()
        return self._scan.append(run, None)

    def _record_line(self, line: str, text: str, whole: bool) -> Iterable[Reading]:
        due: list[Reading] = []
        if text.startswith(_CSV_HEADER):
            self._csv_names = [name.strip() for name in text.split(",")]
        elif report.RECORD in text:
            for record in report.record_objects(text):
                due += self._merge_record(record if record is not None else {})
        elif self._csv_names and text.count(",") >= len(self._csv_names) - 1:
            record = report.record_of_csv(self._csv_names, text) if whole else None
            due += self._merge_record(record if record is not None else {})
        elif text.strip():
            self._csv_names = None
            return self._scan.feed(line, whole)
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
        last = self._scan.last()
        last = last if last is not None and not last.has_footer else None
        if key is None or first is None:
            if last is None:
                last = self._scan.new_run(has_footer=False, begun=True)
                due += self._scan.append(last, None)
            last.torn = last.torn or "a record of the report"
            return due
        if last is None or (last.operation, last.nranks) != key:
            last = self._scan.new_run(operation=key[0], nranks=key[1], has_footer=False, begun=True)
            due += self._scan.append(last, None)
        return [*due, *self._scan.add_row(last, first)]


def _are_pair(first: Row, second: Row) -> bool:
    same = first[:3] == second[:3] and first.redop == second.redop
    return same and (first.groups[0][0], second.groups[0][0]) == (False, True)
