"""Real outputs of nvidia-smi -q -x, with the values that a person read from them."""

from __future__ import annotations

import pytest
from tests.readers.infra_outputs import CASES, cases, check_cuts, outcome

from plumbline.readers import nvidia_smi_xml
from plumbline.readers.reading import Status

FOUND = cases("nvidia-smi -q -x")
pytestmark = pytest.mark.skipif(not FOUND, reason="no folder with recorded third-party outputs")
READINGS = {
    "temp": ("temperature", " C"),
    "power": ("power", " W"),
    "util": ("utilization", " %"),
    "fb_total": ("fb_memory_total", " MiB"),
    "fb_used": ("fb_memory_used", " MiB"),
}


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_every_value_is_the_one_that_a_person_reads(file, oracle):
    read = outcome(nvidia_smi_xml, CASES / file)
    for name, printed in oracle.items():
        if name in READINGS:
            indicator, unit = READINGS[name]
            wanted = [] if printed == "N/A" else [float(printed.removesuffix(unit))]
            assert [
                one.value for one in read.readings if one.indicator == indicator and "mig" not in one.params
            ] == wanted
        elif name == "attached":
            assert read.facts["attached"] == int(printed)
        else:
            assert read.facts.get(name) == printed, name
    missing = int(oracle["attached"]) - oracle["gpus"]
    assert read.status is (Status.INCOMPLETE if missing else Status.COMPLETE)


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_a_cut_case_is_never_called_complete(file, oracle):
    check_cuts(nvidia_smi_xml, (CASES / file).read_bytes(), most=120)
