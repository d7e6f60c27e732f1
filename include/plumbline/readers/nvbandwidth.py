"""nvbandwidth: text and JSON, versions 0.1 to 0.8 and newer.

A matrix counts when its SUM line follows and is its sum. The JSON of tests with several matrices (read1, read2, total)
appends all rows to one matrix and keeps the last sum: they are taken apart again. Source: NVIDIA/nvbandwidth,
inline_common.h, output.cpp, json_output.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._expectations import expected_count, expected_words
from plumbline.readers._nvbandwidth_matrix import Places, places_of
from plumbline.readers._nvbandwidth_report import read_report
from plumbline.readers._nvbandwidth_text import LARGEST_REPORT, Outcome, TextScan
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "nvbandwidth"
TOOL = "nvbandwidth 0.1 to 0.8 (text and JSON)"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "bandwidth": ("GB/s", "bandwidth of one copy: between the row's and the column's device"),
    "latency": ("ns", "memory latency between the row's and the column's device"),
    "bandwidth_sum": ("GB/s", "sum of a matrix as the tool prints it"),
}
FACTS: Mapping[str, str] = {
    "version": "version of nvbandwidth",
    "git_version": "git version that it was built from",
    "cuda_runtime": "CUDA runtime as the tool prints it (12040 is 12.4)",
    "driver": "driver version",
    "hostname": "host",
    "devices": "GPUs in order, with bus ids",
    "tests": "tests that ran",
    "test_names": "names of the tests that ran",
    "waived": "tests that this machine cannot run",
    "sums": "sum of each matrix as printed, by the name beside it",
    "errors": "tests that failed, and what the tool says of them",
    "warnings": "warnings of the tool",
}
EXPECTATIONS: Mapping[str, str] = {
    "tests": "comma-separated tests that must have given a result (host_to_device_memcpy_ce)",
    "devices": "GPUs that must be listed",
}
_MOST_KEPT = 4096
"""Of larger matrices the params are made each time, for the memory that they take."""


def sniff(head: str) -> float:
    """Say how sure the text looks like nvbandwidth: its banner, its JSON, or its sums."""
    if "nvbandwidth Version" in head or ('"nvbandwidth"' in head and '"testcases"' in head):
        return 0.95
    return 0.6 if "memcpy CE CPU(row)" in head or "\nSUM host_to_device_memcpy" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give readings matrix by matrix, then facts. Raises OutputError when there is no banner, test or report."""
    wanted_tests, wanted_devices = expected_words(expect, "tests"), expected_count(expect, "devices")
    scan, places = TextScan(), lru_cache(maxsize=32)(places_of)
    first = ""
    for lines in source.line_blocks():
        scan.feed(lines, source.ends_whole)
        first = first or next((line[:200] for line in lines if line), "")
        yield from _readings(scan.outcome, places)
    outcome = scan.finish()
    if scan.report_lines:
        read_report("\n".join(scan.report_lines), outcome, LARGEST_REPORT)
    if not outcome.touched:
        raise OutputError("no banner, test or report of nvbandwidth", source=source.name, excerpt=first)
    yield from _readings(outcome, places)
    for name, value in _facts(outcome).items():
        yield Fact(name, value)
    yield _completeness(outcome, wanted_tests, wanted_devices)


def _readings(outcome: Outcome, places: Places) -> Iterator[Reading]:
    for matrix in outcome.take_matrices():
        yield from matrix.readings(places if len(matrix.values) <= _MOST_KEPT else places_of)


def _facts(outcome: Outcome) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        **outcome.banner,
        "devices": outcome.devices or None,
        "tests": len(outcome.tests),
        "test_names": list(outcome.tests) or None,
        "waived": outcome.waived,
        "sums": outcome.sums or None,
        "errors": outcome.errors or None,
        "warnings": outcome.warnings or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _completeness(outcome: Outcome, wanted_tests: list[str], wanted_devices: int | None) -> Completeness:
    problems = list(outcome.problems)
    problems += [f"{name} gave no matrix" for name in outcome.without_matrix()]
    names = outcome.names.keys() | outcome.tests_given
    problems += [f"no result of {name}" for name in wanted_tests if name not in names]
    if wanted_devices is not None and len(outcome.devices) != wanted_devices:
        problems.append(f"{len(outcome.devices)} GPUs are listed, expected {wanted_devices}")
    begun = bool(outcome.tests or outcome.names or problems)
    if not outcome.names:
        problems.append("no test gave a result")
    if any(times > 1 for times in outcome.names.values()):
        problems.append("results are there twice: several runs in one output")
    if outcome.errors:
        status = Status.FAILED
    elif problems:
        status = Status.INCOMPLETE if begun else Status.NOT_STARTED
    elif not outcome.ended and not wanted_tests:
        has_footer = outcome.has_footer
        status = Status.INCOMPLETE if has_footer else Status.UNKNOWN
        problems.append(
            "the closing NOTE is missing"
            if has_footer
            else "this version prints nothing at its end, nothing was expected"
        )
    else:
        status = Status.COMPLETE
    return Completeness(
        reader=NAME,
        status=status,
        expected={**({"tests": wanted_tests} if wanted_tests else {}), **_number("devices", wanted_devices)},
        found={"tests": len(outcome.tests), "matrices": outcome.names.total(), "waived": outcome.waived},
        reason="; ".join([*outcome.errors, *problems]),
    )


def _number(name: str, value: int | None) -> dict[str, int]:
    return {} if value is None else {name: value}
