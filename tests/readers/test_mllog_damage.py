"""MLPerf logs that were cut, damaged or are large: no row is invented, and fewer are never complete."""

from __future__ import annotations

import io
import itertools
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers import item_lists
from tests.readers.item_lists import facts, readings, values
from tests.readers.mllog_text import WHOLE, assert_same_as_whole, event, run, text

from plumbline.errors import OutputError
from plumbline.readers import mllog
from plumbline.readers.reading import Reading, Status
from plumbline.readers.source import Source

DATA = Path(__file__).parents[1] / "data" / "mllog"
items = partial(item_lists.items, mllog)


def test_a_damaged_hyperparameter_is_counted():
    lines = run()
    lines.insert(4, event("opt_name", "adamw", 3).replace('"metadata": {"file": "', "Somewhere/"))
    found = items(text(lines))
    assert facts(found)["bad_mllog_lines"] == 1
    assert facts(found)["mllog_lines"] == len(lines)
    assert_same_as_whole(found)


@pytest.mark.parametrize(
    "damaged",
    [
        ':::MLLOG {"namespace": "", "time_ms": 1700000015000, "key": "eval_accuracy", "value": 2.',
        ":::MLLOG {not json}",
        ":::MLLOG",
        ":::MLLOG null",
        ":::MLLOG [1, 2]",
        ':::MLLOG {"key": "eval_accuracy", "value": 1.0}',
        ':::MLLOG {"time_ms": "soon", "key": "eval_accuracy", "value": 1.0}',
        ':::MLLOG {"time_ms": -5, "key": "eval_accuracy", "value": 1.0}',
        ':::MLLOG {"time_ms": 1700000015000, "key": 7, "value": 1.0}',
        ':::MLLOG {"time_ms": 1700000015000, "key": "eval_accuracy", "value": 1.0, "value": 2.0}',
        ':::MLLOG {"time_ms": 1700000015000, "key": "eval_accuracy", "key": "seed", "value": 2.0}',
        ':::MLLOG {"time_ms": 1' + "0" * 5000 + ', "key": "eval_accuracy", "value": 2.0}',
        ":::MLLOG " + '{"a":' * 100_000,
    ],
)
def test_a_row_that_cannot_be_read_is_no_row_and_the_run_not_whole(damaged):
    lines = run()
    lines.insert(12, damaged)
    found = items(text(lines))
    assert found[-1].status is Status.INCOMPLETE
    assert "damaged" in found[-1].reason
    assert facts(found)["bad_mllog_lines"] == 1
    assert values(found, "eval_accuracy") == [2.9, 2.8375, 2.775]


def test_interleaved_halves_of_two_ranks():
    lines = run()
    victim = next(i for i, line in enumerate(lines) if '"eval_accuracy"' in line)
    lines[victim] = lines[victim][:90] + lines[victim + 1]
    found = items(text(lines))
    assert found[-1].status is Status.INCOMPLETE
    assert len(values(found, "eval_accuracy")) == 2


@pytest.mark.parametrize("name", ["gpt3_success.txt", "bert_aborted.txt", "gpt3_fixed_steps.txt", "generated"])
def test_a_log_that_is_cut_anywhere_is_never_called_complete_with_fewer_rows(name):
    data = WHOLE.encode() if name == "generated" else (DATA / name).read_bytes()
    whole = readings(items(data))
    cuts = {*range(0, len(data), max(1, len(data) // 400)), *range(len(data) - 120, len(data))}
    for cut in sorted(cuts):
        try:
            found = items(data[:cut])
        except OutputError:
            continue
        if found[-1].status is Status.COMPLETE:
            assert readings(found) == whole, f"cut at {cut}"
        else:
            assert [item for item in readings(found) if item not in whole] == []


def test_every_byte_around_the_end_of_a_run():
    data = text(run(steps=1, evals=1)).encode()
    whole = readings(items(data))
    for cut in range(len(data)):
        try:
            found = items(data[:cut])
        except OutputError:
            continue
        if found[-1].status is Status.COMPLETE:
            assert readings(found) == whole, f"cut at {cut}"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_raise_nothing_else_and_invent_no_time(data):
    raw = bytearray(WHOLE.encode())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(raw) - 1))
        change = data.draw(st.sampled_from(["delete", "insert", "replace", "double"]))
        piece = data.draw(st.binary(min_size=1, max_size=30))
        end = place + data.draw(st.integers(1, 300))
        if change == "delete":
            del raw[place:end]
        elif change == "insert":
            raw[place:place] = piece
        elif change == "replace":
            raw[place : place + len(piece)] = piece
        else:
            raw[place:place] = raw[place:end]
        if not raw:
            return
    try:
        found = items(bytes(raw))
    except OutputError:
        return
    assert len(values(found, "time_to_train")) <= facts(found)["n_run_start"]
    for item in readings(found):
        assert item.value - item.value == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*run(steps=1), *run(start=400, steps=1, status="aborted"), "chatter", ":::MLLOG {"])))
def test_records_in_any_order_raise_nothing_else(lines):
    try:
        found = items(text(lines))
    except OutputError:
        return
    stops = [line for line in lines if '"run_stop"' in line and '"success"' in line]
    assert len(values(found, "time_to_train")) <= len(stops)


def test_one_line_of_a_million_tokens_stays_linear():
    for piece in (":::MLLOG ", ':::MLLOG {"', ':::MLLOG {"a": "\\"', ":::MLLOG {"):
        found = items(piece * 8_000 + "\n")
        assert facts(found)["bad_mllog_lines"] >= 1


class Endless(io.RawIOBase):
    """A log of many lines that is never held as a whole."""

    def __init__(self, lines, repeats):
        self._pieces = itertools.chain.from_iterable(lines(number) for number in range(repeats))

    def read(self, size=-1):
        return next(self._pieces, b"")


def test_a_large_log_takes_constant_memory():
    chatter = b"node1:77:99 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7\n" * 1000
    start, stop = run()[:9], run()[-3:]

    def lines(number):
        if number == 0:
            yield text(start).encode()
        yield chatter
        steps = (event("tracked_stats", {"step_time": 1.5}, 20 + number, step=number * 99 + i) for i in range(99))
        yield text(steps).encode()
        if number == 59:
            yield text([event("eval_accuracy", 0.5, 90, epoch_num=1), *stop]).encode()

    tracemalloc.start()
    count = sum(1 for item in mllog.read(Source(Endless(lines, 60)), {}) if isinstance(item, Reading))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 60 * 99 + 2
    assert peak < 24 << 20
