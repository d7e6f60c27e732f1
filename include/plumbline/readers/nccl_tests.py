"""nccl-tests and rccl-tests: text of every layout since 2017, and the JSON and CSV that they write beside it.

The table's layout comes from its own header. Several runs in one file are told apart, also when launchers' prefixes
show that nodes printed at the same time. A report in JSON beside the text of the same run replaces its rounded rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._nccl_expect import EXPECTATIONS, unmet, wanted_sizes
from plumbline.readers._nccl_log import program_named
from plumbline.readers._nccl_run import SEVERITY, Run
from plumbline.readers._nccl_scan import Scan
from plumbline.readers._nccl_table import UNITS, is_header
from plumbline.readers.reading import Completeness, Fact, Item, Status
from plumbline.readers.source import Source

__all__ = ["EXPECTATIONS", "FACTS", "INDICATORS", "NAME", "TOOL", "read", "sniff"]

NAME = "nccl_tests"
TOOL = "nccl-tests and rccl-tests (text of 2017 to 2026, -J JSON, rccl-tests JSON and CSV), Plumbline's collectives"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "bus_bandwidth": (UNITS["bus_bandwidth"], "bandwidth of the busiest link, comparable between rank counts"),
    "algorithm_bandwidth": (UNITS["algorithm_bandwidth"], "message size ÷ time"),
    "time": (UNITS["time"], "mean time of one operation"),
    "cpu_time": (UNITS["cpu_time"], "mean time until the call returned (-C 1)"),
    "wrong": (UNITS["wrong"], "elements that were not what they must be; absent where nothing was checked"),
    "rounding_error": (UNITS["rounding_error"], "largest relative difference (column 'error' until 2021)"),
    "iteration_min": (UNITS["iteration_min"], "fastest iteration (-I 1)"),
    "iteration_max": (UNITS["iteration_max"], "slowest iteration (-I 1)"),
    "iteration_p99": (UNITS["iteration_p99"], "99th percentile of the iterations (-I 1)"),
    "iteration_cv": (UNITS["iteration_cv"], "coefficient of variation of the iterations (-I 1)"),
    "average_bus_bandwidth": ("GB/s", "mean of all bus bandwidths as the tool prints it"),
}
FACTS: Mapping[str, str] = {
    "operations": "operations of the runs, in order; null where the output does not tell",
    "nranks": "ranks that took part",
    "hosts": "distinct hosts",
    "ranks": "rank, host, pid, device, bus_id and model of every rank that was listed",
    "device_models": "distinct accelerator models",
    "single_rank": "true when one rank ran alone: its bus bandwidth is 0 and proves nothing",
    "rows": "table rows",
    "min_size": "smallest message in bytes",
    "max_size": "largest message in bytes",
    "max_busbw": "highest bus bandwidth of any row and placement, GB/s",
    "max_busbw_size": "message size at which max_busbw was seen",
    "busbw_at_max_size": "bus bandwidth at the largest size, by placement",
    "algbw_at_max_size": "algorithm bandwidth at the largest size, by placement",
    "avg_busbw_reported": "the tool's own average bus bandwidth, GB/s",
    "avg_busbw_from_rows": "mean of the bus bandwidth cells, to 4 decimals",
    "average_status": "OK or FAILED where NCCL_TESTS_MIN_BW was set",
    "out_of_bounds": "the tool's count of out of bounds values",
    "oob_status": "OK or FAILED as printed behind that count",
    "wrong_NA_cells": "results that were not checked (N/A)",
    "wrong_or_error_max": "highest number in the columns #wrong or error; null when all say N/A",
    "dtypes": "data types of the rows",
    "redops": "what stands between type and time: reduction and root as printed",
    "settings": "what the banner announces: sizes, step, iterations, warm-up, validation",
    "nccl_version": "version of NCCL or RCCL",
    "library": "nccl or rccl",
    "tests_version": "version of the test programs",
    "transports": "transports that NCCL's log names (NET/IB, NET/Socket, P2P/CUMEM, SHM, NVLS …)",
    "networks": "what NCCL says it uses as network",
    "algorithms": "algorithm/protocol pairs that NCCL's log names",
    "gpu_direct": "whether all, some or none of the network channels use GPUDirect RDMA",
    "warnings": "the first NCCL WARN lines",
    "faults": "the first lines that report a failure",
    "last_error": "what the tool names as NCCL's last error",
    "start_time": "as the report writes it",
    "end_time": "as the report writes it",
    "arguments": "the test's arguments",
    "environment": "environment variables of an allow-list",
    "program": "what printed the tables when it was not nccl-tests",
    "runs": "the facts of each run where there are several",
}

_SNIFF = re.compile(r"#?\s*nThread:? \d+ nGpus:? \d+ minBytes|Out of bounds values\s*:")
_SUMMED = ("rows", "wrong_NA_cells")
_EXTREMES: Mapping[str, Any] = {"max_busbw": max, "min_size": min, "max_size": max, "wrong_or_error_max": max}


def sniff(head: str) -> float:
    """Say how sure the text looks like nccl-tests: its header or banner, or its JSON."""
    if ('"nccl_version":' in head and '"config":' in head) or '{"numCycle"' in head or head.startswith("numCycle,"):
        return 0.95
    if any(is_header(line.split(":", 1)[-1]) or is_header(line) for line in head.splitlines() if "algbw" in line):
        return 0.95
    if _SNIFF.search(head):
        return 0.8
    return 0.5 if program_named(head) or re.search(r"Test (?:NCCL|CUDA|HIP) failure ", head) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give readings run by run, then the facts, then what is missing. Raises OutputError when it is another format."""
    wanted_sizes(expect)
    scan = Scan()
    first = ""
    for lines in source.line_blocks():
        for due in scan.feed_all(lines, source.ends_whole):
            yield from due
        first = first or next((line[:200] for line in lines if line), "")
    yield from scan.finish()
    if not scan.runs and not scan.chatter.programs and all(kind != "failed" for kind, _ in scan.faults):
        raise OutputError("no banner, table or report of nccl-tests", source=source.name, excerpt=first)
    for name, value in _facts(scan).items():
        yield Fact(name, value)
    yield _completeness(scan, expect)


def _facts(scan: Scan) -> Mapping[str, Any]:
    each = [run.facts() for run in scan.runs]
    found: dict[str, Any] = dict(each[0]) if len(each) == 1 else _merged(each)
    found.pop("operation", None)
    if not each:
        found |= {"nranks": 0, "rows": 0}
    found["operations"] = [run.name() for run in scan.runs] or list(scan.chatter.programs)
    found = {**found, **{name: value for name, value in scan.chatter.facts().items() if name not in found}}
    if scan.program:
        found["program"] = scan.program
    if scan.faults:
        found["faults"] = [text for _, text in scan.faults]
    if len(each) > 1:
        found["runs"] = each
    return found


def _merged(each: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the facts of several runs: sums and extremes, lists joined, what differs left to the fact `runs`."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for facts in each for name in facts):
        values = [facts[name] for facts in each if facts.get(name) is not None]
        if name in _SUMMED:
            found[name] = sum(values)
        elif name in _EXTREMES:
            found[name] = _EXTREMES[name](values) if values else None
        elif name in ("dtypes", "redops", "hosts", "device_models"):
            found[name] = list(dict.fromkeys(item for value in values for item in value))
        elif values and all(value == values[0] for value in values) and len(values) == len(each):
            found[name] = values[0]
    if "max_busbw" in found:
        found["max_busbw_size"] = next(f["max_busbw_size"] for f in each if f.get("max_busbw") == found["max_busbw"])
    return found


def _completeness(scan: Scan, expect: Mapping[str, Scalar]) -> Completeness:
    problems = [
        (status, f"{run.name() or f'run {run.index}'}: {text}" if len(scan.runs) > 1 else text)
        for run in scan.runs
        for status, text in run.problems()
    ]
    missed = unmet(expect, scan.runs, scan.chatter)
    problems += [(Status.INCOMPLETE, text) for text in missed]
    if not missed and not any(run.has_footer for run in scan.runs) and not {"rows", "max_bytes"} & expect.keys():
        problems += [(Status.UNKNOWN, "this report has no closing lines, and nothing was expected")] * bool(scan.runs)
    problems += _faults(scan, bool(problems) or not scan.runs)
    if not problems and not scan.runs:
        problems.append(
            (Status.NOT_STARTED, f"{next(iter(scan.chatter.programs))}_perf is named, but no table follows")
        )
    problems.sort(key=lambda problem: -SEVERITY.index(problem[0]))
    notes = [text for _, text in problems]
    if any(run.rank_count == 1 for run in scan.runs):
        notes.append("one rank ran alone: its bus bandwidth is 0 and proves nothing")
    return Completeness(
        reader=NAME,
        status=problems[0][0] if problems else Status.COMPLETE,
        expected={**_announced(scan.runs), **expect},
        found={"runs": len(scan.runs), "rows": sum(run.rows for run in scan.runs)},
        reason="; ".join(dict.fromkeys(notes)),
    )


def _announced(runs: Iterable[Run]) -> Mapping[str, int]:
    wanted = [rows for run in runs if (rows := run.expected_rows()) is not None]
    return {"sizes": sum(wanted)} if wanted else {}


def _faults(scan: Scan, unfinished: bool) -> list[tuple[Status, str]]:
    """Weigh the lines that report a failure: a launcher's complaint alone proves nothing against a whole table."""
    found: list[tuple[Status, str]] = []
    for kind, text in scan.faults:
        if kind == "failed" or (kind == "stopped" and not unfinished):
            found.append((Status.FAILED, text))
        elif kind == "stopped":
            found.append((Status.ABORTED, text))
        elif unfinished:
            found.append((Status.INCOMPLETE if any(run.rows for run in scan.runs) else Status.FAILED, text))
    return found[:3]
