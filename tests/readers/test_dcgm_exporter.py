"""dcgm-exporter's page: sentinels absent, coverage by field and GPU, scrapes told apart."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import DATA, check_cuts, outcome

from plumbline.errors import ConfigError, OutputError
from plumbline.readers import dcgm_exporter as reader
from plumbline.readers.reading import Status

PAGE = (DATA / "dcgm_exporter" / "two_gpus.txt").read_text()
TEMP, POWER, DRAM = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_DRAM_ACTIVE"


def test_samples_by_gpu_and_labels():
    read = outcome(reader, PAGE)
    assert read.value(TEMP, index=1) == 62
    assert read.value(POWER, gpu="GPU-0a1b2c3d-0000-0000-0000-000000000000") == 655.25
    assert read.value("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", index=0) == 4742776
    first = next(one for one in read.readings if one.indicator == TEMP)
    assert first.params["node"] == "node-a"
    assert first.params["pod"] == 'bench-"x"'
    assert "modelName" not in first.params
    assert read.facts["gpus"] == 2
    assert read.facts["devices"][1]["pci_bus_id"] == "00000000:1C:00.0"


def test_a_help_line_that_says_another_unit_is_heeded():
    assert outcome(reader, PAGE).value("DCGM_FI_DEV_POWER_VIOLATION", index=0) == 12_000
    assert outcome(reader, PAGE.replace("(in us)", "(in ns)")).value("DCGM_FI_DEV_POWER_VIOLATION", index=0) == 12


def test_no_data_is_absent():
    read = outcome(reader, PAGE)
    assert read.values("DCGM_FI_DEV_MEMORY_TEMP") == [67]
    assert read.values(DRAM) == [0.412345]
    assert read.facts["absent"] == {"DCGM_FI_DEV_MEMORY_TEMP": 1, DRAM: 1}


@pytest.mark.parametrize(
    "value",
    ["9.223372036854775794e+18", "9223372036854775792", "2147483632", "2147483634", "140737488355328",
     "140737488355330.0", "NaN", "nan", "+Inf", "-Inf", "ERROR - FAILED TO CONVERT TO STRING", "1e999", "0x1F", "1_000",
     "--"],
)  # fmt: skip
def test_sentinels_and_words_are_no_numbers(value):
    read = outcome(reader, PAGE.replace("} 61\n", f"}} {value}\n"))
    assert read.values(TEMP) == [62]
    assert read.facts["absent"][TEMP] == 1


@pytest.mark.parametrize(
    ("expect", "status"),
    [
        ({}, Status.UNKNOWN),
        ({"gpus": 2}, Status.UNKNOWN),
        ({"gpus": 2, "fields": f"{TEMP},{POWER}"}, Status.COMPLETE),
        ({"gpus": 8, "fields": TEMP}, Status.INCOMPLETE),
        ({"gpus": 2, "fields": DRAM}, Status.INCOMPLETE),
        ({"gpus": 2, "fields": "DCGM_FI_DEV_FB_USED"}, Status.INCOMPLETE),
    ],
)
def test_expectations_settle_it(expect, status):
    assert outcome(reader, PAGE, expect).status is status


def test_the_end_mark_of_openmetrics_settles_it():
    assert outcome(reader, PAGE + "# EOF\n").status is Status.COMPLETE
    assert outcome(reader, PAGE + "# EOF").status is Status.COMPLETE
    assert outcome(reader, PAGE + "# EOF\n" + PAGE).status is Status.UNKNOWN
    assert outcome(reader, PAGE + "# EOF\n", {"gpus": 8}).status is Status.INCOMPLETE


def test_scrapes_are_told_apart():
    read = outcome(reader, PAGE + PAGE.replace("} 61\n", "} 71\n"))
    assert read.facts["scrapes"] == 2
    assert read.value(TEMP, index=0, scrape=0) == 61
    assert read.value(TEMP, index=0, scrape=1) == 71
    assert outcome(reader, PAGE + PAGE, {"gpus": 2, "fields": TEMP}).status is Status.UNKNOWN
    assert outcome(reader, PAGE + PAGE, {"gpus": 2, "fields": TEMP, "scrapes": 2}).status is Status.COMPLETE
    part = PAGE + PAGE[: PAGE.index("# HELP DCGM_FI_DEV_POWER_USAGE")]
    assert outcome(reader, part, {"gpus": 2, "fields": f"{TEMP},{POWER}", "scrapes": 2}).status is Status.INCOMPLETE


def test_a_sample_twice_counts_once_and_a_contradiction_is_seen():
    line = next(line for line in PAGE.splitlines() if line.startswith(TEMP))
    same = outcome(reader, PAGE.replace(line, f"{line}\n{line}"))
    assert same.values(TEMP) == [61, 62]
    assert same.status is Status.UNKNOWN
    other = outcome(reader, PAGE.replace(line, f"{line}\n{line[:-2]}71"))
    assert other.values(TEMP) == [61, 62]
    assert other.status is Status.INCOMPLETE


def test_timestamps_and_stale_samples():
    lines = PAGE.splitlines()
    stamped = "".join(f"{line} 1769832000000\n" if line.startswith("DCGM") else f"{line}\n" for line in lines)
    read = outcome(reader, stamped)
    assert read.values(TEMP, timestamp=1769832000.0) == [61, 62]
    settled = {"gpus": 2, "fields": TEMP}
    assert outcome(reader, stamped, {**settled, "not_before": "2026-01-31T04:00:00Z"}).status is Status.COMPLETE
    assert outcome(reader, stamped, {**settled, "not_before": "2026-01-31T04:00:01Z"}).status is Status.INCOMPLETE
    assert outcome(reader, PAGE, {**settled, "not_before": "2026-01-31T04:00:00Z"}).status is Status.INCOMPLETE
    with pytest.raises(ConfigError):
        outcome(reader, PAGE, {"not_before": "soon"})


@pytest.mark.parametrize(
    "line", [f'{TEMP}{{gpu="0",UUID="GPU-0}} 61', f"{TEMP}{{gpu=0}} 61", f'{TEMP}{{gpu="0"}}', f'{TEMP}{{gpu="0"}} ']
)
def test_damaged_samples_are_seen(line):
    read = outcome(reader, f"{PAGE}{line}\n", {"gpus": 2, "fields": TEMP})
    assert read.values(TEMP) == [61, 62]
    assert read.status is Status.INCOMPLETE


def test_fields_without_a_known_unit_are_named_and_not_read():
    read = outcome(reader, PAGE + 'DCGM_FI_DEV_BRAND_NEW{gpu="0"} 5\n')
    assert read.facts["unknown_fields"] == {"DCGM_FI_DEV_BRAND_NEW": 1}


def test_mig_and_switch_labels():
    text = (
        f'{TEMP}{{gpu="0",UUID="GPU-0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}} 40\n'
        'DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch="nvswitch0",hostname="node-a"} 55\n'
    )
    read = outcome(reader, text)
    assert read.value(TEMP, mig="7", mig_profile="1g.10gb") == 40
    assert read.value("DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", nvswitch="nvswitch0", node="node-a") == 55


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "node_load1 0.5\n" + text + "go_goroutines 5\n",
        lambda text: "".join(line + "\n" for line in text.splitlines() if not line.startswith("#")),
        lambda text: "".join(f"2026-01-31T04:00:00.000000000Z stdout F {line}\n" for line in text.splitlines()),
    ],
)
def test_wrapping_changes_no_value(change):
    text = PAGE.replace("(in us)", "(in ns)")
    assert outcome(reader, change(text)).rows() == outcome(reader, text).rows()


@pytest.mark.parametrize("text", ["", "node_load1 0.5\n", "# HELP DCGM_FI_DEV_GPU_TEMP x\n", "DCGM_ 5\n", "\x00"])
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        outcome(reader, text)


@pytest.mark.parametrize("expect", [{}, {"gpus": 2, "fields": "DCGM_FI_DEV_MEMORY_TEMP"}])
def test_a_cut_page_is_never_called_complete(expect):
    assert check_cuts(reader, PAGE.encode(), expect, most=700) > 300


def test_a_cut_page_with_its_end_mark_lost_is_not_complete():
    assert check_cuts(reader, (PAGE + "# EOF\n").encode(), most=700) > 300


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data):
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(PAGE)), st.integers(0, len(PAGE)))))
    junk = data.draw(st.text(alphabet='{}",=\\ #\nDCGM_FI0.eN', max_size=30))
    with contextlib.suppress(OutputError):
        outcome(reader, PAGE[:at] + junk + PAGE[end:])


def test_sniff():
    assert reader.sniff(PAGE) == 1
    assert reader.sniff("node_load1 0.5\n") == 0


def test_a_help_text_of_another_quantity_makes_the_page_doubtful():
    text = PAGE.replace("(in mJ)", "(in us)")
    found = outcome(reader, text)
    assert found.status is not Status.COMPLETE
    assert "Total energy consumption" in found.end.reason
