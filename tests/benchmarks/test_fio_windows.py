"""The time in which all clients of the storage benchmark ran at once, and percentiles merged over clients."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.benchmarks._fio_windows import Activity, common, contradiction, merged_percentile, parse_log
from plumbline.errors import OutputError


def activity(name: str, begin: float, rates: list[float], **changes: Any) -> Activity:
    entries = tuple((begin + 100.0 * (i + 1), rate) for i, rate in enumerate(rates))
    runtime = 100.0 * len(rates)
    made = Activity(
        name=name, total_bytes=int(sum(rates) * 102.4), total_ios=int(sum(rates)), runtime_ms=runtime,
        reported_ms=begin + runtime + 20, entries=entries,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def test_only_the_common_time_counts() -> None:
    first = activity("a", 0, [1000.0] * 50)
    late = activity("b", 2500, [3000.0] * 50)
    found = common([first, late])
    assert found is not None
    assert found.window_s == pytest.approx(2.5)
    assert found.bytes_per_s == pytest.approx(4000 * 1024, rel=0.01), "not 8000 + 0, and not the sum of both runs"
    assert found.per_client["a"] == pytest.approx(1000 * 1024, rel=0.01)
    assert common([first, activity("c", 9000, [1.0] * 10)]) is None


def test_amounts_come_from_the_report_where_intervals_have_no_entry() -> None:
    stalled = activity("a", 0, [1000.0] * 50)
    gappy = dataclasses.replace(stalled, entries=stalled.entries[::2], total_bytes=stalled.total_bytes // 2)
    found = common([gappy])
    assert found is not None
    assert found.bytes_per_s == pytest.approx(500 * 1024, rel=0.01)
    assert contradiction(gappy) is None


def test_a_log_of_another_run_is_noticed() -> None:
    mine = activity("a", 0, [1000.0] * 50)
    assert contradiction(mine) is None
    assert "bytes" in str(contradiction(dataclasses.replace(mine, total_bytes=mine.total_bytes * 3)))
    assert "bytes" in str(contradiction(dataclasses.replace(mine, total_bytes=mine.total_bytes // 3)))
    assert "another time" in str(contradiction(dataclasses.replace(mine, reported_ms=2000.0)))


@pytest.mark.parametrize(
    "text", ["", "1, 2\n", "1, 2, 0, 0, 0", "1, -2, 0, 0, 0\n", "5, 1, 0, 0, 0\n1, 1, 0, 0, 0\n", "\n"]
)
def test_damaged_logs_are_refused(text: str) -> None:
    with pytest.raises(OutputError):
        parse_log(text, "x_bw.log")


RATES = st.lists(st.floats(1, 1e6), min_size=10, max_size=60)


@given(RATES, RATES, st.floats(0, 2000))
def test_shares_add_up(first: list[float], second: list[float], delay: float) -> None:
    one, two = activity("a", 1000, first), activity("b", 1000 + delay, second)
    assert one.share(0, 1e9) == pytest.approx(1)
    assert one.share(0, 2000) + one.share(2000, 1e9) == pytest.approx(1)
    found = common([one, two])
    if found is not None:
        assert 0 <= found.bytes_per_s <= (max(first) + max(second)) * 1024 * 1.05 + 1


@given(st.lists(st.dictionaries(st.integers(1, 50), st.integers(1, 30), max_size=8), max_size=4), st.floats(0.1, 100))
def test_merged_percentiles_are_those_of_all_values(histograms: list[dict[int, int]], percentile: float) -> None:
    values = sorted(value for h in histograms for value, count in h.items() for _ in range(count))
    found = merged_percentile(histograms, percentile)
    if not values:
        assert found is None
        return
    assert found is not None
    assert sum(v <= found for v in values) >= percentile / 100 * len(values) - 1e-6
    assert sum(v < found for v in values) < percentile / 100 * len(values) + 1e-6
