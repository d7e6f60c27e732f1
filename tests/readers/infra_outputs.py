"""What tests of readers share: reading to the end, and cutting outputs short."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from plumbline.errors import OutputError
from plumbline.readers import read
from plumbline.readers.reading import Completeness, Fact, Reading, Status
from plumbline.readers.source import Source
from plumbline.units import UNITS

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
CASES = Path(os.environ.get("PLUMBLINE_CASES", ROOT.parent / "shared" / "cases"))
RUNS = ("run", "poll", "scrape", "section")


@dataclass
class Outcome:
    readings: list
    facts: dict
    end: Completeness

    @property
    def status(self):
        return self.end.status

    def values(self, indicator, **params):
        return values(self.readings, indicator, **params)

    def value(self, indicator, **params):
        found = self.values(indicator, **params)
        assert len(found) == 1, (indicator, params, found)
        return found[0]

    def rows(self, without=RUNS):
        """Readings without some params: those that tell only that there are several runs."""
        return Counter(
            (one.indicator, one.value, tuple(sorted((k, v) for k, v in one.params.items() if k not in without)))
            for one in self.readings
        )


def values(readings, indicator, **params):
    return [one.value for one in readings if one.indicator == indicator and params.items() <= one.params.items()]


def outcome(module, data, expect=None):
    """Read `data` and check what every reader promises: known names and units, finite numbers, one end."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, Path):
        data = data.read_bytes()
    items = list(read(module.NAME, Source.of_bytes(data), expect))
    assert isinstance(items[-1], Completeness)
    assert sum(isinstance(item, Completeness) for item in items) == 1
    readings = [item for item in items if isinstance(item, Reading)]
    facts = {}
    for item in items:
        if isinstance(item, Fact):
            assert item.name in module.FACTS, item.name
            assert item.name not in facts, f"{item.name} is given twice"
            facts[item.name] = item.value
            json.dumps(item.value, allow_nan=False)
    for one in readings:
        assert one.unit == module.INDICATORS[one.indicator][0], one
        assert one.unit in UNITS, one
        assert one.value == one.value and abs(one.value) != float("inf"), one
        json.dumps(dict(one.params), allow_nan=False)
    assert items[-1].reader == module.NAME
    json.dumps([dict(items[-1].expected), dict(items[-1].found), items[-1].reason], allow_nan=False)
    return Outcome(readings, facts, items[-1])


def parts(module, data, **expect):
    """Give readings, facts and the end of an output."""
    found = outcome(module, data, expect)
    return found.readings, found.facts, found.end


def cut_points(data, most=200):
    """Every byte of a small output, about `most` of a large one, and the last 20 bytes always."""
    step = max(1, len(data) // most)
    return sorted({*range(0, len(data), step), *range(max(0, len(data) - 20), len(data))})


def check_cuts(module, data, expect=None, most=200):
    """Cut at many bytes: refused, or whole rows of the full output; with fewer rows never called complete."""
    full = outcome(module, data, expect)
    short = 0
    for at in cut_points(data, most):
        try:
            part = outcome(module, data[:at], expect)
        except OutputError:
            continue
        extra = part.rows() - full.rows()
        assert not extra, (at, data[max(0, at - 60) : at], extra)
        if sum(part.rows().values()) < sum(full.rows().values()):
            short += 1
            assert part.status is not Status.COMPLETE, (at, data[max(0, at - 60) : at])
    return short


def cases(*tools):
    """The recorded third-party outputs of some tools, with what a person read from them; none without the folder."""
    if not (CASES / "INDEX.tsv").exists():
        return []
    with (CASES / "INDEX.tsv").open(newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["file"], json.loads(row["oracle"])) for row in rows if row["tool"].startswith(tools)]
