"""Tables of perftest: columns from the header line, rows by those columns, units told apart.

Source: linux-rdma/perftest, src/perftest_parameters.h (RESULT_FMT…, REPORT_FMT…) of 2013 to 2026. "MB/sec" was always
2^20 bytes a second, written "MiB/sec" since March 2024; "Gb/sec" is 10^9 bits (format_factor in print_report_bw).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any

from plumbline.readers.reading import Reading, readings_where_there

_LABEL = re.compile(r"#\w+|tps average|[\w.%]+(?: [\w.%]+)*?\[[^\]]*\]")
_NAMES = {
    "#bytes": "message_bytes",
    "#iterations": "iterations",
    "#sl": "service_level",
    "BW peak": "bandwidth_peak",
    "BW average": "bandwidth_average",
    "MsgRate": "message_rate",
    "BW Port1": "bandwidth_port1",
    "BW Port2": "bandwidth_port2",
    "MsgRate Port1": "message_rate_port1",
    "MsgRate Port2": "message_rate_port2",
    "CPU_Util": "cpu_utilization",
    "t_min": "latency_min",
    "t_max": "latency_max",
    "t_typical": "latency_typical",
    "t_avg": "latency_average",
    "t_stdev": "latency_stdev",
    "99% percentile": "latency_p99",
    "99.9% percentile": "latency_p999",
    "tps average": "transactions",
}
REPORT_NAMES = {
    "MsgSize": "message_bytes",
    "n_iterations": "iterations",
    "sl": "service_level",
    "BW_peak": "bandwidth_peak",
    "BW_average": "bandwidth_average",
    "bw_avg": "bandwidth_average",
    "MsgRate": "message_rate",
    "msgRate_avg": "message_rate",
    "CPU_util": "cpu_utilization",
    "t_min": "latency_min",
    "t_max": "latency_max",
    "t_typical": "latency_typical",
    "t_avg": "latency_average",
    "avg_lat": "latency_average",
    "t_stdev": "latency_stdev",
    "percentile_99": "latency_p99",
    "percentile_99.9": "latency_p999",
    "tps_average": "transactions",
}
"""Keys of the JSON report, whose results carry no unit."""
UNITS = {
    "bandwidth_peak": "Gbit/s",
    "bandwidth_average": "Gbit/s",
    "bandwidth_port1": "Gbit/s",
    "bandwidth_port2": "Gbit/s",
    "message_rate": "1/s",
    "message_rate_port1": "1/s",
    "message_rate_port2": "1/s",
    "transactions": "1/s",
    "cpu_utilization": "%",
    "latency_min": "us",
    "latency_max": "us",
    "latency_typical": "us",
    "latency_average": "us",
    "latency_stdev": "us",
    "latency_p99": "us",
    "latency_p999": "us",
    "iterations": "count",
}
_BANDWIDTH_UNITS = frozenset({"MB/sec", "MiB/sec", "Gb/sec"})
_BITS_OF_MIB = float(8 << 20)
_TIME_UNITS = {"usec": "us"}
# The number of decimals is fixed (bandwidths have six where they are tiny), so that glued cells can be told apart.
_TWO, _SIX = r"([0-9]{1,15}\.[0-9]{2})", r"([0-9]{1,15}\.[0-9]{6})"
_EITHER = r"([0-9]{1,15}\.(?:[0-9]{6}|[0-9]{2}))"
_WHOLE = r"([0-9]{1,18})"
_LONGEST_LINE = 400


@dataclass(slots=True)
class Table:
    """One table, or one JSON report: what ran, between whom, and the rows as printed (text by column name)."""

    test: str = ""
    bidirectional: bool = False
    info: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    unit: str = ""
    """The bandwidth's unit as printed, '' for latencies."""
    rows: list[dict[str, str]] = field(default_factory=list)
    row_count: int = 0
    closed: bool = False
    torn: str | None = None
    problem: str | None = None
    is_report: bool = False
    _pattern: re.Pattern[str] | None = None

    def take_header(self, text: str) -> bool:
        """Learn the columns from a header line. False when it is none that is known."""
        labels = _LABEL.findall(text) if len(text) <= _LONGEST_LINE else []
        names, units = [], set()
        for label in labels:
            name, _, unit = label.partition("[")
            names.append(_NAMES.get(name.strip(), ""))
            if name.strip().startswith("BW"):
                units.add(unit.rstrip("]"))
            elif name.strip().startswith("t_") and unit.rstrip("]") not in _TIME_UNITS:
                return False
        if names[:1] != ["message_bytes"] or len(units) > 1 or not units <= _BANDWIDTH_UNITS or len(names) < 3:
            return False
        self.columns, self.unit = tuple(names), next(iter(units), "")
        cells = "".join(_cell_pattern(name) for name in names)
        self._pattern = re.compile(rf"\s*{cells}", re.ASCII)
        return True

    def row(self, text: str) -> dict[str, str] | None:
        """Read one line as a row: the printed cells by column name. None when it is not a whole one."""
        if self._pattern is None or len(text) > _LONGEST_LINE:
            return None
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        return {name: cell for name, cell in zip(self.columns, match.groups(), strict=True) if name}

    def whole_rows(self, lines: list[str]) -> list[tuple[str, ...]]:
        """Give the cells of the lines from the first on that are whole rows."""
        if self._pattern is None or max(map(len, lines)) > _LONGEST_LINE:
            return []
        matches = list(map(self._pattern.fullmatch, lines))
        if None in matches:
            del matches[matches.index(None) :]
        return [match.groups() for match in matches if match]

    def readings(self, cells: Mapping[str, Sequence[str]], extras: Iterable[Mapping[str, Any]]) -> list[Reading]:
        """Give the readings of rows, whose cells stand by column name. `extras` are further params of each row.

        A peak of 0.00 is duration mode's way to say 'not measured'.
        """
        read = {name: self._values(name, column) for name, column in cells.items() if name in UNITS}
        rows = len(cells["message_bytes"])
        first: dict[str, Any] = {"test": self.test} if self.test else {}
        then: dict[str, Any] = {"bidirectional": True} if self.bidirectional else {}
        places = [
            {**first, "message_bytes": int(size), **then, **extra}
            for size, extra in zip(cells["message_bytes"], self._with_level(cells, extras), strict=False)
        ]
        return readings_where_there(
            list(read) * rows,
            list(chain.from_iterable(zip(*read.values(), strict=True))),
            [UNITS[name] for name in read] * rows,
            [place for place in places for _ in read],
        )

    @staticmethod
    def _with_level(
        cells: Mapping[str, Sequence[str]], extras: Iterable[Mapping[str, Any]]
    ) -> Iterable[Mapping[str, Any]]:
        if "service_level" not in cells:
            return extras
        pairs = zip(cells["service_level"], extras, strict=False)
        return ({"service_level": int(level), **extra} for level, extra in pairs)

    def _values(self, name: str, cells: Sequence[str]) -> list[float | None]:
        if name.startswith("bandwidth"):
            if not self.unit:
                return [None] * len(cells)
            values: list[float | None] = list(map(float, cells))
            if self.unit != "Gb/sec":  # a power of two is exact, so one division rounds once
                values = [float(cell) * _BITS_OF_MIB / 1e9 for cell in cells]
            return [value or None for value in values] if name == "bandwidth_peak" else values
        if name.startswith("message_rate"):  # Mpps
            return [
                float(int(cell.replace(".", ""))) if cell[-7:-6] == "." else float(Decimal(cell).scaleb(6))
                for cell in cells
            ]
        return list(map(float, cells))

    def is_view_of_peer(self, other: Table) -> bool:
        """Say whether another table is the other side's telling of this one: its numbers, addresses swapped.

        Of a sweep, the side that only answered prints the last row.
        """
        if not self.rows or self.unit != other.unit or self.rows != other.rows[-len(self.rows) :]:
            return False
        mine, theirs = self.addresses, other.addresses
        return not mine or not theirs or self._swapped(other) or mine == theirs

    def is_whole_by(self, other: Table) -> bool:
        """Say whether the other side's whole table has the same rows and no more: then this one lacks none."""
        return other.closed and bool(self.addresses) and self.rows == other.rows and self._swapped(other)

    def _swapped(self, other: Table) -> bool:
        mine, theirs = self.addresses, other.addresses
        return mine.get("local") == theirs.get("remote") and mine.get("remote") == theirs.get("local")


def _cell_pattern(column: str) -> str:
    if column in ("message_bytes", "iterations", "service_level"):
        return rf"(?:(?<=\s)|^){_WHOLE}\s+"
    number = _SIX if column.startswith("message_rate") else _EITHER if column.startswith("bandwidth") else _TWO
    return rf"{number if column else _EITHER}\s*"


def report_unit(row: Mapping[str, str]) -> str:
    """Tell a report's unit of bandwidth by its message rate, which has one: '' where it does not tell."""
    try:
        bytes_per_s = float(row["message_rate"]) * 1e6 * int(row["message_bytes"])
        average = float(row["bandwidth_average"])
    except (KeyError, ValueError):
        return ""
    # The rate is rounded at its sixth decimal.
    slack = 0.02 + 0.5e-6 / max(float(row["message_rate"]), 1e-6)
    near = [
        label
        for label, scale in (("MiB/sec", 1 << 20), ("Gb/sec", 125_000_000))
        if average > 0 and abs(bytes_per_s / scale / average - 1) <= slack
    ]
    return near[0] if len(near) == 1 else ""
