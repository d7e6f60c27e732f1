"""Real outputs of nvidia-smi --query-gpu, with the values that a person read from them."""

from __future__ import annotations

import pytest
from tests.readers.infra_outputs import CASES, cases, check_cuts, outcome

from plumbline.readers import nvidia_smi_csv
from plumbline.readers.reading import Status

FOUND = cases("nvidia-smi --query-gpu")
pytestmark = pytest.mark.skipif(not FOUND, reason="no folder with recorded third-party outputs")
READINGS = {
    "memory.total [MiB]": ("fb_memory_total", " MiB"),
    "memory.used [MiB]": ("fb_memory_used", " MiB"),
    "power.draw [W]": ("power", " W"),
    "temperature.gpu": ("temperature", ""),
    "utilization.gpu [%]": ("utilization", " %"),
}


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_every_value_is_the_one_that_a_person_reads(file, oracle):
    read = outcome(nvidia_smi_csv, CASES / file)
    for name, printed in oracle.items():
        if name not in READINGS:
            assert read.facts[name] == printed, name
            continue
        indicator, unit = READINGS[name]
        if printed == "[N/A]":
            assert read.values(indicator) == []
            assert read.facts["devices"][0][name.split(" [")[0]] == printed
        else:
            assert read.value(indicator) == float(printed.removesuffix(unit))
    assert read.status is Status.UNKNOWN
    assert outcome(nvidia_smi_csv, CASES / file, {"gpus": 1}).status is Status.COMPLETE
    assert outcome(nvidia_smi_csv, CASES / file, {"gpus": 8}).status is Status.INCOMPLETE


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_a_cut_case_is_never_called_complete(file, oracle):
    assert check_cuts(nvidia_smi_csv, (CASES / file).read_bytes(), {"gpus": 1}) > 20
