"""The rows of a judged run, put together for people: one line for each indicator, operation and node count."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plumbline.amounts import node_list
from plumbline.model import Better, Code, Indicator, VerdictKind, canonical_params, worst
from plumbline.reports.wording import number, params_in_words, unit
from plumbline.tracking.comparison import Change
from plumbline.tracking.judged_run import JudgedRun, Row
from plumbline.tracking.mlflow_payload import look_up, qualifying_params

AXIS = "message_bytes"
GONE = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All rows of a line at one size (None where the indicator has no size): over groups, nodes, GPUs and repeats."""

    size: int | None
    rows: tuple[Row, ...]

    @property
    def values(self) -> list[float]:
        """The values of all places that have one."""
        return [row["actual"] for row in self.rows if row["actual"] is not None]

    @property
    def median(self) -> float | None:
        """The typical value; None where nothing was measured."""
        values = self.values
        return statistics.median(values) if values else None

    def limit(self, name: str) -> float | None:
        """Give a limit: the one of the row that it judges, the median where rows have different ones."""
        found = [row[name] for row in self.rows if row.get(name) is not None]
        return statistics.median(found) if found else None

    @property
    def kind(self) -> VerdictKind:
        """The worst verdict of its rows."""
        return worst(VerdictKind(row["kind"]) for row in self.rows)

    def worst_row(self, better: Better) -> Row | None:
        """Give the row with the worst value, or None where nothing was measured or no direction is bad."""
        rows = [row for row in self.rows if row["actual"] is not None]
        if not rows or better is Better.NEITHER:
            return None
        choose = min if better is Better.HIGHER else max
        return choose(rows, key=lambda row: row["actual"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One indicator of one benchmark at one node count. `cells` are in order of size; the last stands for the line."""

    benchmark: str
    indicator: str
    known: Indicator | None
    words: str
    """What tells it from the benchmark's other lines of that indicator: 'all_reduce'."""
    node_count: int
    cells: tuple[Cell, ...]
    change: Change | None = None
    series: tuple[tuple[str, float], ...] = field(default=())
    """(run id, value) of earlier runs and this one, oldest first."""

    @property
    def headline(self) -> bool:
        """Whether it belongs at the top of the report."""
        return self.known is not None and self.known.headline

    @property
    def better(self) -> Better:
        """Which direction is good."""
        return self.known.better if self.known else Better.NEITHER

    @property
    def title(self) -> str:
        """The indicator's title, or its name where this version doesn't know it."""
        return self.known.title if self.known else self.indicator.replace("_", " ")

    @property
    def last(self) -> Cell:
        """The largest size, or the only cell."""
        return self.cells[-1]

    @property
    def at(self) -> str:
        """The size that the line stands for."""
        return params_in_words({AXIS: self.last.size}) if self.last.size is not None else ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Give what its last cell's rows have in common: benchmark, indicator, params, node count."""
        return self.benchmark, self.indicator, str(self.last.rows[0]["params"]), self.node_count

    @property
    def unit(self) -> str:
        """The unit as people write it."""
        return unit(self.raw_unit)

    @property
    def scale(self) -> float:
        """What figures multiply values by: ratios that are written as percentages are drawn so."""
        return 100.0 if self.known is not None and "%" in self.known.display else 1.0

    @property
    def drawn_unit(self) -> str:
        """The unit on the axis of a figure."""
        return "%" if self.scale != 1.0 else self.unit

    @property
    def raw_unit(self) -> str:
        """The unit as measurements have it."""
        found = [row["unit"] for cell in self.cells for row in cell.rows if row["unit"]]
        return str(found[0]) if found else (self.known.unit if self.known else "1")

    @property
    def kind(self) -> VerdictKind:
        """The worst verdict over all sizes and places."""
        return worst(cell.kind for cell in self.cells)

    @property
    def counts(self) -> Counter[str]:
        """How many rows have which verdict."""
        return Counter(row["kind"] for cell in self.cells for row in cell.rows)

    def show(self, value: float | None) -> str:
        """Write a value of this line, without its unit."""
        return number(value, self.known)

    @property
    def limits(self) -> str:
        """Write the limits of the last cell: '≥ 7.2', '≤ 60', '7.2 … 9.9'."""
        lower, upper = self.last.limit("lower"), self.last.limit("upper")
        if lower is not None and upper is not None:
            return f"{self.show(lower)} … {self.show(upper)}"
        if lower is not None:
            return f"≥ {self.show(lower)}"
        return f"≤ {self.show(upper)}" if upper is not None else "none"

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the limits come from."""
        found = (row.get("reference") for cell in self.cells for row in cell.rows)
        return tuple(dict.fromkeys(str(source) for source in found if source))

    @property
    def only_unjudged(self) -> bool:
        """Whether nothing is wrong but that there is no history to compare with."""
        codes = {row["code"] for cell in self.cells for row in cell.rows if row["kind"] != VerdictKind.PASS}
        return codes == {Code.NO_BASELINE}

    @property
    def places(self) -> str:
        """Say how many places are not a PASS where the line stands for several: '1/15'."""
        wrong = sum(row["kind"] != VerdictKind.PASS for row in self.last.rows)
        return f"{wrong}/{len(self.last.rows)}" if wrong and len(self.last.rows) > 1 else ""

    @property
    def tally(self) -> str:
        """Say what was not a PASS: '3 of 24 FAIL'."""
        counts, total = self.counts, sum(self.counts.values())
        wrong = [
            f"{counts[kind]} {kind}" for kind in reversed(VerdictKind) if kind != VerdictKind.PASS and counts[kind]
        ]
        return f"{', '.join(wrong)} of {total}" if wrong and total > 1 else ""


def collect_lines(run: JudgedRun, changes: Iterable[Change] = ()) -> list[Line]:
    """Put the rows together, in order of benchmark, indicator, parameters and node count; headlines first."""
    rows = [row for row in run.verdicts if row.get("item", "row") == "row" and row["indicator"]]
    names = qualifying_params(rows)
    grouped: dict[tuple[Any, ...], dict[int | None, list[Row]]] = {}
    for row in rows:
        params = json.loads(row["params"] or "{}")
        size = params.pop(AXIS, None)
        key = (row["benchmark"], row["indicator"], canonical_params(params), int(row["node_count"] or 0))
        grouped.setdefault(key, {}).setdefault(size, []).append(row)
    changed = {(c.benchmark, c.indicator, c.params, c.node_count): c for c in changes}
    found = []
    for (benchmark, indicator, params, node_count), sizes in grouped.items():
        cells = tuple(_cells(sizes))
        last = canonical_params(
            {**json.loads(params), **({AXIS: cells[-1].size} if cells[-1].size is not None else {})}
        )
        key = (benchmark, indicator, last, node_count)
        found.append(
            Line(
                benchmark=benchmark,
                indicator=indicator,
                known=look_up(benchmark, indicator),
                words=params_in_words(params, names.get((benchmark, indicator), ())),
                node_count=node_count,
                cells=cells,
                change=changed.get((benchmark, indicator, str(cells[-1].rows[0]["params"]), node_count)),
            )
        )
    return sorted(found, key=lambda line: (line.benchmark, not line.headline, line.title, line.words, line.node_count))


def _cells(sizes: Mapping[int | None, Sequence[Row]]) -> Iterator[Cell]:
    for size in sorted(sizes, key=lambda value: (value is not None, value or 0)):
        yield Cell(size=size, rows=tuple(sizes[size]))


def by_words(lines: Iterable[Line]) -> dict[tuple[str, str, str], list[Line]]:
    """Put the node counts of the same quantity together: (benchmark, indicator, words) → lines, ascending."""
    found: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.benchmark, line.indicator, line.words), []).append(line)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstPlace:
    """One of the places that stand out: how far it is from the median of its peers, as a fraction of it."""

    line: Line
    row: Row
    place: str
    value: float
    distance: float | None


def worst_places(lines: Iterable[Line], run: JudgedRun, limit: int = 20) -> list[WorstPlace]:
    """Give the places that are farthest on the bad side of their peers, over lines that have several places."""
    nodes = {launch["launch_id"]: launch["nodes"] for launch in run.launches}
    found = []
    for line in lines:
        middle = line.last.median
        if line.better is Better.NEITHER or middle is None or len(line.last.values) < 3:
            continue
        sign = 1 if line.better is Better.LOWER else -1
        for row in line.last.rows:
            if row["actual"] is None:
                continue
            distance = (row["actual"] - middle) / abs(middle) if middle else None
            if distance is not None and sign * distance > 0:
                place = row["node"] or node_list(nodes.get(row["launch_id"], ()), 4) or row["place"]
                found.append(WorstPlace(line=line, row=row, place=place, value=row["actual"], distance=distance))
    return sorted(found, key=lambda item: -abs(item.distance or 0))[:limit]
