"""The detectors that the product has, as the rules and verdicts that speak for each; and what their alarms point at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.model import KIND_OF_CODE, Verdict
from plumbline.scoreboard.judging import VALUE_RULES, JudgedSheet
from plumbline.simulation.layout import Layout
from plumbline.suites.suite import ALWAYS_BLOCKING

if TYPE_CHECKING:
    from numpy.typing import NDArray

GATE, RECORDS = "gate", "records"
RULES_OF: Mapping[str, tuple[str, ...]] = {
    "reference": ("lower", "upper"),
    "baseline": ("baseline_lower", "baseline_upper"),
    "peers": ("peers",),
    "plausibility": ("valid_lower", "valid_upper", "ceiling"),
    RECORDS: (),
    GATE: tuple(rule.id for rule in VALUE_RULES if KIND_OF_CODE[rule.code] in ALWAYS_BLOCKING),
}
"""Detector → the rules whose breach is its alarm. `records` has none: its alarms are verdicts on whole launches."""
DETECTORS: Mapping[str, str] = {
    "reference": "values outside the reference tables (published figures for the hardware)",
    "baseline": "values worse than the cluster's own approved history",
    "peers": "values worse than those of the peers of that night",
    "plausibility": "values that can't be, or are above what physics allows",
    RECORDS: "what launches say of themselves: how they ended, wrong results, cut output, clocks, the state of GPUs",
    GATE: "the gate as a whole: everything that closes it, rows that were not measured included",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarmed:
    """One launch, or one whole rung (`nodes` are all of it), that an alarm names in one night."""

    benchmark: str
    node_count: int
    nodes: frozenset[int]
    whole_rung: bool
    message: str = ""


def alarm_nights(judged: Sequence[JudgedSheet], verdicts: Sequence[Sequence[Verdict]], detector: str) -> NDArray[Any]:
    """Say in which nights a detector raises an alarm: [T]."""
    import numpy as np

    found = np.array([detector in (RECORDS, GATE) and any(map(closes, said)) for said in verdicts], bool)
    for one in judged:
        for rule in RULES_OF[detector]:
            if rule in one.failing:
                found |= one.failing[rule].any(axis=(1, 2))
    return found


def alarms(
    judged: Sequence[JudgedSheet], verdicts: Sequence[Verdict], layout: Layout, t: int, detector: str
) -> Iterator[Alarmed]:
    """Give what a detector's alarms name in night t."""
    import numpy as np

    steps = {(step.spec.benchmark, step.spec.node_count): number for number, step in enumerate(layout.steps)}
    for one in judged:
        masks = [one.failing[rule][t] for rule in RULES_OF[detector] if rule in one.failing]
        if not masks:
            continue
        sheet = one.sheet
        number = steps.get((sheet.benchmark, sheet.node_count))
        for m in np.flatnonzero(np.any(masks, axis=(0, 2))).tolist():
            whole = number is None or sheet.places[m].group is None
            nodes = range(len(layout.inventory)) if number is None or whole else layout.indices[number][m].tolist()
            yield Alarmed(
                benchmark=sheet.benchmark, node_count=sheet.node_count, nodes=frozenset(nodes), whole_rung=whole
            )
    if detector in (RECORDS, GATE):
        yield from _of_launches(verdicts, layout)


def closes(item: Verdict) -> bool:
    """Say whether a verdict closes every gate."""
    return item.kind in ALWAYS_BLOCKING


def _of_launches(verdicts: Sequence[Verdict], layout: Layout) -> Iterator[Alarmed]:
    place = {p.launch_id: (n, m) for n, step in enumerate(layout.steps) for m, p in enumerate(step.places)}
    for item in verdicts:
        if closes(item) and item.launch_id in place:
            number, m = place[str(item.launch_id)]
            yield Alarmed(
                benchmark=str(item.benchmark),
                node_count=int(item.node_count or 0),
                nodes=frozenset(layout.indices[number][m].tolist()),
                whole_rung=False,
                message=item.message,
            )
