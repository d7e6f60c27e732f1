"""What earlier runs of a cluster measured: for limits from approved history, for trends, and for what has gone stale.

Simulated numbers are never mixed with measured ones, benchmark versions never with each other. A run whose derived
files are not those that its judge wrote is skipped, with the reason; a row that its own run judged INVALID is no value.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import MEASUREMENT_COLUMNS, Code, Origin, VerdictKind
from plumbline.tracking.approvals import is_approved
from plumbline.tracking.judged_run import MEASUREMENTS, VERDICT, VERDICTS, why_untrusted
from plumbline.tracking.run_directory import RunDirectory, find_runs, misplaced

_INTEGERS = ("attempt", "wave", "group", "node_count", "repeat")
_INVALID_KEYS = ("launch_id", "indicator", "node", "params")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A finished run that gave no history, and why."""

    run_id: str
    reason: str
    damaged: bool = True
    """False: a good run of another origin (simulated, measured), which has no business here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rows of earlier runs: `table` is a pyarrow.Table sorted by run, `runs` are those it came from, oldest first."""

    table: Any
    runs: tuple[RunDirectory, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesKey:
    """What one series follows over runs. `group`, `node` and `gpu` are None where places were put together."""

    benchmark: str
    benchmark_version: str
    indicator: str
    node_count: int
    group: int | None
    node: str | None
    gpu: str | None
    params: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The value of one run: the median of its `repeats` values."""

    run_id: str
    measured_at: str
    value: float
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One indicator at one place over runs, oldest first."""

    key: SeriesKey
    unit: str
    points: tuple[Point, ...]


def load_history(
    results: Path,
    cluster: str,
    *,
    origin: Origin,
    suite: str | None = None,
    newest: int | None = None,
    before: str | None = None,
    approved_only: bool = False,
    benchmark_versions: Mapping[str, str] | None = None,
    indicators: Collection[str] | None = None,
    hardware_ids: Collection[str] | None = None,
    params: str | None = None,
    columns: Sequence[str] = MEASUREMENT_COLUMNS,
) -> History:
    """Read the rows of the `newest` usable runs of a cluster (counted before rows are filtered; None takes all).

    `suite` None takes all suites; `before` is a run id that is left out with every later one; `approved_only` keeps
    the runs that a person approved, and skips those whose decisions are damaged. The other arguments filter rows:
    benchmark → version (other benchmarks are left out), indicators, machines, and the exact canonical JSON of `params`.
    """
    runs: list[RunDirectory] = []
    skipped: list[Skipped] = []
    for run in reversed(_earlier(results, cluster, suite, before)):
        if newest is not None and len(runs) >= newest:
            break
        try:
            if approved_only and not is_approved(run):
                continue
        except OutputError as error:
            skipped.append(Skipped(run_id=run.run_id, reason=f"whether it is approved can't be read: {error}"))
            continue
        reason = _why_unusable(run, origin)
        if reason is None:
            runs.append(run)
        else:
            skipped.append(Skipped(run_id=run.run_id, reason=reason, damaged=not reason.startswith(_OTHER_ORIGIN)))
    runs.reverse()
    wanted = _row_filter(origin, benchmark_versions, indicators, hardware_ids, params)
    return History(table=_read(runs, wanted, list(columns)), runs=tuple(runs), skipped=tuple(skipped))


def rows_of(run: RunDirectory, columns: Sequence[str] = MEASUREMENT_COLUMNS) -> Any:
    """Give one run's rows as a pyarrow.Table, without those that it judged INVALID. Raises OutputError."""
    if not (run.derived / MEASUREMENTS).is_file() or not (run.derived / VERDICTS).is_file():
        raise OutputError("is not judged yet: it has no measurements and verdicts", source=run.run_id)
    return _read([run], None, list(columns))


def _earlier(results: Path, cluster: str, suite: str | None, before: str | None) -> list[RunDirectory]:
    return [run for run in find_runs(results, cluster, suite) if before is None or run.run_id < before]


_OTHER_ORIGIN = "its numbers are"


def _why_unusable(run: RunDirectory, origin: Origin) -> str | None:
    if reason := why_untrusted(run, MEASUREMENTS, VERDICTS, VERDICT):
        return reason
    try:
        verdict = run.read_derived(VERDICT)
        found, codes = verdict["origin"], {item["code"] for item in verdict["reasons"]}
    except (OutputError, KeyError, TypeError):
        return "verdict.json is missing or damaged"
    if reason := misplaced(run, verdict):
        return reason
    if Code.EVIDENCE_CHANGED in codes:  # such a verdict names files, not launches: no row of the run can be trusted
        return "its evidence was changed after it was sealed"
    return None if found == origin.value else f"{_OTHER_ORIGIN} {found}, not {origin.value}"


def _row_filter(
    origin: Origin,
    versions: Mapping[str, str] | None,
    indicators: Collection[str] | None,
    hardware_ids: Collection[str] | None,
    params: str | None,
) -> Any:
    import pyarrow.dataset as ds

    wanted = ds.field("origin") == origin.value
    if versions is not None:
        pairs = [(ds.field("benchmark") == b) & (ds.field("benchmark_version") == v) for b, v in versions.items()]
        anything = ds.scalar(False)
        for pair in pairs:
            anything = anything | pair
        wanted = wanted & anything
    if indicators is not None:
        wanted = wanted & ds.field("indicator").isin(list(indicators))
    if hardware_ids is not None:
        wanted = wanted & ds.field("hardware_id").isin(list(hardware_ids))
    return wanted if params is None else wanted & (ds.field("params") == params)


def _schema() -> Any:
    import pyarrow as pa

    types = {name: pa.string() for name in MEASUREMENT_COLUMNS}
    types |= {name: pa.int64() for name in _INTEGERS} | {"value": pa.float64()}
    return pa.schema(list(types.items()))


def _read(runs: Sequence[RunDirectory], wanted: Any, columns: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not runs:
        return pa.table({name: pa.array([], _schema().field(name).type) for name in columns})
    files = [str(run.derived / MEASUREMENTS) for run in runs]
    needed = list(dict.fromkeys([*columns, "run_id", *_INVALID_KEYS]))
    try:
        table = ds.dataset(files, schema=_schema(), format="parquet").to_table(columns=needed, filter=wanted)
    except (pa.lib.ArrowException, OSError) as error:
        raise OutputError(f"history is not readable: {error}", source=MEASUREMENTS) from None
    return _without_invalid(table, runs).select(columns)


def _without_invalid(table: Any, runs: Sequence[RunDirectory]) -> Any:
    """Drop the rows that an INVALID verdict of their own run covers: the launch, or one of its rows."""
    import pyarrow as pa

    covers = set(_invalid_keys(runs))
    if not covers:
        return table
    widths = (
        (True, False, False, False),
        (True, True, False, False),
        (True, True, True, False),
        (True, True, False, True),
        (True, True, True, True),
    )
    rows = zip(*(table[name].to_pylist() for name in ("run_id", *_INVALID_KEYS)), strict=True)
    keep = [
        not any(
            (run, *(part if used else None for part, used in zip(key, width, strict=True))) in covers
            for width in widths
        )
        for run, *key in rows
    ]
    return table.filter(pa.array(keep, pa.bool_()))  # no row at all has no type of its own


def _invalid_keys(runs: Sequence[RunDirectory]) -> Iterator[tuple[str | None, ...]]:
    import pyarrow.dataset as ds

    files = {str(run.derived / VERDICTS): run.run_id for run in runs}
    table = ds.dataset(list(files), format="parquet").to_table(
        columns=["__filename", *_INVALID_KEYS],
        filter=(ds.field("kind") == VerdictKind.INVALID.value) & ds.field("launch_id").is_valid(),
    )
    for name, *key in zip(*(table[column].to_pylist() for column in table.column_names), strict=True):
        yield (files[name], *key)


# -- series ----------------------------------------------------------------------------------------------------------


def series(history: History, *, by_place: bool = True) -> dict[SeriesKey, Series]:
    """Follow every indicator over the runs: the median over repeats, by place or over all places of a node count.

    By place, a row of a node or GPU is followed by its name whatever group it was in; a group of several nodes is
    followed by number only, and its members change with the run's shuffle. The table must have every column.
    """
    places = ("group", "node", "gpu") if by_place else ()
    names = ["benchmark", "benchmark_version", "indicator", "node_count", *places, "params", "unit", "run_id"]
    table = _without_group_of_nodes(history.table) if by_place else history.table
    grouped = table.group_by(names).aggregate([("value", "list"), ("measured_at", "max")])
    columns = [grouped[name].to_pylist() for name in (*names, "value_list", "measured_at_max")]
    found: dict[tuple[Any, ...], list[Point]] = {}
    for *key, run_id, values, at in sorted(zip(*columns, strict=True), key=lambda row: row[-3]):
        point = Point(run_id=run_id, measured_at=at, value=statistics.median(values), repeats=len(values))
        found.setdefault(tuple(key), []).append(point)
    return dict(_named(found, names[:-1]))


def _without_group_of_nodes(table: Any) -> Any:
    """Take the group number from rows that name a node: the node's group is another every night."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = table.column_names.index("group")
    group = pc.if_else(pc.is_valid(table["node"]), pa.scalar(None, pa.int64()), table["group"])
    return table.set_column(place, "group", group)


def _named(found: Mapping[tuple[Any, ...], list[Point]], names: Sequence[str]) -> Iterator[tuple[SeriesKey, Series]]:
    for values, points in found.items():
        fields = dict(zip(names, values, strict=True))
        unit = fields.pop("unit")
        key = SeriesKey(**{"group": None, "node": None, "gpu": None, **fields})
        yield key, Series(key=key, unit=unit, points=tuple(points))
