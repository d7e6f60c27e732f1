"""System descriptions: counts that are written as text, and nothing that takes guessing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.errors import OutputError
from plumbline.readers import mlperf_system
from plumbline.readers.reading import Completeness, Fact, Reading, Status
from plumbline.readers.source import Source
from plumbline.units import UNITS

SYSTEM = {
    "submitter": "somebody",
    "division": "closed",
    "status": "Available on-premise",
    "system_name": "box",
    "number_of_nodes": "96",
    "host_processors_per_node": "2",
    "accelerators_per_node": "8",
    "accelerator_model_name": "Some Accelerator 80GB",
    "accelerator_frequency": "",
    "other_software_stack": {"driver": "1.2.3"},
}


def items(data):
    raw = data if isinstance(data, (str, bytes)) else json.dumps(data, indent=2)
    source = Source.of_bytes(raw) if isinstance(raw, bytes) else Source.of_text(raw)
    found = list(mlperf_system.read(source, {}))
    assert isinstance(found[-1], Completeness)
    return found


def facts(found):
    return {item.name: item.value for item in found if isinstance(item, Fact)}


def readings(found):
    return {item.indicator: item.value for item in found if isinstance(item, Reading)}


def test_a_description():
    found = items(SYSTEM)
    assert readings(found) == {"nodes": 96, "accelerators": 768}
    told = facts(found)
    assert told["total_accelerators"] == 768
    assert told["number_of_nodes"] == "96"
    assert told["number_of_nodes_type"] == "str"
    assert told["valid_json"] is True
    assert told["other_software_stack"] == {"driver": "1.2.3"}
    assert found[-1].status is Status.COMPLETE
    assert {unit for unit, _ in mlperf_system.INDICATORS.values()} <= UNITS


@pytest.mark.parametrize(
    ("written", "count"),
    [
        (8, 8), (8.0, 8), ("8", 8), (" 8 ", 8), ("8.0", 8), ("8x", 8), ("1,344", 1344), ("8 (4 per socket)", 8),
        ("8 GPUs", 8), ("0", 0), ("16 accelerators (OAM)", 16),
        ("N/A", None), ("", None), ("-", None), (None, None), ("4 per socket", None), ("2x4", None), ("4-8", None),
        ("up to 8", None), ("8 + 2", None), ("eight", None), (True, None), (2.5, None), (-1, None), ([8], None),
        ("8 to 16", None), ("8e3", None), ("1e999", None), (float("inf"), None), (float("nan"), None), ("8 per", None),
    ],
)  # fmt: skip
def test_counts(written, count):
    assert mlperf_system.count(written) == count


@pytest.mark.parametrize("key", ["number_of_nodes", "accelerators_per_node"])
@pytest.mark.parametrize("value", ["N/A", "", None, "4 per socket"])
def test_a_count_that_is_no_count(key, value):
    found = items({**SYSTEM, key: value})
    assert found[-1].status is Status.INCOMPLETE
    assert key in found[-1].reason
    assert "total_accelerators" not in facts(found)
    assert "accelerators" not in readings(found)


def test_missing_keys():
    found = items({key: value for key, value in SYSTEM.items() if key != "accelerator_model_name"})
    assert found[-1].status is Status.INCOMPLETE
    assert "accelerator_model_name missing" in found[-1].reason


def test_text_around_prefixes_marks_and_line_ends():
    text = json.dumps(SYSTEM, indent=2)
    assert items("\ufeff" + text)[-1].status is Status.COMPLETE
    assert items(text.replace("\n", "\r\n"))[-1].status is Status.COMPLETE
    assert items(text.encode("utf-16"))[-1].status is Status.COMPLETE
    found = items("+ mlperf-sysjson.sh\n" + text + "\ndone\n")
    assert readings(found)["accelerators"] == 768
    assert facts(found)["valid_json"] is False
    assert readings(items("\n".join(f"0: {line}" for line in text.splitlines())))["accelerators"] == 768


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "hello", '{"a": 1}', "{" * 5000, '"accelerators_per_node"'])
def test_other_documents_are_refused(text):
    with pytest.raises(OutputError):
        items(text)


def test_what_nobody_can_settle_is_refused():
    twice = json.dumps(SYSTEM).replace('"division"', '"accelerators_per_node": "4", "division"')
    with pytest.raises(OutputError, match="twice"):
        items(twice)
    with pytest.raises(OutputError, match="2 system descriptions"):
        items(json.dumps(SYSTEM) + "\n" + json.dumps(SYSTEM))


def test_cut_anywhere_is_refused():
    data = json.dumps(SYSTEM, indent=2).encode()
    for cut in range(len(data)):
        with pytest.raises(OutputError):
            items(data[:cut])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400), st.booleans())
def test_damaged_bytes_raise_nothing_else(piece, place, replace):
    data = json.dumps(SYSTEM).encode()
    damaged = data[:place] + piece + data[place + (len(piece) if replace else 0) :]
    try:
        found = items(damaged)
    except OutputError:
        return
    assert all(value >= 0 for value in readings(found).values())
