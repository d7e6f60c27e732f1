"""Line by line through an output of perftest: which table does a line belong to, and what does it say?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count

from plumbline.readers._perftest_table import REPORT_NAMES, Table, report_unit
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Reading

BANNER = re.compile(
    r"\s*(?:RDMA_)?(Write|Read|Send|Atomic|Raw Ethernet|WriteImm|Write_With_Imm|Send_With_Imm)\b([\w ]{0,60}?)"
    r"(BW|Latency)(?: [\w ]{1,30})? Test\s*"
)
_INFO = re.compile(r"([A-Za-z][\w.*/ -]{0,30}?)[ \t]*:[ \t]?(\S{1,60})")
_INFO_NAMES = {
    "Device": "device",
    "Transport type": "transport",
    "Link type": "link_type",
    "Connection type": "connection",
    "Number of qps": "qps",
    "Mtu": "mtu",
    "Transport_type": "transport",
    "Link_type": "link_type",
    "Connection_type": "connection",
    "Number_of_qps": "qps",
}
_ADDRESS = re.compile(r"\s*(local|remote) address:\s*(.{1,200})")
_REPORT_START = re.compile(r'\s*\{?\s*"?test_info"?\s*:')
_REPORT_FIELD = re.compile(r'\s*"?([A-Za-z_][\w. ]{0,40}?)"?\s*:\s*"?([^",{}]{0,200}?)"?\s*,?\s*')
_REPORT_TEST = re.compile(r"(?:RDMA_)?(Write|Read|Send|Atomic)(?:_\w{1,60}?)??_(BW|Latency)_(?:\w{1,30}_)?Test")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?", re.ASCII)
FATAL = (
    "Completion with error",
    "Failed status",
    "BW result is below bw limit",
    "Msg rate  is below msg_rate limit",
    "Can't produce a report",
)
"""What no table makes good."""
_ERRORS = (
    *FATAL,
    "Couldn't ",
    "Unable to ",
    "Failed to ",
    "failed to ",
    "Segmentation fault",
    "Killed",
    "No IB devices found",
    "Server: Connection",
)
NO_START = re.compile(
    r"\s*(?:Couldn't connect to \S{1,200}:[0-9]{1,5}|IB device \S{1,100} not found"
    r"|Unable to find the Infiniband/RoCE device|Did not detect devices|Couldn't get context for the device"
    r"|Unable to open file descriptor for socket connection|Port number [0-9]{1,3} state is \w{1,20})\b"
)
"""What is all that a test prints that finds no device or no server."""
_HELD_ROWS = 5000
_ROWS_AT_ONCE = 64
_MOST_REMARKS = 10
_BANNER_LINES = 60


class Scan:
    """The tables of a file as they come."""

    def __init__(self) -> None:
        """Start at the first line."""
        self.tables: list[Table] = []
        self.warnings: list[str] = []
        self.errors: list[str] = []
        self._table: Table | None = None
        self._filling: Table | None = None
        """The table that rows belong to: from its header until the line that closes it."""
        self._just_closed: Table | None = None
        """The table that the line of dashes right before closed: a banner begins with such a line too."""
        self._section = ""
        self._depth = 0
        self._banner_lines = 0
        """So many lines more may belong to the banner, whose every line says something."""
        self.touched = False

    def feed(self, line: str, whole: bool) -> Iterable[Reading]:
        """Take over one line; `whole` says that it had its line end. Gives the readings that are due."""
        if self._depth or ("test_info" in line and _REPORT_START.match(strip_prefix(line))):
            self._report_line(strip_prefix(line), whole)
            return ()
        table = self._filling
        if table is not None:
            text = strip_prefix(line)
            if text.lstrip()[:1].isdigit():
                return self._row(table, text, whole)
        if whole and (
            "Test" in line
            or "#bytes" in line
            or "---" in line
            or "address" in line
            or "aiting" in line
            or self._banner_lines
            or "rror" in line
            or "ailed" in line
            or "nable" in line
            or "ouldn" in line
            or "below" in line
            or "Killed" in line
            or "fault" in line
            or "onflicting" in line
            or "WARN" in line
            or "ot found" in line
            or "ot detect" in line
            or "state is" in line
        ):
            self._line(strip_prefix(line))
        return ()

    def _row(self, table: Table, text: str, whole: bool) -> Iterable[Reading]:
        row = table.row(text) if whole else None
        if row is None:
            # A line of digits only begins a row; numbers of -H and -U ("1, 2.35") do not.
            if re.match(r"\s*[0-9]+\s", text) or not whole:
                table.torn = table.torn or text.strip()[:160]
            return ()
        table.row_count += 1
        if table.row_count <= _HELD_ROWS:
            table.rows.append(row)
            return ()
        return self._stream(table, [tuple(row.get(name, "") for name in table.columns)], table.row_count)

    def _stream(self, table: Table, rows: list[tuple[str, ...]], first: int) -> list[Reading]:
        """Give the readings of rows too many to be held; `first` is the number of the first of them."""
        number = self.tables.index(table)
        cells = dict(zip(table.columns, zip(*rows, strict=True), strict=True))
        return table.readings(cells, ({"table": number, "repeat": repeat} for repeat in count(first)))

    def feed_all(self, lines: list[str], whole: bool) -> Iterator[Iterable[Reading]]:
        """Take over lines; `whole` says that they had their line ends. Gives the readings as they are due."""
        at = 0
        while at < len(lines):
            table = self._filling
            if table is not None and table.row_count >= _HELD_ROWS and whole and not self._depth:
                # A row of numbers alone has nothing before it that a launcher put there.
                rows = table.whole_rows(lines[at : at + _ROWS_AT_ONCE])
                if rows:
                    table.row_count += len(rows)
                    yield self._stream(table, rows, table.row_count - len(rows) + 1)
                    at += len(rows)
                    continue
            if due := self.feed(lines[at], whole):
                yield due
            at += 1

    def _line(self, text: str) -> None:
        self._banner_lines = max(self._banner_lines - 1, 0)
        just_closed, self._just_closed = self._just_closed, None
        if (match := BANNER.fullmatch(text)) is not None:
            if just_closed is not None:
                just_closed.closed = False  # the line was the banner's own: what stood before it stops in mid-table
            kind = "bw" if match[3] == "BW" else "lat"
            self._begin(Table(test=f"{match[1].lower().replace(' ', '_')}_{kind}", bidirectional="Bidirec" in match[2]))
        elif "#bytes" in text and "#repetitions" not in text:  # that is a table of the Intel MPI Benchmarks
            self._header(text)
        elif text.lstrip().startswith("------"):
            if self._filling is not None and self._filling.row_count:
                self._just_closed = self._filling
                self._close(self._filling)
        elif match := _ADDRESS.match(text):
            self._address(match[1], " ".join(match[2].split()))
        elif "aiting for client to connect" in text:  # "for client rdma_cm QP to connect" follows the banner
            self._begin(Table())
        else:
            self._remark(text)

    def _begin(self, table: Table) -> None:
        """Begin a table; a server that waits has announced one already."""
        self.touched = True
        if self._table is not None and not self._table.test and not self._table.columns and table.test:
            self._table.test, self._table.bidirectional = table.test, table.bidirectional
            self._banner_lines = _BANNER_LINES
            return
        self._table = table
        self._banner_lines = _BANNER_LINES
        self.tables.append(table)

    def _address(self, side: str, address: str) -> None:
        # Server and client may print into one file at the same time: a second line of a kind is the other's.
        for table in self.tables[-2:]:
            if not table.columns and side not in table.addresses:
                table.addresses[side] = address
                return

    def _header(self, text: str) -> None:
        self.touched = True
        table = next((table for table in self.tables[-2:] if not table.columns and not table.is_report), None)
        if table is None and self._filling is not None and not self._filling.row_count:
            table = self._filling  # -H and -U repeat the header
        if table is None:
            table = Table()
            self._begin(table)
        if not table.take_header(text):
            table.problem = f"columns that are not known: {text.strip()[:160]}"
        elif self._filling is None or self._filling.row_count:
            self._filling = table

    def _close(self, table: Table) -> None:
        table.closed = True
        self._filling = next((t for t in self.tables[-2:] if t.columns and not t.row_count and not t.is_report), None)

    def finish(self) -> None:
        """Drop a report that was never closed: its last number may lack digits."""
        if self._depth and self._table is not None:
            self._table.rows = []
            self._table.torn = self._table.torn or "the report is cut short"

    def _remark(self, text: str) -> None:
        no_start = not self.tables and NO_START.match(text) is not None
        self.touched = self.touched or no_start
        if no_start or any(word in text for word in _ERRORS):
            if len(self.errors) < _MOST_REMARKS or any(word in text for word in FATAL):
                self.errors = self.errors[: _MOST_REMARKS - 1]
                self.errors.append(text.strip()[:300])
        elif "WARNING" in text or "Conflicting CPU frequency" in text:
            if len(self.warnings) < _MOST_REMARKS:
                self.warnings.append(text.strip()[:300])
        elif self._table is not None and not self._table.columns and len(text) < 300:
            for name, value in _INFO.findall(text):
                if (key := _INFO_NAMES.get(name.strip())) is not None:
                    self._table.info.setdefault(key, value.removesuffix("[B]"))

    # -- reports -----------------------------------------------------------------------------------------------------

    def _report_line(self, text: str, whole: bool) -> None:
        if not self._depth:
            self._begin(Table(is_report=True))
            self._section, self._depth = "", 1
            self._table.rows.append({})  # type: ignore[union-attr]
            text = text.strip().removeprefix("{")
        if any(mark in text for mark in ("{", "}")) and len(text) > 2:
            for piece in re.split(r"(?<=[{},])|(?=[}])", text):
                self._report_piece(piece, whole)
        else:
            self._report_piece(text, whole)

    def _report_piece(self, text: str, whole: bool) -> None:
        table, piece = self._table, text.strip()
        if table is None or not piece or not self._depth:
            return
        if piece.endswith("{"):
            self._section = piece.rstrip("{ ").rstrip(":").strip().strip('"')
            self._depth += 1
        elif piece.startswith("}"):
            self._depth -= 1
            if not self._depth:
                self._end_report(table)
        elif whole and (match := _REPORT_FIELD.fullmatch(piece)):
            self._report_field(table, match[1].strip(), match[2].strip())

    def _report_field(self, table: Table, key: str, value: str) -> None:
        if self._section == "results":
            if (name := REPORT_NAMES.get(key)) is not None and _NUMBER.fullmatch(value):
                table.rows[0][name] = value
            elif key in REPORT_NAMES:
                table.torn = table.torn or f"{key}: {value}"
        elif key == "test":
            if match := _REPORT_TEST.fullmatch(value):
                table.test = f"{match[1].lower()}_{'bw' if match[2] == 'BW' else 'lat'}"
                table.bidirectional = "Bidirectional" in value
        elif (name := _INFO_NAMES.get(key)) is not None:
            table.info[name] = value

    def _end_report(self, table: Table) -> None:
        row = table.rows[0]
        if "message_bytes" not in row or "." in row["message_bytes"] or len(row) < 3:
            table.torn = table.torn or "the report has no results"
            table.rows = []
            return
        table.row_count, table.closed, table.columns = 1, True, tuple(row)
        if "bandwidth_average" in row:
            table.unit = report_unit(row)
            if not table.unit:
                table.problem = "the report does not tell the unit of its bandwidth"
