"""Which figures a report has: chosen from the lines by their shape, whatever the benchmark is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from plumbline.model import Better
from plumbline.reports import plots
from plumbline.reports.lines import Line, by_words
from plumbline.reports.plots import Bar, Curve, Figure, Panel, Spread
from plumbline.reports.wording import plural

MOST_PANELS = 9
MOST_BARS = 16
MOST_SPREADS = 3
LEAST_PLACES = 8
"""With fewer places a histogram shows nothing that the table doesn't."""


def benchmark_figures(title: str, lines: Sequence[Line]) -> Iterator[Figure]:
    """Give the figures of one benchmark: over size, over node count, beside each other, over places."""
    if panels := _size_panels(lines):
        yield plots.curves_over_size(panels, f"{title} over message size")
    if panels := _node_panels(lines):
        yield plots.curves_over_nodes(panels, f"{title} over node count")
    if groups := _bar_groups(lines):
        yield plots.bars(groups, f"{title} against what is expected")
    if spreads := _spreads(lines):
        yield plots.distributions(spreads, f"{title} over places")


def _spreads(lines: Sequence[Line]) -> list[Spread]:
    chosen = [line for line in lines if line.headline and len(line.last.values) >= LEAST_PLACES]
    return [
        Spread(
            title=f"{', '.join(filter(None, (line.title, line.words, line.at)))}, {plural(line.node_count, 'node')}",
            unit=line.drawn_unit,
            values=_drawn(line, line.last.values),
            lower=_drawn_limit(line, "lower"),
            upper=_drawn_limit(line, "upper"),
        )
        for line in chosen[:MOST_SPREADS]
    ]


def _size_panels(lines: Sequence[Line]) -> list[Panel]:
    panels = []
    for (_, _, words), same in by_words(line for line in lines if len(line.cells) > 1).items():
        curves = tuple(curve for line in same if (curve := _size_curve(line)) is not None)
        if curves:
            title = f"{same[0].title}{f', {words}' if words else ''}"
            panels.append(Panel(title=title, unit=same[0].unit, curves=curves))
    return panels[:MOST_PANELS]


def _size_curve(line: Line) -> Curve | None:
    cells = [cell for cell in line.cells if cell.size and cell.median is not None and min(cell.values) > 0]
    if len(cells) < 2:
        return None
    several = any(len(cell.values) > 1 for cell in cells)
    return Curve(
        label=f"{line.node_count} node{'s' if line.node_count > 1 else ''}",
        x=tuple(float(cell.size or 0) for cell in cells),
        y=tuple(cell.median or 0.0 for cell in cells),
        least=tuple(min(cell.values) for cell in cells) if several else (),
        most=tuple(max(cell.values) for cell in cells) if several else (),
    )


def _node_panels(lines: Sequence[Line]) -> list[Panel]:
    panels = []
    for (_, _, words), same in by_words(lines).items():
        known = [line for line in same if line.last.median is not None]
        if len(known) < 2 or not (same[0].headline or "efficiency" in same[0].indicator):
            continue
        several = any(len(line.last.values) > 1 for line in known)
        curve = Curve(
            label="measured",
            x=tuple(float(line.node_count) for line in known),
            y=_drawn(same[0], (line.last.median or 0.0 for line in known)),
            least=_drawn(same[0], (min(line.last.values) for line in known)) if several else (),
            most=_drawn(same[0], (max(line.last.values) for line in known)) if several else (),
        )
        lower, upper = ([_drawn_limit(line, name) for line in known] for name in ("lower", "upper"))
        parts = filter(None, (same[0].title, words, same[0].at))
        panels.append(
            Panel(
                title=", ".join(parts),
                unit=same[0].drawn_unit,
                curves=(curve,),
                lower=_whole(lower) if same[0].better is not Better.LOWER else (),
                upper=_whole(upper) if same[0].better is Better.LOWER else (),
                top=_top(same[0]),
            )
        )
    return panels[:MOST_PANELS]


def _drawn(line: Line, values: Iterable[float]) -> tuple[float, ...]:
    return tuple(line.scale * value for value in values)


def _drawn_limit(line: Line, name: str) -> float | None:
    limit = line.last.limit(name)
    return None if limit is None else line.scale * limit


def _top(line: Line) -> float | None:
    """Give the highest value that is possible, as drawn; None where none is known."""
    return None if line.known is None or line.known.valid_upper is None else line.scale * line.known.valid_upper


def _whole(limits: Sequence[float | None]) -> tuple[float, ...]:
    """Give the limits as a line, or nothing where one is missing: half a line would say that the rest has none."""
    found = tuple(limit for limit in limits if limit is not None)
    return found if len(found) == len(limits) else ()


def _bar_groups(lines: Sequence[Line]) -> list[tuple[str, list[Bar]]]:
    """Set indicators of one unit beside each other, where the benchmark has a single node count."""
    single = [line for line in lines if len(line.cells) == 1 and line.raw_unit != "1" and line.last.median is not None]
    if len({line.node_count for line in single}) > 1:
        return []
    groups: dict[str, list[Bar]] = {}
    for line in single:
        bar = Bar(
            label=", ".join(filter(None, (line.title, line.words))),
            value=line.last.median or 0.0,
            expected=line.last.limit("baseline"),
            lower=line.last.limit("lower"),
            upper=line.last.limit("upper"),
            bad=_outside(line),
        )
        groups.setdefault(line.unit, []).append(bar)
    return [(unit, bars[:MOST_BARS]) for unit, bars in groups.items() if len(bars) > 1]


def _outside(line: Line) -> bool:
    """Say whether the drawn value itself is outside its limits; one bad place of many doesn't colour the median."""
    value, lower, upper = line.last.median, line.last.limit("lower"), line.last.limit("upper")
    if value is None:
        return False
    return (lower is not None and value < lower) or (upper is not None and value > upper)


def trend_figure(lines: Sequence[Line]) -> Figure | None:
    """Draw the headline indicators over the last runs, each at its largest node count; None without history."""
    panels, dates = [], {}
    ids = sorted({run_id for line in lines for run_id, _ in line.series})
    places = {run_id: float(number) for number, run_id in enumerate(ids)}
    for same in by_words(line for line in lines if line.headline).values():
        line = same[-1]
        if len(line.series) < 2:
            continue
        lower, upper = _drawn_limit(line, "lower"), _drawn_limit(line, "upper")
        x = tuple(places[run_id] for run_id, _ in line.series)
        dates.update({places[run_id]: f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}" for run_id, _ in line.series})
        parts = filter(None, (line.title, line.words, f"{line.node_count} nodes" if line.node_count > 1 else ""))
        panels.append(
            Panel(
                title=", ".join(parts),
                unit=line.drawn_unit,
                curves=(Curve(label="", x=x, y=_drawn(line, (value for _, value in line.series))),),
                lower=() if lower is None or line.better is Better.LOWER else (lower,),
                upper=() if upper is None or line.better is Better.HIGHER else (upper,),
                top=_top(line),
            )
        )
    return plots.trends(panels[:12], "Trend over past runs", dates) if panels else None
