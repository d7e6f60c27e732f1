"""Third-party outputs with their right values, where that folder is there: nccl-tests and the link tests."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from plumbline.readers import Completeness, Fact, Reading, Source, detect, read

CASES = Path(os.environ.get("PLUMBLINE_CASES") or Path(__file__).resolve().parents[3] / "shared" / "cases")
READERS = {
    "nccl/": "nccl_tests",
    "tools/perftest": "perftest",
    "tools/p2p_": "p2p_bandwidth",
    "tools/nvbandwidth": "nvbandwidth",
}


def cases():
    index = CASES / "INDEX.tsv"
    if not index.is_file():
        return
    with index.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            for start, name in READERS.items():
                if row["file"].startswith(start):
                    yield pytest.param(name, CASES / row["file"], json.loads(row["oracle"]), id=row["file"])


FOUND = list(cases())
pytestmark = pytest.mark.skipif(not FOUND, reason="the folder of cases is not there")


@pytest.mark.parametrize(("name", "path", "oracle"), FOUND or [pytest.param("", Path(), {}, id="none")])
def test_every_value_of_the_index(name, path, oracle):
    items = list(read(name, Source.of_path(path)))
    facts = {item.name: item.value for item in items if isinstance(item, Fact)}
    status = items[-1]
    assert isinstance(status, Completeness)
    assert status.status.value == oracle.pop("status", "complete")
    for part in oracle.pop("reason", "").split(" ... "):
        assert part in status.reason
    for key, value in oracle.items():
        assert facts[key] == value, key
    assert name == detect(path).NAME


@pytest.mark.parametrize(("name", "path", "oracle"), FOUND or [pytest.param("", Path(), {}, id="none")])
def test_cut_short_it_is_never_complete_with_fewer_rows(name, path, oracle):
    data = path.read_bytes()
    whole = list(read(name, Source.of_bytes(data)))
    readings = sum(isinstance(item, Reading) for item in whole)
    for cut in range(0, len(data), max(1, len(data) // 150)):
        try:
            items = list(read(name, Source.of_bytes(data[:cut])))
        except Exception as error:
            assert type(error).__name__ == "OutputError"
            continue
        if items[-1].status.value == "complete":
            assert sum(isinstance(item, Reading) for item in items) == readings, cut
