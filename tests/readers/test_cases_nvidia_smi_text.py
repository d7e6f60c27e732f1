"""Real captures of nvidia-smi, with the values that a person read from them."""

from __future__ import annotations

import pytest
from tests.readers.infra_outputs import CASES, cases, check_cuts, outcome

from plumbline.readers import nvidia_smi_text
from plumbline.readers.reading import Status

CAPTURES = cases("nvidia-smi (-L")
TOPOLOGIES = cases("nvidia-smi topo")
pytestmark = pytest.mark.skipif(not CAPTURES, reason="no folder with recorded third-party outputs")


@pytest.mark.parametrize(("file", "oracle"), CAPTURES + TOPOLOGIES)
def test_every_value_is_the_one_that_a_person_reads(file, oracle):
    read = outcome(nvidia_smi_text, CASES / file)
    for name, value in oracle.items():
        assert read.facts[name] == value, name


@pytest.mark.parametrize(("file", "oracle"), TOPOLOGIES)
def test_a_whole_matrix_settles_itself(file, oracle):
    assert outcome(nvidia_smi_text, CASES / file).status is Status.COMPLETE


@pytest.mark.parametrize(("file", "oracle"), CAPTURES)
def test_the_sections_of_a_capture_are_told_apart(file, oracle):
    read = outcome(nvidia_smi_text, CASES / file)
    temperatures = {(one.params["section"], one.params.get("poll")): one.value for one in read.readings
                    if one.indicator == "temperature"}  # fmt: skip
    assert len(temperatures) >= 4
    assert read.status is Status.UNKNOWN


@pytest.mark.parametrize(("file", "oracle"), CAPTURES + TOPOLOGIES)
def test_a_cut_case_is_never_called_complete(file, oracle):
    check_cuts(nvidia_smi_text, (CASES / file).read_bytes(), most=25)
