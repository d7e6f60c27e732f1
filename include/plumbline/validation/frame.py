"""Expected rows and measurements joined into one frame: what the judge looks at.

One line for every expected row in plan order, then one for every measurement that nobody planned. A measurement that
is there twice is joined once and counted in `copies`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from plumbline.model import Measurement
from plumbline.validation.readout import ExpectedRow

if TYPE_CHECKING:
    import numpy
    import pandas

KEY = ("launch_id", "indicator", "node", "gpu", "params")
WORDS = (*KEY, "benchmark", "benchmark_version")
NUMBERS = ("node_count", "wave", "group", "repeat")
STATED = ("run_id", "suite", "cluster", "origin", "device", "unit")
"""What a measurement says of itself and an expected row does not."""


def join(expected: Sequence[ExpectedRow], measured: Sequence[Measurement]) -> pandas.DataFrame:
    """Give the joined frame.

    Columns: WORDS and NUMBERS as planned; STATED (missing where nothing was measured); `value` (missing where nothing
    was measured, or it is not a number), `measured` (1 or missing), `magnitude` (|value|, infinite for what is not a
    number), `copies` and `plans` (how often the key was measured and expected), `measured_version` and
    `measured_node_count`.
    """
    import numpy as np
    import pandas as pd

    size = len(expected)
    rows: list[Any] = [*expected, *measured]
    words = {name: _factorized(rows, name) for name in WORDS}
    keys, count = _numbered([words[name] for name in KEY])
    expected_keys, measured_keys = keys[:size], keys[size:]
    plans, copies = np.bincount(expected_keys, minlength=count), np.bincount(measured_keys, minlength=count)
    first = np.full(count, -1)
    first[measured_keys[::-1]] = np.arange(len(measured) - 1, -1, -1)
    unplanned = np.flatnonzero((plans[measured_keys] == 0) & (first[measured_keys] == np.arange(len(measured))))
    lines = np.concatenate([np.arange(size), size + unplanned])
    source = np.concatenate([first[expected_keys], unplanned])

    columns: dict[str, Any] = {name: _words(words[name], lines) for name in WORDS}
    for name in NUMBERS:
        columns[name] = _integers([rows[i] for i in lines] if len(unplanned) else expected, name)
    columns |= {name: _words(_factorized(measured, name), source) for name in STATED}
    columns["measured_version"] = _words((words["benchmark_version"][0][size:], words["benchmark_version"][1]), source)
    columns["measured_node_count"] = _taken_floats(_numbers([m.node_count for m in measured]), source)
    columns["value"] = _taken_floats(_numbers([m.value for m in measured]), source)
    there = source >= 0
    columns["measured"] = np.where(there, 1.0, np.nan)
    magnitude = np.abs(columns["value"])
    columns["magnitude"] = np.where(there & np.isnan(magnitude), np.inf, magnitude)
    columns["copies"] = copies[keys[lines]].astype(float)
    columns["plans"] = plans[keys[lines]].astype(float)
    return pd.DataFrame(columns)


def _factorized(rows: Sequence[Any], name: str) -> tuple[Any, list[str]]:
    """Give one code a row (-1 for None) and the texts that the codes stand for."""
    import numpy as np
    import pandas as pd

    values = np.empty(len(rows), dtype=object)
    values[:] = [*map(attrgetter(name), rows)]
    codes, uniques = pd.factorize(values)
    return codes, [str(item) for item in uniques]


def _numbered(words: Sequence[tuple[Any, list[str]]]) -> tuple[Any, int]:
    """Number the combinations of codes: equal combinations have equal numbers, below the count that is given last."""
    import numpy as np
    import pandas as pd

    key = np.zeros(len(words[0][0]), dtype=np.int64)
    for codes, uniques in words:
        key = pd.factorize(key * (len(uniques) + 1) + codes + 1)[0]
    return key, int(key.max(initial=-1)) + 1


def _words(word: tuple[Any, list[str]], lines: numpy.ndarray) -> Any:
    """Give the texts at `lines` as a categorical; -1 and None are missing."""
    import numpy as np
    import pandas as pd

    codes, uniques = word
    if not len(codes):
        return pd.Categorical.from_codes(np.full(len(lines), -1), categories=pd.Index([], dtype=str))
    return pd.Categorical.from_codes(np.where(lines >= 0, codes[lines], -1), categories=pd.Index(uniques))


def _integers(rows: Sequence[Any], name: str) -> Any:
    import pandas as pd

    return pd.array([*map(attrgetter(name), rows)], dtype="Int64")


def _taken_floats(values: numpy.ndarray, source: numpy.ndarray) -> numpy.ndarray:
    import numpy as np

    if not len(values):
        return np.full(len(source), np.nan)
    taken: numpy.ndarray = np.where(source >= 0, values[source], np.nan)
    return taken


def _numbers(values: Sequence[Any]) -> Any:
    """Give floats, NaN for whatever is not a number (a text or a boolean is none)."""
    import numpy as np

    if {*map(type, values)} <= {float, int}:
        return np.array(values, dtype=float)
    plain = [float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else math.nan for v in values]
    return np.array(plain, dtype=float)
