"""The collected real outputs of HPL and HPL-MxP: every value of the index, through the readers."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from plumbline.readers import detect, reader
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.readers.source import Source

CASES = Path(os.environ.get("PLUMBLINE_CASES", Path(__file__).resolve().parents[3] / "shared" / "cases"))


def _rows():
    index = CASES / "INDEX.tsv"
    if not index.is_file():
        return []
    with index.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["file"], json.loads(row["oracle"])) for row in rows if row["file"].startswith("hpl/")]


ROWS = _rows()
SAME_NAME = (
    "passed", "failed", "residuals", "tests", "verdict", "version", "max_gflops", "last_residual", "first", "last",
    "mxp",
)  # fmt: skip
FOR_PEOPLE = {"check", "note"}

pytestmark = pytest.mark.skipif(not ROWS, reason="no collected outputs here")


@pytest.mark.parametrize(("file", "oracle"), ROWS, ids=[file for file, _ in ROWS])
def test_every_value_of_the_index(file, oracle):
    name = "hpl_mxp" if "mxp" in oracle else "hpl"
    path = CASES / file
    assert detect(path) is reader(name)
    items = list(reader(name).read(Source.of_path(path), {}))
    facts = {item.name: item.value for item in items if isinstance(item, Fact)}
    readings = [item for item in items if isinstance(item, Reading)]
    for key, value in oracle.items():
        if key in FOR_PEOPLE:
            continue
        if key == "status":
            assert items[-1].status is Status(value)
        else:
            assert key in SAME_NAME, f"nothing answers {key}"
            assert facts[key] == value, key
    if "status" not in oracle:
        assert items[-1].status is Status.COMPLETE
    _check_readings(oracle, readings)


def _check_readings(oracle, readings):
    """The facts repeat the readings; make sure of the readings themselves."""
    rates = [item for item in readings if item.indicator == "performance"]
    if "mxp" in oracle:
        told = oracle["mxp"]
        assert [item.value for item in rates] == [told["gflops"]]
        shape = {"N": told["N"], "NB": told["NB"], "P": told["NPROW"], "Q": told["NPCOL"]}
        assert shape.items() <= rates[0].params.items()
        for indicator, key in (
            ("performance_lu", "lu_gflops"),
            ("performance_per_gpu", "per_gpu"),
            ("performance_lu_per_gpu", "lu_per_gpu"),
        ):  # fmt: skip
            assert [item.value for item in readings if item.indicator == indicator] == [told[key]]
    elif "first" in oracle:
        assert len(rates) == oracle["tests"]
        times = [item for item in readings if item.indicator == "time"]
        for rate, time, told in ((rates[0], times[0], oracle["first"]), (rates[-1], times[-1], oracle["last"])):
            assert (rate.value, time.value) == (told["gflops"], told["time_s"])
            shape = {"N": told["N"], "NB": told["NB"], "P": told["P"], "Q": told["Q"], "variant": told["tv"]}
            assert shape.items() <= rate.params.items()
        assert max(item.value for item in rates) == oracle["max_gflops"]
    else:
        assert readings == []
    last = [item.value for item in readings if item.indicator == "residual"][-1:]
    assert last == [float(oracle["last_residual"])] if "last_residual" in oracle else last == []
