"""perftest (ib_write_bw, ib_read_bw, ib_send_bw and their _lat): text and JSON of all versions.

Server and client may share a file: what one connection measured is given once. JSON reports are read line by line,
because until 2022 the tool wrote keys without quotes and commas before closing braces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._expectations import expected_count, expected_flag
from plumbline.readers._perftest_scan import BANNER, FATAL, NO_START, Scan
from plumbline.readers._perftest_table import UNITS, Table
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Completeness, Fact, Item, Status
from plumbline.readers.source import Source
from plumbline.units import parse_bytes

NAME = "perftest"
TOOL = "perftest: ib_write_bw, ib_read_bw, ib_send_bw, ib_atomic_bw, ib_*_lat (text and --out_json)"
INDICATORS: Mapping[str, tuple[str, str]] = {
    name: (unit, meaning)
    for (name, unit), meaning in zip(
        UNITS.items(),
        (
            "highest bandwidth between two completions; absent in duration mode",
            "mean bandwidth; MB/sec of old versions is 2^20 bytes",
            "bandwidth of the first port",
            "bandwidth of the second port",
            "messages a second",
            "messages a second on the first port",
            "messages a second on the second port",
            "transactions a second (latency in duration mode)",
            "CPU time used",
            "smallest latency",
            "largest latency",
            "median latency",
            "mean latency",
            "standard deviation of the latency",
            "99th percentile of the latency",
            "99.9th percentile of the latency",
            "iterations that were timed",
        ),
        strict=True,
    )
}
FACTS: Mapping[str, str] = {
    "tests": "what ran: write_bw, read_lat …",
    "tables": "result tables (or reports) in the file, server's and client's counted apart",
    "rows": "rows of all tables",
    "unit": "unit of the bandwidth columns as printed",
    "max_bytes": "largest message",
    "min_bytes": "smallest message",
    "best_bw_average": "highest average bandwidth, as printed",
    "bw_average_at_max_bytes": "average bandwidth at the largest message, as printed",
    "bw_peak_at_max_bytes": "peak bandwidth at the largest message, as printed; absent in duration mode",
    "t_typical_at_min_bytes": "median latency at the smallest message, us",
    "t_avg_at_min_bytes": "mean latency at the smallest message, us",
    "device": "RDMA device",
    "transport": "transport type as printed",
    "link_type": "IB or Ethernet",
    "connection": "RC, UC, UD …",
    "qps": "queue pairs",
    "mtu": "MTU in bytes",
    "bidirectional": "whether both directions carried data at once",
    "warnings": "warnings of the tool",
    "errors": "lines that report a failure",
}
EXPECTATIONS: Mapping[str, str] = {
    "test": "what must have run: write_bw, read_bw, send_bw, write_lat, read_lat, send_lat",
    "rows": "rows that each table must have",
    "min_bytes": "smallest message that must be there",
    "max_bytes": "largest message that must be there",
    "device": "device that must have been used",
    "link_type": "link type that must have been used: IB or Ethernet",
    "qps": "queue pairs that must have been used",
    "bidirectional": "1 when both directions must have carried data, 0 when one",
}

_SWEEP_END = 1 << 23
"""The largest message of -a. Source: perftest's usage text, "Run sizes from 2 till 2^23"."""


def sniff(head: str) -> float:
    """Say how sure the text looks like perftest: its header line, banner or report, or why it didn't start."""
    if "#iterations" in head and ("BW average[" in head or "t_typical[" in head or "t_avg[" in head):
        return 0.95  # the Intel MPI Benchmarks have "#bytes" and "t_avg[usec]" too, but "#repetitions"
    if "test_info" in head and "n_iterations" in head:
        return 0.95
    lines = [strip_prefix(line) for line in head.splitlines()]
    if any(BANNER.fullmatch(line) for line in lines):
        return 0.6
    return 0.3 if any(NO_START.match(line) or "* Waiting for client to connect" in line for line in lines) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give readings table by table, then facts. Raises OutputError when there is no table, banner or report."""
    wanted = _wanted(expect)
    scan = Scan()
    first = ""
    for lines in source.line_blocks():
        for due in scan.feed_all(lines, source.ends_whole):
            yield from due
        first = first or next((line[:200] for line in lines if line), "")
    scan.finish()
    if not scan.touched:
        raise OutputError("no banner, table or report of perftest", source=source.name, excerpt=first)
    told = _told_once(scan.tables)
    for number, table in enumerate(told):
        place = {"table": number} if len(told) > 1 else {}
        cells = {name: [row[name] for row in table.rows] for name in table.rows[0]}
        yield from table.readings(cells, ({**place, **repeat} for repeat in _repeats(cells["message_bytes"])))
    for name, value in _facts(scan).items():
        yield Fact(name, value)
    yield _completeness(scan, told, wanted, expect)


def _repeats(sizes: Sequence[str]) -> Iterator[dict[str, int]]:
    """Say of each row how often its size came before, as a param where it did."""
    seen: Counter[int] = Counter()
    for size in map(int, sizes):
        yield {"repeat": seen[size]} if seen[size] else {}
        seen[size] += 1


def _wanted(expect: Mapping[str, Scalar]) -> dict[str, int]:
    """Read the numeric expectations. Raises ConfigError."""
    found = {key: parse_bytes(str(expect[key])) for key in ("min_bytes", "max_bytes") if key in expect}
    found |= {key: count for key in ("rows", "qps") if (count := expected_count(expect, key)) is not None}
    if "bidirectional" in expect:
        found["bidirectional"] = int(expected_flag(expect, "bidirectional"))
    return found


def _told_once(tables: list[Table]) -> list[Table]:
    """Give the tables without those that tell the other side's view of one before, and without empty ones."""
    found: list[Table] = []
    for table in tables:
        twin = next((other for other in found if table.is_view_of_peer(other)), None)
        if twin is not None:
            twin.info = {**table.info, **twin.info}
        elif table.rows:
            found.append(table)
    return found


def _facts(scan: Scan) -> Mapping[str, Any]:
    filled = [table for table in scan.tables if table.rows]
    rows = [(int(row["message_bytes"]), row) for table in filled for row in table.rows]
    found: dict[str, Any] = {
        "tests": list(dict.fromkeys(table.test for table in scan.tables if table.test)) or None,
        "tables": len(filled) or None,
        "rows": sum(table.row_count for table in filled),
        "unit": "/".join(dict.fromkeys(table.unit for table in filled if table.unit)) or None,
        "warnings": scan.warnings or None,
        "errors": scan.errors or None,
        "bidirectional": any(table.bidirectional for table in scan.tables) or None,
    }
    for name in ("device", "transport", "link_type", "connection", "qps", "mtu"):
        values = list(dict.fromkeys(table.info[name] for table in scan.tables if name in table.info))
        if values:
            found[name] = ", ".join(values) if name not in ("qps", "mtu") or len(values) > 1 else _whole(values[0])
    if rows:
        most, least = max(size for size, _ in rows), min(size for size, _ in rows)
        found |= {"max_bytes": most, "min_bytes": least}
        averages = [float(row["bandwidth_average"]) for _, row in rows if "bandwidth_average" in row]
        found["best_bw_average"] = max(averages) if averages and len({t.unit for t in filled}) == 1 else None
        found["bw_average_at_max_bytes"] = _cell(rows, most, "bandwidth_average")
        found["bw_peak_at_max_bytes"] = _cell(rows, most, "bandwidth_peak") or None
        found["t_typical_at_min_bytes"] = _cell(rows, least, "latency_typical")
        found["t_avg_at_min_bytes"] = _cell(rows, least, "latency_average")
    return {name: value for name, value in found.items() if value is not None}


def _whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else text


def _cell(rows: list[tuple[int, dict[str, str]]], size: int, name: str) -> float | None:
    return next((float(row[name]) for at, row in rows if at == size and name in row), None)


def _completeness(
    scan: Scan, told: list[Table], wanted: Mapping[str, int], expect: Mapping[str, Scalar]
) -> Completeness:
    missing = [text for table in scan.tables for text in _table_problems(table, scan.tables)]
    if not scan.tables:
        missing.append("the test printed no table")
    # A complaint beside whole tables (a library that is not there) is a fact, not the end of the test.
    errors = [text for text in scan.errors if missing or any(word in text for word in FATAL)]
    missing += _unmet(scan, told, wanted, expect)
    status = Status.FAILED if errors else Status.INCOMPLETE if missing else Status.COMPLETE
    if status is Status.INCOMPLETE and not any(
        table.columns or table.is_report or table.problem for table in scan.tables
    ):
        status = Status.NOT_STARTED
    return Completeness(
        reader=NAME,
        status=status,
        expected=dict(expect),
        found={"tables": len(scan.tables), "rows": sum(table.row_count for table in scan.tables)},
        reason="; ".join(dict.fromkeys([*errors, *missing])),
    )


def _table_problems(table: Table, tables: list[Table]) -> Iterator[str]:
    if table.problem:
        yield table.problem
    if table.torn:
        yield f"a row is damaged or cut: {table.torn}"
    if not table.row_count and not table.torn:
        yield (
            f"{table.test or 'a table'} has no rows" if table.columns else f"{table.test or 'a test'} printed no table"
        )
        return
    if not table.closed and not table.torn and not any(map(table.is_whole_by, tables)):
        yield "a table stops before the line that closes it"
    sizes = [int(row["message_bytes"]) for row in table.rows]
    steps = len(sizes) > 1 and all(after == 2 * before for before, after in pairwise(sizes))
    if steps and sizes[0] == 2 and sizes[-1] < _SWEEP_END and table.info.get("connection") != "UD":
        yield f"a sweep of all sizes ends at {sizes[-1]} instead of {_SWEEP_END} bytes"


def _unmet(scan: Scan, told: list[Table], wanted: Mapping[str, int], expect: Mapping[str, Scalar]) -> Iterator[str]:
    if "test" in expect and [table.test for table in told] != [str(expect["test"])]:
        yield f"tests {', '.join(table.test or '?' for table in told) or 'none'}, expected {expect['test']}"
    for key in ("device", "link_type"):
        seen = {table.info.get(key) for table in scan.tables}
        if key in expect and seen != {str(expect[key])}:
            yield f"{key} {', '.join(sorted(str(value) for value in seen))}, expected {expect[key]}"
    for table in told:
        yield from _unmet_by_table(table, wanted)
    if not told and wanted:
        yield "no table"


def _unmet_by_table(table: Table, wanted: Mapping[str, int]) -> Iterator[str]:
    sizes = {int(row["message_bytes"]) for row in table.rows}
    seen = {"rows": table.row_count, "min_bytes": min(sizes), "max_bytes": max(sizes), "qps": table.info.get("qps")}
    for key, value in seen.items():
        if key in wanted and str(value) != str(wanted[key]):
            yield f"{key} {value}, expected {wanted[key]}"
    if "bidirectional" in wanted and table.bidirectional != bool(wanted["bidirectional"]):
        yield f"{'both directions' if table.bidirectional else 'one direction'} measured, expected the other"
