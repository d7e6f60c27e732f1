"""Whether the numbers of a report agree: fio's own do, whatever the version; one that was changed alone does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.readers.fio_outputs import DATA, Output, document, text_of

from plumbline.readers.fio import examine
from plumbline.readers.reading import Status
from plumbline.readers.source import Source

CLIENTS = DATA.parent / "fio_clients"
WORDS = ("give bw", "give iops", "IOPS, printed", "io_kbytes", "io_bytes is")


@pytest.mark.parametrize(
    "path", [*sorted(DATA.glob("*.json")), *sorted(CLIENTS.glob("fio-*-c*.json"))], ids=lambda path: path.name
)
def test_what_fio_printed_agrees(path: Path) -> None:
    _, statement = examine(Source.of_path(path), {})
    assert not any(word in statement.reason for word in WORDS)


def changed(path: Path, way: str, **factors: float) -> Output:
    data: dict[str, Any] = json.loads(path.read_text())
    entry = data["jobs"][0][way]
    entry |= {key: type(entry[key])(entry[key] * factor) for key, factor in factors.items()}
    return Output(text_of(data))


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ({"io_bytes": 1.38}, "io_kbytes"),
        ({"io_bytes": 1.38, "io_kbytes": 1.38}, "give bw_bytes"),
        ({"io_bytes": 1.38, "io_kbytes": 1.38, "bw_bytes": 1.38, "bw": 1.38}, "I/Os of 1048576 bytes"),
        ({"io_bytes": 0.5, "io_kbytes": 0.5, "bw_bytes": 0.5, "bw": 0.5}, "I/Os of 1048576 bytes"),
        ({"bw_bytes": 80}, "give bw_bytes"),
        ({"bw": 1.1}, "give bw "),
        ({"iops": 2.0}, "IOPS, printed"),
        ({"total_ios": 2}, "IOPS, printed"),
        ({"runtime": 0.5}, "give bw_bytes"),
    ],
    ids=str,
)
def test_a_number_that_was_changed_alone_is_a_problem(factors: dict[str, float], told: str) -> None:
    """No number of it is taken for the right one: the report is not whole."""
    found = changed(CLIENTS / "fio-seq_read-n1-c0.json", "read", **factors)
    assert found.end.status is Status.INCOMPLETE
    assert told in found.end.reason


def test_a_report_of_fio_2_counts_kib() -> None:
    old = {"io_bytes": 1 << 20, "bw": 104857, "iops": 102.4, "runtime": 10000, "total_ios": 1024}
    doc = document()
    doc["jobs"][0]["read"] = old
    assert Output(text_of(doc)).end.status is Status.COMPLETE
    old["io_bytes"] *= 2
    assert "give bw " in Output(text_of(doc)).end.reason


@pytest.mark.parametrize(
    "options",
    [
        {"bssplit": "4k/50:1M/50"}, {"bsrange": "4k-1M"}, {"group_reporting": ""}, {"zonemode": "zbd"},
        {"verify": "crc32c"}, {"bs": "4k-1M"},
    ],
    ids=str,
)  # fmt: skip
def test_where_sizes_differ_only_rates_are_held_against_bytes(options: dict[str, str]) -> None:
    doc = document(total_ios=4096, iops=409.6)
    assert Output(text_of(doc)).end.status is Status.INCOMPLETE
    doc["jobs"][0]["job options"] |= options
    assert Output(text_of(doc)).end.status is Status.COMPLETE


def test_short_and_dropped_ios_move_less() -> None:
    doc = document(total_ios=2048, iops=204.8, short_ios=900)
    assert Output(text_of(doc)).end.status is Status.COMPLETE
