"""Tables of `nvidia-smi --query-…=… --format=csv`: header, rows, repeated polls; shared by two readers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from plumbline.model import Scalar
from plumbline.readers._gpu_state import CSV_FIELDS, Field, common, complaint, reading
from plumbline.readers._quantities import fault, is_absent, quantity, unit_of, whole
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Fact, Reading

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*(?: \[[^\],]{1,12}\])?")
_ID_FIELDS = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id")
_TEXT_FIELDS = frozenset(
    (
        *_ID_FIELDS, "timestamp", "name", "gpu_name", "serial", "gpu_serial", "driver_version", "count", "pid",
        "process_name", "used_gpu_memory", "used_memory", "pstate", "persistence_mode", "compute_mode", "compute_cap",
        "ecc.mode.current", "mig.mode.current", "vbios_version", "pci.bus", "pci.domain", "pci.device_id",
        "clocks_throttle_reasons.active", "clocks_event_reasons.active", "retired_pages.pending", "power.management",
    )
)  # fmt: skip
_MEMORY = Field("process_memory", "MiB")
_FAULTY = ("[", "E", "e")
_UNSEEN: Any = object()
_UNREADABLE = "unreadable cell"
_MOST_KNOWN = 4096
_MOST_HELD = 65536
_MOST_DEVICES = 1024
_MOST_FAULTS = 100


@dataclass(slots=True)
class Table:
    """One query's rows as they come: what its header says, and what has been seen so far."""

    names: list[str]
    units: list[str | None]
    plan: list[tuple[int, Field, dict[str, float | None]]] = field(default_factory=list)
    """(column, quantity, cells read before, as printed, with None for no value: telemetry repeats itself)."""
    rest: list[int] = field(default_factory=list)
    pid: int | None = None
    process: int | None = None
    timestamp: int | None = None
    ids: list[int] = field(default_factory=list)
    rows: int = 0
    poll: int = 0
    seen: set[tuple[str, ...]] = field(default_factory=set)
    per_poll: list[int] = field(default_factory=lambda: [0, 1 << 30])
    """Rows of the poll that is under way, and the fewest of the polls before it."""
    held: list[Reading] | None = field(default_factory=list)
    places: dict[tuple[str, ...], dict[str, Scalar]] = field(default_factory=dict)
    keys: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """What identifies a GPU: cells as printed → the same without spaces around them."""
    devices: dict[tuple[str, ...], dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find where each quantity stands; of two columns for one quantity the first in the field's order counts."""
        lower = [name.lower() for name in self.names]
        self.ids = [lower.index(name) for name in _ID_FIELDS if name in lower]
        taken: dict[int, tuple[int, Field]] = {}
        for column, name in enumerate(lower):
            item = CSV_FIELDS.get(name) or (_MEMORY if name in ("used_gpu_memory", "used_memory") else None)
            if item is None:
                continue
            rank = item.csv.index(name) if name in item.csv else 0
            other = taken.get(id(item))
            if other is None or rank < _rank(other[1], lower[other[0]]):
                taken[id(item)] = (column, item)
        self.plan = [(column, item, {}) for column, item in sorted(taken.values(), key=lambda pair: pair[0])]
        planned = {column for column, _, _ in self.plan}
        self.rest = [column for column in range(len(lower)) if column not in planned and column not in self.ids]
        self.pid = lower.index("pid") if "pid" in lower else None
        self.process = lower.index("process_name") if "process_name" in lower else None
        self.timestamp = lower.index("timestamp") if "timestamp" in lower else None

    @property
    def processes(self) -> bool:
        """Whether rows are processes, of which a GPU may have several."""
        return self.pid is not None

    def place(self, cells: Sequence[str]) -> tuple[dict[str, Scalar], bool]:
        """Give a row's params, and whether it begins another poll."""
        key = self.key(cells)
        if not self.ids or self.pid is not None:
            place: dict[str, Scalar] = {"row": self.rows} if not self.ids else {"gpu": key[0]}
            if self.pid is not None:
                place["pid"] = cells[self.pid].strip()
            if self.process is not None:
                place["process"] = cells[self.process].strip()
            return place, False
        again = key in self.seen
        if again:
            self.seen.clear()
        self.seen.add(key)
        place = dict(self.places.get(key) or self._identify(key))
        if self.timestamp is not None:
            place["timestamp"] = cells[self.timestamp].strip()
        return place, again

    def key(self, cells: Sequence[str]) -> tuple[str, ...]:
        """Give what identifies a row's GPU."""
        printed = tuple([cells[column] for column in self.ids])
        key = self.keys.get(printed)
        if key is None:
            key = tuple([cell.strip() for cell in printed])
            if len(self.keys) < _MOST_DEVICES:
                self.keys[printed] = key
        return key

    def _identify(self, key: tuple[str, ...]) -> dict[str, Scalar]:
        place: dict[str, Scalar] = {"gpu": key[0]}
        for column, cell in list(zip(self.ids, key, strict=True))[1:]:
            if not is_absent(cell):
                name = "bus_id" if "bus_id" in self.names[column] else self.names[column]
                place[name] = number if (number := whole(cell)) is not None else cell
        if len(self.places) < _MOST_DEVICES:
            self.places[key] = place
        return place

    def keep(self, cells: Sequence[str], values: Sequence[tuple[int, Field, float]], cut: bool) -> None:
        """Remember of a device's first row the cells that are no readings."""
        key = self.key(cells) if self.ids else (str(self.rows),)
        if key not in self.devices and len(self.devices) < _MOST_DEVICES:
            read = {column for column, _, _ in values}
            stop = len(cells) - 1 if cut else len(cells)
            self.devices[key] = {
                self.names[column]: cells[column].strip() for column in range(stop) if column not in read
            }


def _rank(item: Field, name: str) -> int:
    return item.csv.index(name) if name in item.csv else 0


def header(line: str) -> tuple[list[str], list[str | None]] | None:
    """Read a header: (field names, their units), or None when the line is none."""
    tokens = [token.strip() for token in line.split(",")]
    names: list[str] = []
    units: list[str | None] = []
    for token in tokens:
        if not _NAME.fullmatch(token):
            return None
        name, _, unit = token.partition(" [")
        names.append(name)
        units.append(unit[:-1] if unit else None)
    known = sum(name.lower() in CSV_FIELDS or name.lower() in _TEXT_FIELDS for name in names)
    return (names, units) if known and known * 4 >= len(names) else None


class Rows:
    """Takes lines one by one, gives readings, and keeps what the facts and the completeness need."""

    def __init__(self, fields: Sequence[str] = ()) -> None:
        """Begin; `fields` stand in for a header that the query left out."""
        self.tables: list[Table] = [Table(list(fields), [None] * len(fields))] if fields else []
        self.assumed = bool(fields)
        self.widths: set[int] = set()
        self.malformed = 0
        self.faults: list[str] = []
        self.fault_count = 0
        self.said: str | None = None
        self.doubtful_end = False
        self.first = True
        """Whether no line came yet: a single name is a header only there, a list of names is none."""
        self.prefixed = False
        """Whether the header stood behind a launcher's or collector's prefix, as its rows then do."""

    def line(self, raw: str, *, ended: bool = True) -> Sequence[Reading]:
        """Take one line, give the readings that are due; `ended` is False for a last line without its line end."""
        line = (strip_prefix(raw) if self.prefixed else raw).strip().lstrip("\ufeff")
        if not line:
            return ()
        if "," not in line and self._is_beside(line, ended):
            return ()
        if (self.tables and line[0].isdigit()) or not _is_hint(line):
            self.first = False
            return self._row(line, ended=ended) if self.tables else ()
        if "," not in line and (said := complaint(line)):
            self.said = self.said or said
            return ()
        found = self._header(line) if ended else None
        self.first = False
        if found is not None:
            return self._begin(*found)
        return self._row(line, ended=ended) if self.tables else ()

    def _is_beside(self, line: str, ended: bool) -> bool:
        """Say that a line without a comma is surely nothing: no row of one cell, no name as header, no complaint."""
        return (
            ended and not self.first and line[0] not in "0123456789[{" and "NVIDIA-SMI" not in line
            and "NVML" not in line and "No devices" not in line and "handle" not in line and "nvidia-smi" not in line
            and (not self.tables or len(self.tables[-1].names) > 1)
        )  # fmt: skip

    def _header(self, line: str) -> tuple[list[str], list[str | None]] | None:
        if not line[0].isdigit() and (found := header(line)) is not None:
            return found if len(found[0]) > 1 or self.first else None
        if line[0] in "0123456789[{" and (found := header(strip_prefix(line))) is not None:
            self.prefixed = True
            return found
        return None

    def _begin(self, names: list[str], units: list[str | None]) -> Sequence[Reading]:
        table = self.tables[-1] if self.tables else None
        due: list[Reading] = []
        if table is not None and [n.lower() for n in table.names] == [n.lower() for n in names]:
            if self.assumed or not table.rows:
                table.units = units
            return due
        if table is not None and not table.rows and self.assumed:
            self.tables.pop()
        elif table is not None:
            due = self.flush(table)
        self.assumed = False
        self.tables.append(Table(names, units))
        return due

    def _row(self, line: str, *, ended: bool) -> Sequence[Reading]:
        table = self.tables[-1]
        width = len(table.names)
        commas = line.count(",")
        cells = line.split(",") if commas + 1 == width else _split(line, width) if '"' in line else []
        if len(cells) != width and commas >= width:
            cells = _split(strip_prefix(line), width)
        if len(cells) != width:
            if commas or not ended:
                self.malformed += 1
                self.widths.add(commas + 1)
            return ()
        cut = not ended and not _is_whole(cells[-1].strip(), table.units[-1])
        values, bad = self._values(table, cells, cut)
        if bad and not values and all(_UNREADABLE in text for text in bad):
            self.malformed += 1
            return ()
        self.widths.add(width)
        self.doubtful_end = self.doubtful_end or cut
        place, again = table.place(cells)
        due: list[Reading] = []
        if again:
            table.poll += 1
            table.per_poll = [0, min(table.per_poll)]
            due = self.flush(table)
        self._note(place, bad)
        table.rows += 1
        table.per_poll[0] += 1
        table.keep(cells, values, cut)
        if table.ids and not table.processes and table.held is None:
            place["poll"] = table.poll
        due += [reading(item, value, place) for _, item, value in values]
        if not table.ids or table.processes or table.held is None:
            return due
        table.held += due
        return self.flush(table) if len(table.held) > _MOST_HELD else ()

    def _note(self, place: dict[str, Scalar], bad: Sequence[str]) -> None:
        self.fault_count += len(bad)
        if bad and len(self.faults) < _MOST_FAULTS:
            where = place.get("index", place.get("gpu", place.get("row")))
            self.faults += [f"GPU {where} {text}" for text in bad]

    def _values(
        self, table: Table, cells: Sequence[str], cut: bool
    ) -> tuple[list[tuple[int, Field, float]], list[str]]:
        """Give a row's numbers with their columns, and the cells that are faults or can't be read."""
        values: list[tuple[int, Field, float]] = []
        bad: list[str] = []
        last = len(cells) - 1 if cut else len(cells)
        for column, item, known in table.plan:
            if column >= last:
                continue
            printed = cells[column]
            value = known.get(printed, _UNSEEN)
            if value is _UNSEEN:
                cell = printed.strip()
                value = quantity(cell, item.unit, printed=unit_of(table.units[column] or ""))
                if value is None and not is_absent(cell):
                    bad.append(f"{table.names[column]}: {fault(cell) or f'{_UNREADABLE} {cell[:40]!r}'}")
                elif len(known) < _MOST_KNOWN:
                    known[printed] = value
            if value is not None:
                values.append((column, item, value))
        for column in table.rest:
            cell = cells[column].lstrip()
            if cell.startswith(_FAULTY) and (found := fault(cell)):
                bad.append(f"{table.names[column]}: {found}")
        return values, bad

    def flush(self, table: Table) -> list[Reading]:
        """Give the readings held back for the first poll: with param poll when another one has begun."""
        held, table.held = table.held or [], None
        if not table.poll:
            return held
        return [Reading(one.indicator, one.value, one.unit, {**one.params, "poll": 0}) for one in held]

    def end(self) -> list[Reading]:
        """Give what is still held back."""
        return [one for table in self.tables for one in self.flush(table)]

    def facts(self) -> Iterator[Fact]:
        """Say what the tables hold besides numbers."""
        if self.said is not None:
            yield Fact("complaint", self.said)
        tables = [table for table in self.tables if not table.processes] or self.tables
        if not tables:
            return
        table = max(tables, key=lambda one: (one.rows > 0, len(one.names)))
        yield Fact("rows", sum(one.rows for one in tables))
        yield Fact("columns", len(table.names))
        yield Fact("cells_per_row", sorted(self.widths))
        yield Fact("fields", [n if u is None else f"{n} [{u}]" for n, u in zip(table.names, table.units, strict=True)])
        if table.ids and not table.processes:
            yield Fact("gpus", len(table.devices))
            yield Fact("polls", table.poll + 1 if table.rows else 0)
        devices = list(table.devices.values())
        for name in ("driver_version", "name", "ecc.mode.current", "mig.mode.current"):
            if (value := common(devices, name)) is not None:
                yield Fact(name, value)
        yield Fact("devices", devices)
        if self.faults:
            yield Fact("faults", self.faults)


def _split(line: str, width: int) -> list[str]:
    cells = line.split(",")
    if len(cells) != width and '"' in line:
        try:
            cells = next(csv.reader([line], skipinitialspace=True, strict=True), [])
        except csv.Error:
            return []
    return [cell.strip() for cell in cells]


def _is_hint(line: str) -> bool:
    """Say whether a line may be a header or a complaint; one chain of tests, for it runs on every line of long logs."""
    return (
        "name" in line or "uuid" in line or "index" in line or "memory" in line or "temperature" in line
        or "utilization" in line or "power" in line or "clocks" in line or "ecc." in line or "pcie" in line
        or "timestamp" in line or "pstate" in line or "version" in line or "pid" in line or "fan." in line
        or "mig." in line or "serial" in line or "count" in line or "bus_id" in line or "NVIDIA-SMI" in line
        or "NVML" in line or "No devices" in line or "handle" in line or "nvidia-smi" in line
    )  # fmt: skip


def _is_whole(cell: str, unit: str | None) -> bool:
    """Say whether a cell at the very end of a cut file can be trusted: it ends with its unit or bracket."""
    if cell.startswith("["):
        return cell.endswith("]")
    return bool(unit) and cell.endswith(f" {unit}")
