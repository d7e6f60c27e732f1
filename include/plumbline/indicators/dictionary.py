"""The indicator dictionary for people: docs/indicators.md is this module's output, and a test holds it so."""

from __future__ import annotations

from plumbline.benchmarks import benchmarks
from plumbline.indicators import indicators
from plumbline.indicators.definitions import INVENTORY, derived_indicators
from plumbline.model import Better, Indicator

_INTRODUCTION = """\
# Indicators

Everything that Plumbline measures, trends and judges. Written by `plumbline list indicators --markdown`; don't edit.

*Better* says which direction is good; `neither` is recorded and judged only where a reference bounds it. *Judged: no*
is shown and trended, and never expected to have a reference. ★ stands at the top of the report. A value outside the
*valid* range is INVALID whatever the references say. Coordinates (operation, message size, node …) are parameters of a
row, never part of a name.
"""


def markdown() -> str:
    """Give docs/indicators.md, ending in a newline."""
    derived = set(derived_indicators(benchmarks()))
    sections = [_INTRODUCTION]
    for name in [*benchmarks(), INVENTORY]:
        own = {key: item for key, item in indicators().items() if key[0] == name}
        module = benchmarks().get(name)
        title = f"## {name}: {module.TITLE}\n\nPoints at {module.COVERS}." if module else f"## {name}: the cluster"
        rows = [_row(item, key in derived) for key, item in own.items()]
        sections.append("\n".join([title, "", *_HEADER, *rows]) + "\n")
    return "\n".join(sections)


_HEADER = (
    "| indicator | unit | better | what it is | formula | source | valid | display | judged |",
    "|---|---|---|---|---|---|---|---|---|",
)


def _row(item: Indicator, derived: bool) -> str:
    cells = [
        f"`{item.name}`{' (derived)' if derived else ''}{' ★' if item.headline else ''}",
        "ratio" if item.unit == "1" else item.unit,
        item.better.value,
        item.title,
        item.formula,
        item.source,
        _valid(item),
        f"`{item.display}`",
        "yes" if item.judged and item.better is not Better.NEITHER else "no" if not item.judged else "if referenced",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _valid(item: Indicator) -> str:
    sides = (("≥", item.valid_lower), ("≤", item.valid_upper))
    return ", ".join(f"{sign} {bound:g}" for sign, bound in sides if bound is not None) or "any"
