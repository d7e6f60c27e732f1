"""From rows of nccl-tests to readings: many at once, for sweeps have hundreds of thousands of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from plumbline.readers._nccl_table import UNITS, Block, Columns, Row
from plumbline.readers.reading import Reading, readings_where_there

_CHECKS = ("wrong", "rounding_error")


class Plan:
    """Where in a row's values is what, for one arrangement of columns."""

    def __init__(self, groups: tuple[tuple[bool, Columns], ...]) -> None:
        """Find the columns."""
        self.groups = groups
        names = [(place, name) for place, group in groups for name in group]
        self.bandwidths = [at for at, (_, name) in enumerate(names) if name == "bus_bandwidth"]
        self.checks = [(at, place, name == "wrong") for at, (place, name) in enumerate(names) if name in _CHECKS]
        self.names = [name for _, name in names]
        self.units = [UNITS.get(name, "") for _, name in names]
        self.widths = [(place, len(group)) for place, group in groups]
        """For each placement how many cells it has; those of unknown columns have no value."""


def row_readings(rows: Iterable[tuple[Row, int, Plan]], common: Mapping[str, Any]) -> list[Reading]:
    """Give the readings of rows, each with how often its coordinates came before; `common` are all rows' params."""
    names: list[str] = []
    units: list[str] = []
    values: list[float | None] = []
    places: list[dict[str, Any]] = []
    for row, repeat, plan in rows:
        names += plan.names
        units += plan.units
        values += row.values
        place = _place(common, row, repeat)
        for in_place, width in plan.widths:
            place = place.copy()
            place["in_place"] = in_place
            places += [place] * width
    return readings_where_there(names, values, units, places)


def block_readings(block: Block, repeats: Sequence[int], plan: Plan, common: Mapping[str, Any]) -> list[Reading]:
    """Give what `row_readings` gives of a block's rows."""
    count = len(block.sizes)
    places: list[dict[str, Any]] = []
    once, again = (_place(common, block.first, repeat) for repeat in (0, 1))
    for size, elements, repeat in zip(block.sizes, block.elements, repeats, strict=True):
        place = once
        if repeat:
            place = again.copy()
            place["repeat"] = repeat
        for in_place, width in plan.widths:
            place = place.copy()
            place["message_bytes"], place["count"], place["in_place"] = size, elements, in_place
            places += [place] * width
    values = list(chain.from_iterable(zip(*block.values, strict=True)))
    return readings_where_there(plan.names * count, values, plan.units * count, places)


def _place(common: Mapping[str, Any], row: Row, repeat: int) -> dict[str, Any]:
    """Give the coordinates of a row, but for the placement."""
    place = {**common, "message_bytes": row.size, "dtype": row.dtype}
    if row.elements is not None:
        place["count"] = row.elements
    if row.redop is not None:
        place["redop"] = row.redop
    if row.root is not None:
        place["root"] = row.root
    if repeat:
        place["repeat"] = repeat
    return place
