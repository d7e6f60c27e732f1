"""Real kernel logs, with the events that a person counted in them."""

from __future__ import annotations

import pytest
from tests.readers.infra_outputs import CASES, cases, outcome

from plumbline.readers import xid
from plumbline.readers.reading import Status

FOUND = cases("dmesg")
pytestmark = pytest.mark.skipif(not FOUND, reason="no folder with recorded third-party outputs")


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_every_value_is_the_one_that_a_person_reads(file, oracle):
    read = outcome(xid, CASES / file)
    for name, value in oracle.items():
        assert read.facts[name] == value, name
    assert sum(read.values("xid_events")) == oracle["events"]
    assert read.status is Status.UNKNOWN


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_a_log_cut_in_a_line_never_counts_it_wrong(file, oracle):
    data = (CASES / file).read_bytes()
    for at in range(0, len(data), 7):
        try:
            read = outcome(xid, data[:at], {"covers": True})
        except xid.OutputError:
            continue
        whole = data[: data.rfind(b"\n", 0, at) + 1]
        assert read.facts["events"] - whole.count(b"NVRM: Xid (") in (0, 1)
        assert set(read.facts["by_code"]) <= set(oracle["by_code"])
        assert at == len(data) or data[at - 1 : at] == b"\n" or read.status is Status.INCOMPLETE
