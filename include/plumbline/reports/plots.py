"""Figures as inline SVG: no script, no network, text that stays text, colours that the colour-blind can tell apart."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.reports.wording import clean
from plumbline.units import show_bytes

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p")
BLUE, RED, GREY, GREEN = "#0b5394", "#b3261e", "#6b7280", "#0f766e"
FAR = 3.0
"""Limits that are so many times beyond the values are left out of figures; the tables have them."""
HEADROOM = 0.1
"""Room above the highest value, as a part of the axis: a line along the frame looks cut off."""
_FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans'"
"""Laid out with the widest of them, which matplotlib brings along; shown with the first that the reader has."""
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "plumbline",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9ca3af",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.7,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


_BESIDE_AXES_IN, _LETTER_IN = 0.7, 0.087
"""Inches of a panel that ticks and label take, and of a letter of the titles' font."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One picture: `svg` is safe to inline, `alt` says in words what it shows."""

    svg: str
    alt: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line: `least` and `most` are the range over places at each x, where there are several places."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    least: tuple[float, ...] = ()
    most: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One set of axes. `lower` and `upper` are limits at the same x as the first curve, or one value for all.

    No value can be above `top`, and so no axis is: a coverage of 104 % would be read as one.
    """

    title: str
    unit: str
    curves: tuple[Curve, ...]
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    top: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One measured value beside what was expected and its limits."""

    label: str
    value: float
    expected: float | None
    lower: float | None
    upper: float | None
    bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The values of many places, for a histogram."""

    title: str
    unit: str
    values: tuple[float, ...]
    lower: float | None
    upper: float | None


def curves_over_size(panels: Sequence[Panel], title: str) -> Figure:
    """Draw values against message size, one line for each node count, log-log: small sizes matter as large ones do."""

    def draw(axes: Any, panel: Panel) -> None:
        _lines(axes, panel)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        sizes = sorted({x for curve in panel.curves for x in curve.x})
        ticks = sizes[:: max(1, math.ceil(len(sizes) / 6))]
        axes.set_xticks(ticks, [show_bytes(int(size)) for size in ticks])
        _decades(axes, panel)
        axes.minorticks_off()
        axes.set_xlabel("message size")

    return _grid(panels, title, draw, columns=2, height=2.9, x="message size")


def _decades(axes: Any, panel: Panel) -> None:
    """Label a logarithmic y axis with plain numbers: 0.1, 1, 10."""
    values = [y for curve in panel.curves for y in (*curve.y, *curve.least, *curve.most)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1,) if high - low > 2 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    ticks = [tick for tick in ticks if min(values) * 0.8 <= tick <= max(values) * 1.25] or [min(values), max(values)]
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks])


def curves_over_nodes(panels: Sequence[Panel], title: str) -> Figure:
    """Draw values against node count, with the limits that hold at each."""

    def draw(axes: Any, panel: Panel) -> None:
        _lines(axes, panel)
        counts = sorted({int(x) for curve in panel.curves for x in curve.x})
        axes.set_xscale("log", base=2)
        shown = counts[:: -math.ceil(len(counts) / 8)]  # the largest is always named
        axes.set_xticks(shown, [str(count) for count in shown])
        axes.minorticks_off()
        _from_zero(axes, panel.top)
        _plain_ticks(axes.yaxis)
        axes.set_xlabel("nodes")

    return _grid(panels, title, draw, columns=3, height=2.4, x="node count")


def _from_zero(axes: Any, top: float | None = None) -> None:
    """Let the y axis start at zero, or at the least negative value, with room above and below what is drawn.

    It ends at `top`, unless something is drawn above it.
    """
    low, high = min(0.0, axes.dataLim.y0), max(0.0, axes.dataLim.y1)
    room = HEADROOM * ((high - low) or 1.0)
    axes.set_ylim(low - room if low < 0 else 0.0, _at_most(high + room, top, high))


def _at_most(end: float, top: float | None, drawn: float) -> float:
    return end if top is None or drawn > top else min(end, top)


def trends(panels: Sequence[Panel], title: str, dates: Mapping[float, str]) -> Figure:
    """Draw values over runs, oldest left; this run's limits are dashed and its own value is the last point."""

    def draw(axes: Any, panel: Panel) -> None:
        _lines(axes, panel)
        curve = panel.curves[0]
        axes.plot(curve.x[-1:], curve.y[-1:], "o", color=BLUE, markersize=7, markerfacecolor="white", markeredgewidth=2,
                  clip_on=False)  # fmt: skip
        values = [*curve.y, *_near(panel, panel.lower), *_near(panel, panel.upper)]
        low, high = min(values), max(values)
        middle = max(abs(low), abs(high)) or 1.0
        pad = max(0.15 * (high - low), 0.05 * middle)
        axes.set_ylim(low - pad, _at_most(high + pad, panel.top, high))
        _plain_ticks(axes.yaxis)
        ends = sorted({curve.x[0], curve.x[-1]})
        axes.set_xticks(ends, [dates.get(x, "") for x in ends])
        for label, where in zip(axes.get_xticklabels(), ("left", "right"), strict=False):
            label.set_horizontalalignment(where)

    return _grid(panels, title, draw, columns=3, height=1.9, x="run")


def bars(groups: Sequence[tuple[str, Sequence[Bar]]], title: str) -> Figure:
    """Draw measured values as bars, what was expected as a line across, limits dashed; one set of axes a unit."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        heights = [0.62 + 0.34 * len(items) for _, items in groups]
        figure = _figure(6.6, sum(heights))
        rows = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
        for (axes,), (unit, items) in zip(rows, groups, strict=True):
            _draw_bars(axes, items)
            axes.set_xlabel(clean(unit))
            _plain_ticks(axes.xaxis)
        words = (f"{item.label} {item.value:.4g} {unit}" for unit, items in groups for item in items[:6])
        return _rendered(figure, title, f"Bars: {'; '.join(words)}. Black line: expected. Dashed red: limit.")


def _draw_bars(axes: Any, items: Sequence[Bar]) -> None:
    longest = FAR * max(max(item.value, item.expected or 0.0) for item in items)
    for place, item in enumerate(items):
        color = RED if item.bad else BLUE
        hatch, edge = ("////", "white") if item.bad else (None, color)
        axes.barh(place, item.value, height=0.5, color=color, alpha=0.85, hatch=hatch, edgecolor=edge)
        span = [place - 0.36, place + 0.36]
        if item.expected is not None:
            axes.plot([item.expected] * 2, span, color="black", linewidth=1.6)
        for limit in (item.lower, item.upper):
            if limit is not None and limit <= longest:
                axes.plot([limit] * 2, span, color=RED, linewidth=1.2, linestyle=(0, (2, 1.5)))
    axes.set_yticks(range(len(items)), [clean(item.label) for item in items])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0)


def distributions(panels: Sequence[Spread], title: str) -> Figure:
    """Draw how many places had which value, with the limits."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        figure = _figure(3.3 * len(panels), 2.0)
        (row,) = figure.subplots(1, len(panels), squeeze=False)
        for axes, panel in zip(row, panels, strict=True):
            bins = min(40, max(8, round(math.sqrt(len(panel.values)))))
            axes.hist(panel.values, bins=bins, color=BLUE, alpha=0.85)
            _from_zero(axes)
            axes.yaxis.get_major_locator().set_params(integer=True)
            for limit in (panel.lower, panel.upper):
                if limit is not None:
                    axes.axvline(limit, color=RED, linewidth=1.2, linestyle=(0, (4, 2)))
            _set_title(axes, panel.title)
            axes.set_xlabel(clean(panel.unit))
            _plain_ticks(axes.xaxis)
        row[0].set_ylabel("places")
        words = (
            f"{p.title}: {len(p.values)} places from {min(p.values):.4g} to {max(p.values):.4g} {p.unit}"
            for p in panels
        )
        return _rendered(figure, title, f"Histograms: {'; '.join(words)}. Dashed red: limit.")


# -- drawing ---------------------------------------------------------------------------------------------------------


def _lines(axes: Any, panel: Panel) -> None:
    colors = _ordered_colors(len(panel.curves))
    for number, curve in enumerate(panel.curves):
        axes.plot(
            curve.x,
            curve.y,
            marker=MARKERS[number % len(MARKERS)],
            markersize=3.5,
            linewidth=1.4,
            color=colors[number],
            label=clean(curve.label),
            clip_on=False,
        )
        if curve.least:
            axes.fill_between(curve.x, curve.least, curve.most, color=colors[number], alpha=0.15, linewidth=0)
    for limit in (_near(panel, panel.lower), _near(panel, panel.upper)):
        if len(limit) == 1:
            axes.axhline(limit[0], color=RED, linewidth=1.1, linestyle=(0, (4, 2)))
        elif limit:
            axes.plot(panel.curves[0].x, limit, color=RED, linewidth=1.1, linestyle=(0, (4, 2)))
    _set_title(axes, panel.title)
    axes.set_ylabel(clean(panel.unit))


def _set_title(axes: Any, title: str) -> None:
    """Write a title above its axes, in as many lines as keep it from running into its neighbour."""
    inches = axes.figure.get_figwidth() / axes.get_subplotspec().get_gridspec().ncols - _BESIDE_AXES_IN
    axes.set_title(textwrap.fill(clean(title), max(20, int(inches / _LETTER_IN))))


def _near(panel: Panel, limits: tuple[float, ...]) -> tuple[float, ...]:
    """Give limits that are near enough to be drawn: a bound of physics far away would flatten what it bounds."""
    values = [abs(y) for curve in panel.curves for y in curve.y]
    near = all(min(values) / FAR <= abs(limit) <= max(values) * FAR for limit in limits)
    return limits if values and near else ()


def _plain_ticks(axis: Any) -> None:
    """Write 10,000 rather than 10000, and few enough numbers not to touch each other."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, min_n_ticks=3))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _ordered_colors(count: int) -> list[Any]:
    """Give colours that grow darker in order (node counts are ordered), none too pale to print."""
    from matplotlib import colormaps

    if count == 1:
        return [BLUE]
    palette = colormaps["viridis"]
    return [palette(0.82 - 0.82 * place / (count - 1)) for place in range(count)]


def _grid(panels: Sequence[Panel], title: str, draw: Any, *, columns: int, height: float, x: str) -> Figure:
    from matplotlib import rc_context

    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    legend = max(len(panel.curves) for panel in panels) > 1
    with rc_context(_STYLE):
        width = {1: 5.2, 2: 9.4, 3: 9.8}[columns]
        figure = _figure(width + (0.9 if legend else 0), height * rows)
        for number, panel in enumerate(panels):
            draw(figure.add_subplot(rows, columns, number + 1), panel)
        if legend:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper")
        return _rendered(figure, title, _alt(panels, x))


def _alt(panels: Sequence[Panel], x: str) -> str:
    words = []
    for panel in panels[:12]:
        ends = [f"{c.label}: {c.y[0]:.4g} to {c.y[-1]:.4g}" for c in panel.curves[:6] if c.y]
        words.append(f"{panel.title} ({panel.unit}) over {x}, {', '.join(ends)}")
    return "; ".join(words) + ". Dashed red: limit."


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=(width, height), layout="constrained")


def _rendered(figure: Any, title: str, alt: str) -> Figure:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return Figure(svg=stream.getvalue(), alt=clean(alt), title=clean(title))


def inline(figure: Figure, number: int) -> str:
    """Give the SVG for the page: ids of its own, scaled by the page, with its words for those who can't see it."""
    from markupsafe import escape  # noqa: PLC0415

    body = figure.svg[figure.svg.index("<svg") :].replace("'DejaVu Sans'", _FONTS)
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="f{number}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>f{number}-", body)
    head, _, rest = body.partition(">")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    if box is None:
        raise ValueError("the drawing library wrote an SVG without a viewBox")
    words = f"{escape(figure.title)}: {escape(figure.alt)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box.group(0)} '
        f'width="{float(box.group(1)) * 4 / 3:.0f}" role="img" aria-labelledby="f{number}-t">'
        f'<title id="f{number}-t">{words}</title>{rest}'
    )
