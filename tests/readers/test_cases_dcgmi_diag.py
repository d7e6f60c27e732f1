"""Real outputs of dcgmi diag, with the values that a person read from them."""

from __future__ import annotations

import pytest
from tests.readers.infra_outputs import CASES, cases, check_cuts, outcome

from plumbline.readers import dcgmi_diag
from plumbline.readers.reading import Status

FOUND = cases("dcgmi diag")
pytestmark = pytest.mark.skipif(not FOUND, reason="no folder with recorded third-party outputs")


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_every_value_is_the_one_that_a_person_reads(file, oracle):
    read = outcome(dcgmi_diag, CASES / file)
    for name, value in oracle.items():
        assert read.facts[name] == value, name
    assert read.status is Status.FAILED


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_a_cut_case_is_never_called_complete(file, oracle):
    check_cuts(dcgmi_diag, (CASES / file).read_bytes())
