from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from plumbline.model import Code, Measurement, VerdictKind
from plumbline.validation.gate import decide
from tests.validation.good_run import REFERENCES, good_night, launch_verdict, made_up_benchmarks  # noqa: F401

pytestmark = pytest.mark.usefixtures("made_up_benchmarks")


def test_a_good_night_passes_in_every_row():
    night = good_night()
    judgement = night.judge()
    assert judgement.notable == ()
    rows = judgement.verdicts
    assert len(rows) == judgement.judged.expected == judgement.judged.passed == judgement.judged.measured
    assert set(rows["kind"]) == {"PASS"} and set(rows["item"]) == {"row"}
    assert judgement.gx["success"] is True and judgement.gx["statistics"]["rows"] == len(rows)
    json.dumps(judgement.gx, allow_nan=False)
    assert decide(judgement.judged, night.suite.gate, nights={}).open
