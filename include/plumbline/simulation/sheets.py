"""Measurements as arrays: one sheet holds all rows of one benchmark at one node count, in all nights side by side.

Every launch of a benchmark at one node count yields the same rows, so what a row is (its kind) and where it is (its
place) are written once, and values are [nights, places, kinds]. NaN is what was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.model import MEASUREMENT_COLUMNS

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

COLUMNS = tuple(name for name in MEASUREMENT_COLUMNS if name not in ("attempt", "hardware_id", "measured_at"))
"""Columns of a frame: those of measurements.parquet without what is said of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a row is; `params` is canonical JSON."""

    indicator: str
    unit: str
    params: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row is: its launch, or for a derived row "derived-" and what it is derived from."""

    launch_id: str
    wave: int
    group: int | None
    repeat: int


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Rows of one benchmark at one node count: T nights, M places, K kinds."""

    benchmark: str
    benchmark_version: str
    node_count: int
    kinds: tuple[Kind, ...]
    places: tuple[Place, ...]
    nodes: NDArray[Any] | None
    """[T, M] index of the place's node; None where a row is of no single node."""
    values: NDArray[Any]
    """[T, M, K]"""

    def column(self, indicator: str) -> Iterator[tuple[Kind, NDArray[Any]]]:
        """Give every kind of an indicator with its values, [T, M]."""
        for k, kind in enumerate(self.kinds):
            if kind.indicator == indicator:
                yield kind, self.values[:, :, k]


class Frames:
    """Sheets as data frames, one a night: what is the same in all nights is laid out once."""

    def __init__(self, sheets: Sequence[Sheet], names: Sequence[str]) -> None:
        """Take sheets of the nights' shape; `names` are the nodes in inventory order."""
        import numpy as np
        import pandas as pd

        self._names = pd.Index(names)
        parts = [_shared(sheet) for sheet in sheets]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        found = pd.DataFrame({name: columns[name] for name in ("node_count", "wave", "repeat")})
        found["group"] = pd.arrays.IntegerArray(np.maximum(columns["group"], 0), columns["group"] < 0)
        for name in ("benchmark", "benchmark_version", "launch_id", "indicator", "unit", "params"):
            found[name] = pd.Categorical(columns[name])
        found["gpu"] = None
        self._shared = found

    def night(self, sheets: Sequence[Sheet], t: int, same: Mapping[str, str]) -> pandas.DataFrame:
        """Give night t's rows with COLUMNS; `same` holds its run_id, suite, cluster, origin and device.

        Rows without a value are left out. Texts are categoricals.
        """
        import numpy as np
        import pandas as pd

        values = np.concatenate([sheet.values[t].reshape(-1) for sheet in sheets])
        nodes = np.concatenate([_nodes(sheet, t) for sheet in sheets])
        found = self._shared.assign(value=values, node=pd.Categorical.from_codes(nodes, categories=self._names))
        once = np.zeros(len(found), dtype=np.int8)
        for name, text in same.items():
            found[name] = pd.Categorical.from_codes(once, categories=pd.Index([text]))
        there = np.isfinite(values)
        found = found[list(COLUMNS)]
        return found if there.all() else found[there].reset_index(drop=True)


def _shared(sheet: Sheet) -> dict[str, NDArray[Any]]:
    """Give the columns of one sheet that are the same every night, place by place."""
    import numpy as np

    m, k = len(sheet.places), len(sheet.kinds)

    def of_places(values: list[Any]) -> NDArray[Any]:
        return np.repeat(np.array(values, dtype=object if isinstance(values[0], str) else np.int64), k)

    return {
        "node_count": np.full(m * k, sheet.node_count, dtype=np.int64),
        "benchmark": np.full(m * k, sheet.benchmark, dtype=object),
        "benchmark_version": np.full(m * k, sheet.benchmark_version, dtype=object),
        "launch_id": of_places([place.launch_id for place in sheet.places]),
        "wave": of_places([place.wave for place in sheet.places]),
        "group": of_places([-1 if place.group is None else place.group for place in sheet.places]),
        "repeat": of_places([place.repeat for place in sheet.places]),
        **{
            name: np.tile(np.array([getattr(kind, name) for kind in sheet.kinds], dtype=object), m)
            for name in ("indicator", "unit", "params")
        },
    }


def _nodes(sheet: Sheet, t: int) -> NDArray[Any]:
    """Give the node index of every row of one sheet, -1 for none."""
    import numpy as np

    k = len(sheet.kinds)
    if sheet.nodes is None:
        return np.full(len(sheet.places) * k, -1, dtype=np.int64)
    return np.asarray(np.repeat(sheet.nodes[t], k), dtype=np.int64)
