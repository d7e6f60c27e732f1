"""Expected rows and measurements joined into one frame: what the judge looks at.

One line for every expected row in plan order, then one for every measurement that nobody planned. A measurement that
is there twice is joined once and counted in `copies`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from plumbline.model import Measurement
from plumbline.validation.readout import ExpectedRow

if TYPE_CHECKING:
    import numpy
    import pandas

NUMBERS = ("node_count", "wave", "group", "repeat")
KEY_OF_PLACE = ("launch_id", "node")
OF_PLACE = (*KEY_OF_PLACE, "benchmark", "benchmark_version", *NUMBERS)
OF_WHAT = ("indicator", "gpu", "params")
WORDS = (*KEY_OF_PLACE, *OF_WHAT, "benchmark", "benchmark_version")
STATED = ("run_id", "suite", "cluster", "origin", "device", "unit")
"""What a measurement says of itself and an expected row does not."""

Word = tuple[Any, Sequence[str]]
"""One code a combination (-1 for None), and the texts that the codes stand for."""


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
    place, places = _combined(rows, OF_PLACE)
    what, whats = _combined(rows, OF_WHAT)
    stated, statements = _combined(measured, STATED)
    words = {**_factorized(places, OF_PLACE[: -len(NUMBERS)]), **_factorized(whats, OF_WHAT)}
    keys, distinct = _numbered(words, place, what)
    expected_keys, measured_keys = keys[:size], keys[size:]
    plans, copies = np.bincount(expected_keys, minlength=distinct), np.bincount(measured_keys, minlength=distinct)
    first = np.full(distinct, -1)
    first[measured_keys[::-1]] = np.arange(len(measured) - 1, -1, -1)
    unplanned = np.flatnonzero((plans[measured_keys] == 0) & (first[measured_keys] == np.arange(len(measured))))
    lines = np.concatenate([np.arange(size), size + unplanned])
    source = np.concatenate([first[expected_keys], unplanned])

    columns: dict[str, Any] = {name: _words(words[name], (what if name in OF_WHAT else place)[lines]) for name in WORDS}
    columns |= {name: _integers(places, at, place[lines]) for at, name in enumerate(OF_PLACE) if name in NUMBERS}
    columns |= {name: _words(word, _taken(stated, source)) for name, word in _factorized(statements, STATED).items()}
    columns["measured_version"] = _words(words["benchmark_version"], _taken(place[size:], source))
    columns["measured_node_count"] = _taken_floats(_numbers([m.node_count for m in measured]), source)
    columns["value"] = _taken_floats(_numbers([m.value for m in measured]), source)
    there = source >= 0
    columns["measured"] = np.where(there, 1.0, np.nan)
    magnitude = np.abs(columns["value"])
    columns["magnitude"] = np.where(there & np.isnan(magnitude), np.inf, magnitude)
    columns["copies"] = copies[keys[lines]].astype(float)
    columns["plans"] = plans[keys[lines]].astype(float)
    return pd.DataFrame(columns)


def _combined(rows: Sequence[Any], names: Sequence[str]) -> tuple[Any, list[tuple[Any, ...]]]:
    """Give for each row the number of its combination of attributes, and the combinations: there are few."""
    import numpy as np

    known: defaultdict[tuple[Any, ...], int] = defaultdict(count().__next__)
    numbers = np.fromiter(map(known.__getitem__, map(attrgetter(*names), rows)), dtype=np.int64, count=len(rows))
    return numbers, list(known)


def _factorized(combinations: Sequence[tuple[Any, ...]], names: Sequence[str]) -> dict[str, Word]:
    """Give each attribute of the combinations, which are in the order of `names`, as a word."""
    import numpy as np
    import pandas as pd

    found: dict[str, Word] = {}
    for at, name in enumerate(names):
        values = np.empty(len(combinations), dtype=object)
        values[:] = [item[at] for item in combinations]
        codes, uniques = pd.factorize(values)
        found[name] = (codes, [str(item) for item in uniques])
    return found


def _numbered(words: Mapping[str, Word], place: numpy.ndarray, what: numpy.ndarray) -> tuple[Any, int]:
    """Number the keys of the rows: equal keys have equal numbers, below the count that is given last."""
    import numpy as np
    import pandas as pd

    def numbers(names: Sequence[str]) -> Any:
        key = np.zeros(len(words[names[0]][0]), dtype=np.int64)
        for codes, uniques in (words[name] for name in names):
            key = pd.factorize(key * (len(uniques) + 1) + codes + 1)[0]
        return key

    there, which = numbers(KEY_OF_PLACE), numbers(OF_WHAT)
    key = pd.factorize(there[place] * (len(which) + 1) + which[what])[0]
    return key, int(key.max(initial=-1)) + 1


def _words(word: Word, numbers: numpy.ndarray) -> Any:
    """Give the texts of numbered combinations as a categorical; -1 and None are missing."""
    import numpy as np
    import pandas as pd

    codes, uniques = word
    if not len(codes):
        return pd.Categorical.from_codes(np.full(len(numbers), -1), categories=pd.Index([], dtype=str))
    return pd.Categorical.from_codes(np.where(numbers >= 0, codes[numbers], -1), categories=pd.Index(uniques))


def _integers(combinations: Sequence[tuple[Any, ...]], at: int, numbers: numpy.ndarray) -> Any:
    import pandas as pd

    return pd.array([item[at] for item in combinations], dtype="Int64").take(numbers)


def _taken(numbers: numpy.ndarray, source: numpy.ndarray) -> numpy.ndarray:
    import numpy as np

    if not len(numbers):
        return np.full(len(source), -1)
    taken: numpy.ndarray = np.where(source >= 0, numbers[source], -1)
    return taken


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
