"""What stands around fio's output, and what breaks it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.fio_outputs import OLD_TEXT, RECORDED, Output, document, recorded, text_of

from plumbline.errors import OutputError
from plumbline.readers.reading import Status

# -- what surrounds it

PREFIXES = {
    "kubectl": "2026-01-01T00:00:00.123456789Z stdout F ",
    "timestamps": "2026-01-01T00:00:00.000000000Z ",
    "srun": " 0: ",
    "mpirun": "[1,0]<stdout>:",
    "torchrun": "[rank0]: ",
    "mpirun, indented": "    [1,0]<stdout>:",
    "quoted": "> ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("name", ["two_groups.json", "two_groups.txt", "terse_v3.txt"])
def test_prefixes_of_launchers_and_collectors(prefix: str, name: str) -> None:
    plain = recorded(name).decode()
    framed = "".join(prefix + line for line in plain.splitlines(keepends=True))
    assert Output(framed).rows() == Output(plain).rows()
    assert Output(framed).end.status is Output(plain).end.status


def test_json_lines_of_a_log_collector() -> None:
    plain = recorded("two_groups.json").decode()
    lines = [json.dumps({"log": line, "stream": "stdout"}) for line in plain.splitlines(keepends=True)]
    assert Output("\n".join(lines) + "\n").rows() == Output(plain).rows()


SURROUNDINGS: dict[str, Callable[[str], str]] = {
    "words before": lambda text: "hakuna matata\n" + text,
    "progress glued before": lambda text: "Jobs: 1 (f=1): [R(1)][100.0%][r=1MiB/s][eta 00m:00s]" + text,
    "words after": lambda text: text + "\ntrailing garbage }\n",
    "words on the last line": lambda text: text.rstrip() + " # done\n",
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "no line end": lambda text: text.rstrip(),
    "colours": lambda text: "\x1b[32m" + text.replace("\n", "\x1b[0m\n", 1),
    "in an array": lambda text: "[\n" + text.rstrip() + "\n]\n",
    "in an object": lambda text: '{"results": {"seq": ' + text.rstrip() + "}}\n",
    "in one line": lambda text: json.dumps(json.loads(text)) + "\n",
    "braces before": lambda text: 'set { of } things {"a": 1}\n{unfinished\n' + text,
    "log lines before": lambda text: '{"level": "info", "msg": "starting {"}\n' + text,
    "trimmed": lambda text: "\n".join(line.strip() for line in text.split("\n")),
}


@pytest.mark.parametrize("surround", SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_json_is_found_in(surround: Callable[[str], str]) -> None:
    plain = text_of(document())
    output = Output(surround(plain))
    assert output.rows() == Output(plain).rows()
    assert output.end.status is Status.COMPLETE, output.end.reason


def test_a_document_cut_by_the_next_is_counted_as_broken() -> None:
    plain = text_of(document())
    output = Output(plain[: len(plain) // 2] + "\n" + plain)
    assert output.end.status is Status.INCOMPLETE
    assert output.facts["json_docs"] == 2
    assert output.value("bandwidth") == 107.374182


def test_numbers_that_are_none_are_left_out() -> None:
    odd = text_of(document(iops=-1, bw_bytes="fast")).replace('"mean": 4000.0', '"mean": -nan').replace("8000", "1e999")
    output = Output(odd)
    assert [r.indicator for r in output.readings] == ["bandwidth", "completion_latency", "total_bytes", "runtime"]
    assert output.value("bandwidth") == pytest.approx((1 << 30) / 10 / 1e6)
    timeless = Output(text_of(document(runtime=0)))
    assert [r.indicator for r in timeless.readings if r.indicator in ("bandwidth", "iops")] == []


def test_secrets_in_options_are_not_shown() -> None:
    doc = document()
    doc["jobs"][0]["job options"] |= {"http_s3_key": "SECRET", "size": "1G"}
    output = Output(text_of(doc))
    assert output.facts["options"] == {"rw": "read", "bs": "1M", "size": "1G"}
    assert "SECRET" not in repr(output.facts) + repr(output.readings) + repr(output.end)


# -- cut, damaged, hostile


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_cut_output_never_gives_fewer_rows_as_complete(path: Path) -> None:
    data = path.read_bytes()
    whole = Output(data).rows()
    points = random.Random(path.name).sample(range(len(data)), min(150, len(data)))
    for point in [*points, *range(max(0, len(data) - 40), len(data))]:
        try:
            output = Output(data[:point])
        except OutputError:
            continue
        if output.end.status is Status.COMPLETE:
            assert output.rows().total() >= whole.total(), f"cut at {point}"
        if path.name.startswith(("status_interval", "all_formats")):
            continue  # an interim report is a report, and another format rounds in another way
        assert not output.rows() - whole, f"cut at {point}: a number that nobody printed"


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "hello\nworld\n", "{", "[]", '{"jobs": 3}', "x = 1\n" * 50, '{"a": "fio"}', "\x00\xff" * 50],
    ids=range(9),
)
def test_what_is_not_fio_is_refused(text: str) -> None:
    with pytest.raises(OutputError):
        Output(text)


def test_only_a_start_is_not_a_result() -> None:
    output = Output(
        "job: (g=0): rw=read, bs=4K-4K/4K-4K/4K-4K, ioengine=psync, iodepth=1\nfio-3.36\nStarting 2 processes\n"
    )
    assert output.end.status is Status.INCOMPLETE
    assert "2 processes" in output.end.reason


PIECES = st.sampled_from(
    [
        *re.findall(r"[^\n]+\n?", OLD_TEXT),
        *text_of(document()).splitlines(keepends=True),
        "{\n",
        "}\n",
        "\r",
        "nan",
        "-1",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES | st.text(max_size=8), max_size=25))
def test_any_mixture_of_lines_is_read_or_refused(pieces: list[str]) -> None:
    try:
        output = Output("".join(pieces))
    except OutputError:
        return
    assert all(reading.value >= 0 for reading in output.readings)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_recordings_are_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(recorded(data.draw(st.sampled_from([p.name for p in RECORDED]))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        Output(bytes(raw))
    except OutputError:
        return


@pytest.mark.parametrize(
    ("find", "put"), [("=395;", "=-395;"), (";580411;", ";58_0411;"), (";0%=0;0%=0;", ";0%=0" * 15 + ";")]
)
def test_damaged_terse_lines_are_no_rows(find: str, put: str) -> None:
    plain = recorded("terse_v3.txt").decode()
    assert find in plain
    output = Output(plain.replace(find, put, 1), jobs=3)
    assert output.end.status is Status.INCOMPLETE
    assert output.facts["n_jobs"] == 2
