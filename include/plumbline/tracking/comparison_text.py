"""A comparison of two runs as lines for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from plumbline.amounts import plural
from plumbline.tracking.comparison import Change, Comparison, describe

_SHOWN, _OF_EACH = 40, 10
"""Rows of the table, and how many of them each direction has for certain, where there are so many."""
_DIRECTIONS = ("worse", "better", "changed")
_ALWAYS = ("message_bytes", "operation")
"""Parameters without which a row of a curve isn't known."""


def comparison_lines(found: Comparison) -> Iterator[str]:
    """Give the head, the table of what moved beyond its tolerance, and what can't be compared."""
    yield f"{found.run_a} → {found.run_b}"
    yield f"  A: {found.word_a}"
    yield f"  B: {found.word_b}"
    for sign, lines in (("!", found.warnings), ("≠", found.settings), ("~", found.surroundings)):
        yield from (f"  {sign} {line}" for line in lines)
    moved = moved_changes(found)
    same = len(found.changes) - sum(change.place is None for change in moved)
    within = f"within the tolerance ({found.tolerance:.0%}, or more where an indicator is known to scatter)"
    if not moved:
        yield f"  no change in {plural(same, 'value')}: all {within}"
    elif same:
        yield f"  same: {plural(same, 'value')} {within}"
    curves = _curves(moved)
    shown = _chosen([members[0] for members in curves])
    yield from _table(found, shown, {id(members[0]): len(members) for members in curves})
    if len(curves) > len(shown):
        counts = [(sum(members[0].direction == name for members in curves), name) for name in _DIRECTIONS]
        of = ", ".join(f"{count} {name}" for count, name in counts if count)
        yield f"  … {len(shown)} of {len(curves)} rows that moved ({of}); --json shows all"
    for item in found.not_comparable:
        yield f"  not comparable: {item.item}: {item.reason}"


def moved_changes(found: Comparison) -> list[Change]:
    """Give what moved, the largest first: values, and worst places that moved by clearly more, or the other way."""
    medians = {_key(change): change for change in found.changes}
    moved = [change for change in found.changes if change.direction != "same"]
    for change in found.worst:
        median = medians[_key(change)]
        apart = change.direction != median.direction or change.shift > median.shift + change.tolerance
        if change.direction != "same" and apart:
            moved.append(change)
    return sorted(moved, key=lambda change: -change.score)


def _key(change: Change) -> tuple[str, str, str, int, str]:
    return change.benchmark, change.indicator, change.unit, change.node_count, change.params


def _curves(moved: Sequence[Change]) -> list[list[Change]]:
    """Put the message sizes of one curve that moved the same way together, the largest change first in each."""
    curves: dict[tuple[str, ...], list[Change]] = {}
    for change in moved:
        params = {key: value for key, value in json.loads(change.params).items() if key != "message_bytes"}
        name = (*map(str, _key(change)[:4]), str(params), change.direction, "worst" if change.place else "")
        curves.setdefault(name, []).append(change)
    return list(curves.values())


def _chosen(moved: Sequence[Change]) -> list[Change]:
    """Give the rows of the table in order: the largest, with the largest of each direction among them for certain."""
    certain = {
        id(change) for word in _DIRECTIONS for change in [one for one in moved if one.direction == word][:_OF_EACH]
    }
    rest = [change for change in moved if id(change) not in certain][: max(0, _SHOWN - len(certain))]
    kept = certain | {id(change) for change in rest}
    return [change for change in moved if id(change) in kept]


def _table(found: Comparison, shown: Sequence[Change], sizes: Mapping[int, int]) -> Iterator[str]:
    if not shown:
        return
    said = _telling(found.changes)
    cells: list[tuple[str, ...]] = [("value", "A", "B", "change", "", "chance")]
    cells += [_cells(change, said[change.benchmark, change.indicator], sizes[id(change)]) for change in shown]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        left = row[0].ljust(widths[0])
        yield ("  " + left + "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))).rstrip()


def _telling(changes: Sequence[Change]) -> Mapping[tuple[str, str], frozenset[str]]:
    """Give of each indicator the parameters that tell its rows apart; the others are the same in all."""
    texts: dict[tuple[str, str], set[str]] = {}
    for change in changes:
        texts.setdefault((change.benchmark, change.indicator), set()).add(change.params)
    found = {}
    for name, params in texts.items():
        rows = [json.loads(text) for text in params]
        keys = {key for row in rows for key in row}
        found[name] = frozenset(key for key in keys if key in _ALWAYS or len({str(row.get(key)) for row in rows}) > 1)
    return found


def _cells(change: Change, said: frozenset[str], sizes: int) -> tuple[str, ...]:
    return (
        describe(change, said) + (f", largest of {sizes} sizes" if sizes > 1 else ""),
        f"{change.a:.4g}",
        f"{change.b:.4g}",
        "" if change.change is None else f"{change.change:+.1%}",
        change.direction,
        "" if change.p_value is None else f"p {change.p_value:.2g}",
    )
