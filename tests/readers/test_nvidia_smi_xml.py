"""nvidia-smi -q -x: whole GPUs, named missing ones, no entity ever expanded."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import DATA, check_cuts, outcome

from plumbline.errors import ConfigError, OutputError
from plumbline.readers import nvidia_smi_xml as reader
from plumbline.readers.reading import Status

TWO = (DATA / "nvidia_smi_xml" / "two_gpus.xml").read_text()
MIG = (DATA / "nvidia_smi_xml" / "mig.xml").read_text()
FIRST, SECOND = "GPU-0a1b2c3d-0000-0000-0000-000000000000", "GPU-0a1b2c3d-0000-0000-0000-000000000001"


def test_each_gpu_has_its_own_values():
    read = outcome(reader, TWO)
    assert read.status is Status.COMPLETE
    assert read.value("temperature", gpu=FIRST) == 61
    assert read.value("temperature", gpu=SECOND, bus_id="00000000:1C:00.0") == 64
    assert read.value("power", gpu=SECOND) == 690.5
    assert read.value("power_instant", gpu=SECOND) == 692.0
    assert read.value("power_limit", gpu=FIRST, limit="enforced") == 700
    assert read.value("pcie_link_gen", gpu=SECOND) == 4
    assert read.value("pcie_link_width", gpu=SECOND) == 8
    assert read.value("pcie_link_width_max", gpu=SECOND) == 16
    assert read.value("clock_sm", gpu=SECOND) == 1965
    assert read.value("fb_memory_used", gpu=SECOND) == 1001
    assert read.value("pcie_tx", gpu=FIRST) == 1750
    assert read.values("module_power") == [] == read.values("fan_speed")
    assert read.value("ecc_errors", gpu=SECOND, kind="uncorrected", counter="aggregate", location="dram") == 2
    assert read.value("remapped_rows", gpu=SECOND, kind="uncorrected") == 1
    assert [one["clock_event_reasons"] for one in read.facts["devices"]] == [[], ["sw_power_cap"]]
    assert read.facts["driver"] == "570.86.15"


def test_mig_devices_do_not_overwrite_their_gpu():
    read = outcome(reader, MIG)
    assert [one.value for one in read.readings if one.indicator == "fb_memory_total" and "mig" not in one.params] == [
        81559
    ]
    assert read.value("fb_memory_total", mig=1) == 19969
    assert read.value("ecc_errors", mig=1, counter="volatile", location="sram") == 1
    assert read.values("utilization") == []
    assert read.facts["devices"][0]["mig_devices"] == 2


def test_a_gpu_too_few_is_incomplete_and_the_others_are_named():
    one = TWO.replace(TWO[TWO.index('\t<gpu id="00000000:1C') : TWO.index("\n</nvidia_smi_log>")], "")
    read = outcome(reader, one)
    assert read.status is Status.INCOMPLETE
    assert read.end.reason == "2 GPUs attached, 1 described: 00000000:1B:00.0"
    assert outcome(reader, one, {"gpus": 1}).status is Status.COMPLETE
    assert outcome(reader, TWO, {"gpus": "8"}).status is Status.INCOMPLETE


def test_no_gpu_at_all_is_not_complete():
    empty = re.sub(r"<gpu .*</gpu>", "", TWO, flags=re.DOTALL).replace(">2<", ">0<")
    assert outcome(reader, empty).status is Status.INCOMPLETE


def test_a_wrong_expectation_is_a_wrong_use():
    with pytest.raises(ConfigError, match="gpus"):
        outcome(reader, TWO, {"gpus": "many"})


@pytest.mark.parametrize("cell", ["[GPU requires reset]", "GPU is lost"])
def test_a_gpu_that_must_be_reset_is_a_failure(cell):
    read = outcome(reader, TWO.replace("<gpu_temp>64 C</gpu_temp>", f"<gpu_temp>{cell}</gpu_temp>"))
    assert read.status is Status.FAILED
    assert len(read.values("temperature")) == 1
    assert "00000000:1C:00.0 temperature/gpu_temp" in read.facts["faults"][0]


@pytest.mark.parametrize("cell", ["ERR!", "[Unknown Error]"])
def test_an_error_in_place_of_a_value_is_not_complete(cell):
    read = outcome(reader, TWO.replace("<gpu_temp>64 C</gpu_temp>", f"<gpu_temp>{cell}</gpu_temp>"))
    assert read.status is Status.INCOMPLETE


@pytest.mark.parametrize("cell", ["6 4 C", "64 C, 65 C", "nan C", "inf", "0x40 C", "64 W", "1e999 C", "６４ C", "64C!"])
def test_what_is_no_temperature_is_none(cell):
    read = outcome(reader, TWO.replace("<gpu_temp>64 C</gpu_temp>", f"<gpu_temp>{cell}</gpu_temp>"))
    assert read.values("temperature") == [61]


def test_two_logs_in_one_file_are_two_runs():
    read = outcome(reader, TWO + TWO.replace("61 C", "71 C"))
    assert read.value("temperature", gpu=FIRST, run=0) == 61
    assert read.value("temperature", gpu=FIRST, run=1) == 71
    assert outcome(reader, TWO + TWO[:900]).status is Status.INCOMPLETE


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "Warning: persistence mode\n" + text + "\nexit 0\n",
        lambda text: "\n".join(f"[1,0]<stdout>:{line}" for line in text.splitlines()),
        lambda text: "\n".join(f"2026-01-31T04:00:00.000000000Z stdout F {line}" for line in text.splitlines()),
        lambda text: "﻿" + text,
        lambda text: text.replace("61 C", "\x1b[31m61 C\x1b[0m"),
    ],
)
def test_wrapping_changes_no_value(change):
    assert outcome(reader, change(TWO)).rows() == outcome(reader, TWO).rows()


def test_entities_are_never_expanded():
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa">'
        + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
        + ']><nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="0"><uuid>&j;</uuid></gpu></nvidia_smi_log>'
    )
    read = outcome(reader, bomb)
    assert read.status is Status.INCOMPLETE
    assert read.readings == []


def test_deep_nesting_is_refused_in_no_time():
    deep = '<nvidia_smi_log><gpu id="0">' + "<a>" * 200_000 + "</a>" * 200_000 + "</gpu></nvidia_smi_log>"
    assert outcome(reader, deep).status is Status.INCOMPLETE


def test_a_driver_that_does_not_answer_is_a_failure():
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    read = outcome(reader, text)
    assert read.status is Status.FAILED
    assert "couldn't communicate" in read.end.reason


@pytest.mark.parametrize("text", ["", "hello", "<html></html>", "\x00" * 100])
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        outcome(reader, text)


@pytest.mark.parametrize("text", [TWO, MIG], ids=["two_gpus", "mig"])
def test_a_cut_log_is_never_called_complete(text):
    assert check_cuts(reader, text.encode()) > 100


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data):
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(MIG)), st.integers(0, len(MIG)))))
    junk = data.draw(st.text(max_size=30))
    with contextlib.suppress(OutputError):
        outcome(reader, MIG[:at] + junk + MIG[end:])


def test_sniff():
    assert reader.sniff(TWO) == 1
    assert reader.sniff("<html>") == 0


@pytest.mark.parametrize(("cell", "status"), [("GPU is lost", Status.FAILED), ("ERR!", Status.INCOMPLETE)])
def test_a_fault_inside_a_mig_device_is_as_bad_as_one_of_its_gpu(cell, status):
    read = outcome(reader, MIG.replace("<sram_uncorrectable>0<", f"<sram_uncorrectable>{cell}<", 1))
    assert read.status is status
    assert "MIG 0" in read.facts["faults"][0]


def test_a_fault_that_stands_beside_a_value_is_not_lost():
    text = TWO.replace("<fan_speed>N/A</fan_speed>", "<fan_speed>30 %</fan_speed><fan_speed>ERR!</fan_speed>", 1)
    assert text != TWO
    assert outcome(reader, text).status is Status.INCOMPLETE


def test_one_gpu_twice_is_not_two_and_one_without_content_is_none():
    first = TWO[TWO.index("<gpu id") : TWO.index("</gpu>") + len("</gpu>")]
    second = TWO[TWO.index("<gpu id", TWO.index("</gpu>")) : TWO.rindex("</gpu>") + len("</gpu>")]
    twice = outcome(reader, TWO.replace(second, first))
    assert twice.status is Status.INCOMPLETE and "described twice" in twice.end.reason
    empty = outcome(reader, TWO.replace(second, '<gpu id="00000000:99:00.0"></gpu>'))
    assert empty.status is Status.INCOMPLETE and "00000000:99:00.0 is described by nothing" in empty.end.reason
