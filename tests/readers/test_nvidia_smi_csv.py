"""nvidia-smi --query-gpu --format=csv: columns by their header, rows only where the cells are as many."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import DATA, check_cuts, outcome

from plumbline.errors import OutputError
from plumbline.readers import nvidia_smi_csv as reader
from plumbline.readers.reading import Status

TWO = (DATA / "nvidia_smi_csv" / "two_gpus.csv").read_text()
LOOP = (DATA / "nvidia_smi_csv" / "loop.csv").read_text()
FIELDS = TWO.splitlines()[0].replace(" [W]", "").replace(" [MHz]", "").replace(" [MiB]", "").replace(" [%]", "")


def test_rows_by_their_header():
    read = outcome(reader, TWO)
    assert read.value("temperature", index=1) == 62
    assert read.value("power", index=0, bus_id="00000000:1B:00.0") == 655.25
    assert read.value("clock_sm", index=1) == 1965
    assert read.value("ecc_errors", index=1, kind="uncorrected", counter="volatile", location="total") == 1
    assert read.facts["rows"] == 2 == read.facts["gpus"]
    assert read.facts["cells_per_row"] == [13]
    assert read.facts["name"] == "NVIDIA H100 80GB HBM3"
    assert "poll" not in read.readings[0].params
    assert read.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("expect", "status"),
    [
        ({"gpus": 2}, Status.COMPLETE),
        ({"gpus": "2", "polls": 1}, Status.COMPLETE),
        ({"gpus": 8}, Status.INCOMPLETE),
        ({"gpus": 2, "fields": "index,temperature.memory"}, Status.INCOMPLETE),
    ],
)
def test_expectations_settle_it(expect, status):
    assert outcome(reader, TWO, expect).status is status


def test_polls_are_counted_and_told_apart():
    read = outcome(reader, LOOP)
    assert [read.value("temperature", index=1, poll=poll) for poll in range(3)] == [62, 63, 64]
    assert read.facts["polls"] == 3
    assert outcome(reader, LOOP, {"gpus": 2}).status is Status.UNKNOWN
    assert outcome(reader, LOOP, {"gpus": 2, "polls": 3}).status is Status.COMPLETE
    lines = LOOP.splitlines()
    repeated = "\n".join([*lines[:3], lines[0], *lines[3:5], lines[0], *lines[5:], ""])
    assert outcome(reader, repeated).rows() == read.rows()


def test_without_header_the_fields_must_be_told():
    bare = "".join(line + "\n" for line in TWO.splitlines()[1:])
    with pytest.raises(OutputError, match="fields"):
        outcome(reader, bare)
    assert outcome(reader, bare, {"fields": FIELDS}).rows() == outcome(reader, TWO).rows()
    nounits = bare.replace(" W", "").replace(" MHz", "").replace(" MiB", "").replace(" %", "")
    assert outcome(reader, nounits, {"fields": FIELDS}).rows() == outcome(reader, TWO).rows()


@pytest.mark.parametrize("cell", ["[N/A]", "N/A", "[Not Supported]", "[Insufficient Permissions]", "", "-"])
def test_absent_is_absent(cell):
    read = outcome(reader, TWO.replace("655.25 W", cell), {"gpus": 2})
    assert read.values("power") == [656.25]
    assert read.status is Status.COMPLETE


@pytest.mark.parametrize(
    ("cell", "status"),
    [
        ("[Unknown Error]", Status.INCOMPLETE),
        ("ERR!", Status.INCOMPLETE),
        ("655.25 MiB", Status.INCOMPLETE),
        ("nan W", Status.INCOMPLETE),
        ("655.25.1 W", Status.INCOMPLETE),
        ("[GPU requires reset]", Status.FAILED),
        ("[GPU is lost]", Status.FAILED),
    ],
)
def test_what_is_no_value_is_none_and_seen(cell, status):
    read = outcome(reader, TWO.replace("655.25 W", cell), {"gpus": 2})
    assert read.values("power") == [656.25]
    assert read.status is status
    assert read.facts["faults"]


def test_another_number_of_cells_is_no_row():
    read = outcome(reader, TWO + "2026/01/31 04:00:00.123, 1, 62, 655.25 W\n", {"gpus": 2})
    assert read.facts["rows"] == 2
    assert read.facts["cells_per_row"] == [4, 13]
    assert read.status is Status.INCOMPLETE


def test_a_comma_in_quotes_belongs_to_the_cell():
    text = 'index, name, temperature.gpu\n0, "ACME H100, water cooled", 40\n'
    read = outcome(reader, text)
    assert read.value("temperature", gpu="0") == 40
    assert read.facts["name"] == "ACME H100, water cooled"


@pytest.mark.parametrize(
    ("columns", "cells", "kept"),
    [
        ("index, memory.used [MiB]", "0, 1001 MiB", [1001]),
        ("index, memory.used [MiB]", "0, 1001", []),
        ("index, memory.used [MiB]", "0, 1001 Mi", []),
    ],
)
def test_a_last_cell_without_line_end_counts_only_when_it_is_whole(columns, cells, kept):
    read = outcome(reader, f"{columns}\n{cells}", {"gpus": 1})
    assert read.values("fb_memory_used") == kept
    assert read.facts["rows"] == 1
    assert (read.status is Status.COMPLETE) is bool(kept)


def test_units_of_the_header_are_converted():
    text = "index, memory.used [GiB], pcie.link.width.current\n0, 2, 16\n1, 3 GiB, 8\n"
    assert outcome(reader, text).values("fb_memory_used") == [2048, 3072]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "$ nvidia-smi --query-gpu=index --format=csv\n\n" + text + "\n",
        lambda text: "".join(f"2026-01-31T04:00:00.000000000Z stdout F {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()),
        lambda text: "﻿" + text,
        lambda text: text.replace(", ", ","),
    ],
)
def test_wrapping_changes_no_value(change):
    assert outcome(reader, change(TWO)).rows() == outcome(reader, TWO).rows()


def test_processes_and_gpus_in_one_file_stay_apart():
    text = (
        TWO
        + "\npid, process_name, gpu_uuid, used_gpu_memory [MiB]\n"
        + "4711, ./burn, GPU-0, 900 MiB\n4712, ./hog, GPU-0, 12 MiB\n"
    )
    read = outcome(reader, text)
    assert read.value("process_memory", pid="4712") == 12
    assert read.facts["rows"] == 2


def test_no_gpu_is_a_failure_and_a_header_alone_is_not_complete():
    assert outcome(reader, "No devices were found\n").status is Status.FAILED
    assert outcome(reader, TWO.splitlines()[0] + "\n", {"gpus": 0}).status is Status.INCOMPLETE


@pytest.mark.parametrize("text", ["", "a, b, c\n1, 2, 3\n", "hello\nworld\n", ",,,,\n,,,,\n", "\x00\x00"])
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        outcome(reader, text)


@pytest.mark.parametrize(
    ("text", "expect"), [(TWO, {}), (TWO, {"gpus": 2}), (LOOP, {}), (LOOP, {"gpus": 2, "polls": 3})]
)
def test_a_cut_table_is_never_called_complete(text, expect):
    assert check_cuts(reader, text.encode(), expect, most=2000) > 300


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data):
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(LOOP)), st.integers(0, len(LOOP)))))
    junk = data.draw(st.text(alphabet='0,[] \n\r"W%-.eN/A', max_size=30))
    with contextlib.suppress(OutputError):
        outcome(reader, LOOP[:at] + junk + LOOP[end:])


def test_sniff():
    assert reader.sniff(TWO) > 0.9
    assert reader.sniff("Command line\n\n" + TWO) > 0.5
    assert reader.sniff("a, b, c\n1, 2, 3\n") == 0
