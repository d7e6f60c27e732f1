"""nvbandwidth's JSON (-j)."""

from __future__ import annotations

import re
from typing import Any

from plumbline.readers._json_documents import Documents
from plumbline.readers._nvbandwidth_matrix import Matrix
from plumbline.readers._nvbandwidth_text import REPORT_MARKS, Outcome

_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?:e\+[0-9]{2})?", re.ASCII)
_BANNER = {
    "version": "version",
    "git_version": "git_version",
    "CUDA Runtime Version": "cuda_runtime",
    "Driver Version": "driver",
    "Hostname": "hostname",
}
_CHANGING = ("testcases", "error", "warning")
"""What may be another in the next report of one run."""
_PARTS = {"read": ("_read1", "_read2", "_total"), "write": ("_write1", "_write2", "_total")}


def read_report(text: str, outcome: Outcome, most: int) -> None:
    """Add what a report says to an outcome. A report that was cut adds a problem only."""
    found = Documents(text[:most], '"nvbandwidth"', marks=REPORT_MARKS)
    roots = [document.get("nvbandwidth") for document in found]
    if not roots:
        if found.cut or '"nvbandwidth"' in text:
            outcome.touched = True
            outcome.problems.append("the report is cut short")
        return
    outcome.touched = True
    if found.cut or not all(isinstance(root, dict) for root in roots):
        outcome.problems.append("the report is damaged or cut")
    if len(text) > most:
        outcome.problems.append(f"the report is longer than {most} characters: the rest was not read")
    whole = [root for root in roots if isinstance(root, dict)]
    for root, following in zip(whole, [*whole[1:], None], strict=True):
        if following is None or not _is_continued(root, following):
            outcome.ended = True
            _head(root, outcome)
            _cases(root, outcome)


def _is_continued(root: dict[str, Any], following: dict[str, Any]) -> bool:
    """Say whether the next report is this one with more in it, and this one's errors, none of which is taken back.

    On an error nvbandwidth prints its report, and once more when it is whole.
    Source: NVIDIA/nvbandwidth, json_output.cpp.
    """
    told, again = root.get("testcases", []), following.get("testcases", [])
    if not isinstance(told, list) or not isinstance(again, list) or len(told) > len(again):
        return False
    head = {**following, **dict.fromkeys(_CHANGING)} == {**root, **dict.fromkeys(_CHANGING)}
    takes_back = bool(root.get("error")) and not following.get("error")
    return head and not takes_back and told[:-1] == again[: max(len(told) - 1, 0)] and _may_become(told, again)


def _may_become(told: list[Any], again: list[Any]) -> bool:
    """Say whether the last test of a report may have become what the next one tells: it ran, or ended as it did."""
    if not told or told[-1] == again[len(told) - 1]:
        return True
    one, other = told[-1], again[len(told) - 1]
    if not isinstance(one, dict) or not isinstance(other, dict) or one.get("name") != other.get("name"):
        return False
    return one.get("status") == "Running" or (one.get("status") != "Passed" and other.get("status") != "Passed")


def _cases(root: dict[str, Any], outcome: Outcome) -> None:
    tests = root.get("testcases")
    if not isinstance(tests, list) and not root.get("error"):
        outcome.problems.append("the report has no tests")
    for case in tests if isinstance(tests, list) else []:
        if isinstance(case, dict):
            _case(case, outcome)
        else:
            outcome.problems.append("a test of the report is damaged")


def _head(root: dict[str, Any], outcome: Outcome) -> None:
    for key, name in _BANNER.items():
        if isinstance(root.get(key), (str, int)):
            outcome.banner[name] = _text(root[key]) if isinstance(root[key], str) else root[key]
    devices = root.get("GPU Device list")
    outcome.devices = [_text(item) for item in devices if isinstance(item, str)] if isinstance(devices, list) else []
    for key, where in (("error", outcome.errors), ("warning", outcome.warnings)):
        if root.get(key):
            where.append(_text(str(root[key]))[:300])


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


def _case(case: dict[str, Any], outcome: Outcome) -> None:
    name, status = _text(str(case.get("name"))), str(case.get("status"))
    if status == "Waived":
        outcome.waived += 1
        return
    outcome.tests[name] = None
    if status != "Passed":
        outcome.errors.append(f"{name}: {status} {_text(str(case.get('error') or ''))}".strip())
        outcome.failed_tests.add(name)
        return
    rows = _rows(case.get("bandwidth_matrix"))
    description = str(case.get("bandwidth_description"))
    if rows is None:
        outcome.problems.append(f"the matrix of {name} is damaged")
        return
    unit = "ns" if "(ns)" in description else "GB/s"
    total: Any = case.get("sum")
    printed = float(total) if type(total) in (int, float) and 0 <= total < 1e15 else None
    if printed is not None:
        outcome.sums[name if "Total" not in description else f"{name}_total"] = printed
    for part, block in _blocks(name, description, rows):
        matrix = Matrix(name, unit, tuple(str(i) for i in range(len(block[0]))), name=part)
        matrix.labels = [str(i) for i in range(len(block))]
        matrix.values = [value for row in block for value in row]
        if block is rows or block[-1] is rows[-1]:
            matrix.printed_sum = printed
            # The sum is exact, the cells have six digits.
            largest = max((value for row in block for value in row if value is not None), default=0.0)
            if not matrix.sum_agrees(max(largest, 1.0) * 5e-6):
                outcome.problems.append(f"the sum {total} of {part} is not that of its cells")
                continue
        outcome.matrices.append(matrix)


def _rows(value: Any) -> list[list[float | None]] | None:
    """Read the rows: numbers are strings, N/A is no number. None when anything else is in them."""
    if not isinstance(value, list) or not value:
        return None
    rows: list[list[float | None]] = []
    for row in value:
        if not isinstance(row, list) or not row or (rows and len(row) != len(rows[0])):
            return None
        cells: list[float | None] = []
        for cell in row:
            if cell == "N/A":
                cells.append(None)
            elif (isinstance(cell, str) and _NUMBER.fullmatch(cell)) or (
                type(cell) in (int, float) and 0 <= cell < 1e9
            ):
                cells.append(float(cell))
            else:
                return None
        rows.append(cells)
    return rows


def _blocks(name: str, description: str, rows: list[list[float | None]]) -> list[tuple[str, list[list[float | None]]]]:
    """Take apart the three matrices that a test in both directions appends to one."""
    columns = len(rows[0])
    if "Total" not in description or len(rows) != 3 * columns:
        return [(name, rows)]
    parts = _PARTS["write" if "write" in name else "read"]
    return [(name + part, rows[at * columns : (at + 1) * columns]) for at, part in enumerate(parts)]
