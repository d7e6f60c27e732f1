"""The verdict table on a terminal: what closes the gate first, and nothing wider than the window."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.amounts import node_list, plural
from plumbline.execution.asked import asked_in_words
from plumbline.model import Code, VerdictKind
from plumbline.reports.counts import compared_in_words, indicators_without_baseline
from plumbline.reports.wording import clean

NARROWEST, WIDEST, NO_TERMINAL = 60, 160, 120
"""Columns: what is narrower is broken by the terminal itself; a pipe or a log has no width of its own."""
MOST_LINES = 6
"""Lines that one reason takes; its whole text is in verdict.json."""
MOST_OTHERS = 5
"""Reasons that find room beside many which close the gate."""
_HEAD = 32
"""Columns of the verdict and its code."""
_UNBROKEN = "\xa0"
Reason = Mapping[str, Any]


def terminal_width() -> int:
    """Give the columns to write in: COLUMNS, else the terminal's, else NO_TERMINAL; within bounds."""
    return min(max(shutil.get_terminal_size((NO_TERMINAL, 24)).columns, NARROWEST), WIDEST)


def verdict_lines(
    verdict: Mapping[str, Any],
    findings: Sequence[Mapping[str, Any]],
    report: Path,
    *,
    approvable: bool,
    width: int = NO_TERMINAL,
    most: int = 20,
) -> Iterator[str]:
    """Give the table, line by line.

    Args:
        verdict: The content of verdict.json.
        findings: The content of findings.json; empty where no report was written.
        report: The report's path, as it shall be shown.
        approvable: Whether the run may become part of the baseline.
        width: Columns that no line exceeds, but for words that are longer.
        most: Reasons to show; what closes the gate comes first.
    """
    for line in _lines(verdict, findings, report, approvable, width, most):
        yield clean(line.replace(_UNBROKEN, " "))


def _lines(
    verdict: Mapping[str, Any],
    findings: Sequence[Mapping[str, Any]],
    report: Path,
    approvable: bool,
    width: int,
    most: int,
) -> Iterator[str]:
    yield ""
    yield from _wrapped("", _title(verdict), width, 2)
    yield from _wrapped("measured: ", _measured(verdict), width)
    if words := asked_in_words(verdict.get("asked", ())):
        yield from _wrapped("asked:    ", f"not the suite as it is: {words}", width)
    if words := compared_in_words(verdict):
        yield from _wrapped("compared: ", words, width)
    yield ""
    told = list(_reasons(verdict, width, most, approvable))
    yield from [*told, ""] if told else ()
    for label, text in dict.fromkeys((s["label"], s["text"]) for f in findings if (s := f.get("suspect"))):
        yield from [*_wrapped(f"{label}: ", text, width, 10), ""]
    yield f"report:  {report}"
    yield f"MLflow:  {verdict.get('mlflow_run_id') or 'not logged'}"


def _wrapped(head: str, text: str, width: int, hang: int | None = None) -> list[str]:
    indent = " " * (len(head) if hang is None else hang)
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _title(verdict: Mapping[str, Any]) -> str:
    stamps = [
        text
        for text, shown in (
            ("SIMULATED", verdict["origin"] == "simulated"),
            ("CPU only, no GPU was measured", verdict["device"] == "cpu"),
        )
        if shown
    ]
    name = f"{verdict['cluster']} / {verdict['suite']} / {verdict['run_id']}"
    return f"{verdict['verdict']}: the gate is {verdict['gate']}   {name}   {' · '.join(stamps)}".rstrip()


def _measured(verdict: Mapping[str, Any]) -> str:
    """Say how much was measured, and tell what is missing from what was left out with the suite's leave."""
    coverage = verdict["coverage"]
    allowed = {place for r in verdict["reasons"] if not closes(r) for place in (r["place"], r.get("node")) if place}
    closing = {place for r in verdict["reasons"] if closes(r) for place in (r["place"], r.get("node")) if place}
    absent = [str(place) for place in coverage["missing"]]
    left_out = [place for place in absent if place in allowed - closing]
    missing = [place for place in absent if place not in left_out]
    text = (
        f"{coverage['measured']} of {coverage['expected']} nodes, {coverage['rows_measured']:,} of "
        f"{coverage['rows_expected']:,} values"
    )
    text += f"; missing: {node_list(missing, 8)}" if missing else ""
    return text + (f"; left out, which does not close the gate: {node_list(left_out, 8)}" if left_out else "")


def closes(reason: Reason) -> bool:
    """Say whether a reason closes the gate: one that doesn't say so does."""
    return reason.get("blocks") is not False


def _reasons(verdict: Mapping[str, Any], width: int, most: int, approvable: bool) -> Iterator[str]:
    """List the reasons below what they do to the gate, and say so where something was left out of a line."""
    bare = [row for row in verdict["reasons"] if row["code"] == Code.NO_BASELINE]
    rows = [row for row in verdict["reasons"] if row["code"] != Code.NO_BASELINE]
    closing, others = [row for row in rows if closes(row)], [row for row in rows if not closes(row)]
    bare_closes = any(closes(row) for row in bare)
    advice = f"when they look right: plumbline approve {verdict['run_id']} --by NAME" if approvable else ""
    without = list(_without_baseline(bare, advice, width))
    shown_closing = closing[: most - min(len(others), MOST_OTHERS)]
    shown_others = others[: most - len(shown_closing)]
    gaps = any(row["verdict"] in (VerdictKind.NOT_RUN, VerdictKind.STALE) for row in others)
    if closing or (bare_closes and others):
        yield "what closes the gate:"
    told = _Told(width)
    yield from told.lines(shown_closing)
    yield from without if bare_closes else ()
    if len(shown_closing) < len(closing):
        yield f"  … and {len(closing) - len(shown_closing)} more in the report"
    if gaps or ((others or bare) and closing) or (others and bare_closes):
        yield "what does not close the gate:"
    yield from told.lines(shown_others)
    if len(shown_others) < len(others):
        yield f"  … and {len(others) - len(shown_others)} more in the report"
    yield from () if bare_closes else without
    if told.left_out:
        yield from _wrapped(
            "  ", f"(left out above: {', '.join(sorted(told.left_out))}; the report and verdict.json have it)", width
        )


def _without_baseline(bare: Sequence[Reason], advice: str, width: int) -> Iterator[str]:
    if bare:
        have = plural(indicators_without_baseline(bare), "indicator has", "indicators have")
        text = f"{have} no reference here and no approved history yet;"
        yield from _wrapped(_head(bare[0]), text, width, _hang(width))
        if advice:
            yield from _wrapped(" " * _hang(width), advice, width)


def _head(row: Reason) -> str:
    return f"  {row['verdict']:8} {row['code']:20} "


def _hang(width: int) -> int:
    """Give the columns that the lines after a reason's first are indented by."""
    return _HEAD if width >= NO_TERMINAL - _HEAD else _HEAD // 3


class _Told:
    """Writes reasons, and remembers what it left out of them."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.left_out: set[str] = set()

    def lines(self, rows: Sequence[Reason]) -> Iterator[str]:
        """Write each reason in a few lines: verdict and code, then place, message and what was expected."""
        for row in rows:
            lines = _wrapped(_head(row), self._text(row), self._width, _hang(self._width))
            if len(lines) > MOST_LINES:
                self.left_out.add("the ends of long texts")
                lines = [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][: self._width - 2]} …"]
            yield from lines

    def _text(self, row: Reason) -> str:
        message = str(row["message"])
        told = row.get("indicator") and _says(message, str(row["indicator"]))
        indicator = f"{row['indicator']}: " if row.get("indicator") and not told else ""
        number = "" if row.get("actual") is None else f"{row['actual']:.4g}"
        actual = f"; measured {number} {row['unit'] or ''}".rstrip() if number and not _says(message, number) else ""
        return f"{row['place']}: {indicator}{message}{actual}{self._expected(row)}"

    def _expected(self, row: Reason) -> str:
        """Give the limit without its source, which is often longer than all the rest."""
        limit, opening, _ = str(row.get("expected") or "").partition(" (")
        if opening:
            self.left_out.add("where limits come from")
        return f"; expected {limit.replace(' ', _UNBROKEN)}" if limit else ""


def _says(message: str, word: str) -> bool:
    """Say whether a message has a name or a number as a whole: 'time' isn't said by 'timeout', nor 1 by 'n0001'."""
    return re.search(rf"(?<![\w.]){re.escape(word)}(?![\w]|\.\d)", message) is not None
