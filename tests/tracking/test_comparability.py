from __future__ import annotations

from typing import Any

import pytest

from plumbline.benchmarks import benchmarks
from plumbline.tracking.comparability import _SELECTING, Difference, Setting, difference

SIZE = '{"message_bytes":8192,"operation":"all_reduce"}'
PEAK = '{"operation":"all_reduce"}'


def setting(*params: dict[str, Any], version: str = "1") -> Setting:
    return Setting(version=version, params=params)


def test_equal_settings_do_not_differ():
    assert difference(setting({"seed": 1}), setting({"seed": 1})) is None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (setting({}, version="1"), setting({}, version="2"), "benchmark version 1 → 2"),
        (setting({"threads": 1, "seed": 1}), setting({"threads": 2}), "seed: 1 → absent; threads: 1 → 2"),
        (setting({"checkpoint": True}), setting({"checkpoint": False}), "checkpoint: true → false"),
        (setting({"devices": "0,1"}), setting({"devices": "0"}), 'devices: "0,1" → "0"'),
        (setting({"n": 1}), setting({"n": 1}, {"n": 2}), "sets of parameters: 1 → 2"),
        (setting({"n": 1}, {"n": 2}), setting({"n": 1}, {"n": 3}), "n: 2 → 3"),
        (setting({"n": 1, "max_bytes": 8}), setting({"n": 2, "max_bytes": 9}), "n: 1 → 2"),
    ],
)
def test_what_measures_otherwise_leaves_no_row_comparable(old: Setting, new: Setting, reason: str):
    assert difference(old, new) == Difference(reason=reason)


def test_what_selects_rows_leaves_them_comparable_but_not_what_stands_for_them():
    found = difference(setting({"min_bytes": 8, "max_bytes": 64}), setting({"min_bytes": 16, "max_bytes": 32}))
    assert found is not None and found.reason == ""
    assert found.summary(SIZE) is None and found.summary(PEAK) == "max_bytes: 64 → 32; min_bytes: 8 → 16"
    found = difference(setting({"operations": "all_reduce,alltoall"}), setting({"operations": "all_reduce"}))
    assert found is not None and found.summary(PEAK) is None is found.summary(SIZE)
    assert found.summary("{}") == 'operations: "all_reduce,alltoall" → "all_reduce"'
    assert difference(setting({"jobs": "seq_read"}), setting({"jobs": "seq_read,rand_read"})) is None


def test_what_selects_is_a_parameter_of_some_benchmark():
    assert _SELECTING.keys() <= {name for module in benchmarks().values() for name in module.PARAMETERS}
