"""nccl-tests cut, mixed and overwritten: refused, or never complete with fewer rows."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.readers import nccl_text as text
from tests.readers.infra_outputs import parts

from plumbline.errors import OutputError
from plumbline.readers import Status, _nccl_run, nccl_tests

parse = partial(parts, nccl_tests)

WHOLE = {
    "2026": text.output("2026"),
    "2019": text.output("2019", "alltoall"),
    "two": text.output("2022") + text.output("2022", "all_gather"),
    "nccl": text.output("2022").replace("#        (B)", text.NCCL + "Launch mode Parallel\n#        (B)"),
    "report": text.report() + "\n",
    "pretty": json.dumps(json.loads(text.report(most=1 << 22)), indent=1),
    "rccl": "".join(text.rccl_record(size, place) + "\n" for size in text.sizes(1 << 20, 1 << 24) for place in (0, 1)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_cut_anywhere(name):
    """A cut output is refused, or gives only rows that the whole one has, and fewer rows are never complete."""
    whole = WHOLE[name].encode()
    expected, facts, _ = parse(whole)
    known = {
        (r.indicator, json.dumps({**r.params, "run": 0, "operation": ""}, sort_keys=True), r.value) for r in expected
    }
    cuts = {*range(0, len(whole), max(1, len(whole) // 200)), *range(len(whole) - 60, len(whole))}
    for cut in sorted(cut for cut in cuts if 0 <= cut < len(whole)):
        try:
            readings, found, status = parse(whole[:cut])
        except OutputError:
            continue
        for r in readings:
            key = (r.indicator, json.dumps({**r.params, "run": 0, "operation": ""}, sort_keys=True), r.value)
            assert key in known, (cut, r)
        if found["rows"] < facts["rows"]:
            one_whole_run = name == "two" and found["rows"] == 11
            assert status.status is not Status.COMPLETE or one_whole_run, cut


def test_line_lost_duplicated_or_swapped():
    chance = random.Random(7)
    lines = text.output("2026").splitlines(keepends=True)
    table = [i for i, line in enumerate(lines) if line[:1] == " "]
    for _ in range(40):
        at = chance.choice(table)
        assert parse("".join(lines[:at] + lines[at + 1 :]))[2].status is Status.INCOMPLETE
        assert parse("".join([*lines[:at], lines[at], *lines[at:]]))[2].status is Status.INCOMPLETE


ROWS = [
    *(text.row("2022", "all_reduce", size, 8) for size in (1024, 2048, 4096, 4096)),
    *(text.row("2022", "all_reduce", 8192, 8, dtype, wrong) for dtype in ("float", "half") for wrong in (0, 3, "N/A")),
    text.NCCL + "x\n", "\n", "# a remark\n", "   12345", "...\n", text.row("2022", "all_reduce", 64, 8)[:70] + "\n",
    text.row("2022", "all_reduce", 64, 8).replace("     ", " \t"), "0: " + text.row("2022", "all_reduce", 64, 8),
    text.header("2022", "all_reduce"), text.footer("2022", 1.5), text.banner("2022", 8, 8, 64, "all_gather"),
]  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(ROWS * 2 + ROWS[:4] * 4), max_size=60), st.integers(0, 9))
def test_rows_that_are_taken_many_at_once_are_read_as_one_by_one(monkeypatch, lines, cut):
    whole = text.banner("2022", 8, 1024, 4096, "all_reduce") + text.header("2022", "all_reduce") + "".join(lines)
    whole = whole[: len(whole) - cut]
    monkeypatch.setattr(_nccl_run, "_HELD_ROWS", 3)
    monkeypatch.setattr(_nccl_run, "_ROWS_AT_ONCE", 1)
    at_once = parse(whole)
    monkeypatch.setattr(_nccl_run.Run, "streams", False)
    assert parse(whole) == at_once
    monkeypatch.undo()


def test_a_long_sweep_keeps_every_row():
    head = text.banner("2022", 8, 1024, 1024 * 6000, "all_reduce") + text.header("2022", "all_reduce")
    rows = [text.row("2022", "all_reduce", 1024 * (i + 1), 8) for i in range(6000)]
    readings, facts, _ = parse(head + "".join(rows))
    assert facts["rows"] == 6000
    assert facts["max_size"] == 1024 * 6000
    by_size = [r.params["message_bytes"] for r in readings if r.indicator == "time" and r.params["in_place"]]
    assert by_size == [1024 * (i + 1) for i in range(6000)]
    assert len(readings) == 8 * 6000


PIECES = st.sampled_from(
    [
        *text.output("2026", most=1 << 21).splitlines(keepends=True),
        *text.output("rccl2019", most=1 << 21).splitlines(keepends=True),
        text.report(most=1 << 20) + "\n", text.rccl_record(8, 0) + "\n",
        "numCycle, collective, ranks, gpusperrank, size\n",
        text.NCCL + "x\n", "   123", "{", "}\n", "[1,0]<stdout>:", "\r", "\n", "\t", "0: ", "...\n", "1e+99 ", "-", "#",
        "     1048576        262144     float     sum      -1" + text.NCCL + "x\n",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(PIECES, st.text(max_size=12)), max_size=40))
def test_any_mixture_is_read_or_refused(pieces):
    data = "".join(pieces).encode("utf-8", "surrogatepass")
    try:
        readings, _, _ = parse(data)
    except OutputError:
        return
    assert all(r.value >= 0 and r.value < 1e120 for r in readings)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4), st.sampled_from(["2026", "report", "rccl", "2019"]))
def test_bytes_overwritten(at, damage, name):
    whole = WHOLE[name].encode()
    at %= len(whole)
    try:
        parse(whole[:at] + damage + whole[at + len(damage) :])
    except OutputError:
        return
