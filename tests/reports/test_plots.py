"""What is drawn: nothing touches the frame, the largest scale is named, limits far away flatten nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plumbline.reports import plots
from plumbline.reports.plots import Curve, Panel, Spread


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the figures as matplotlib has them, before they become SVG."""
    found: list[Any] = []
    rendered = plots._rendered

    def note(figure: Any, title: str, alt: str) -> plots.Figure:
        found.append(figure)
        return rendered(figure, title, alt)

    monkeypatch.setattr(plots, "_rendered", note)
    return found


def panel(y: tuple[float, ...], **limits: tuple[float, ...]) -> Panel:
    x = tuple(float(1 << place) for place in range(len(y)))
    return Panel(title="rate", unit="GB/s", curves=(Curve(label="measured", x=x, y=y),), **limits)


@pytest.mark.parametrize(
    ("given", "highest"),
    [
        (panel((85.0, 85.2, 85.6)), 85.6),
        (panel((40.0, 41.0, 39.0), upper=(60.0, 60.0, 60.0)), 60.0),
        (panel((0.0, 0.0, 0.0)), 0.0),
        (panel((-3.0, 2.0, 1.0)), 2.0),
    ],
)
def test_curves_over_nodes_leave_room_above_the_highest_value(drawn: list[Any], given: Panel, highest: float) -> None:
    plots.curves_over_nodes([given], "t")
    low, high = drawn[0].axes[0].get_ylim()
    assert high >= highest + 0.05 * (high - low)
    assert low <= min(0.0, *given.curves[0].y)


def test_the_highest_bar_of_a_histogram_leaves_room_and_places_are_whole(drawn: list[Any]) -> None:
    values = (1.0,) * 8 + (2.0, 3.0, 4.0)
    plots.distributions([Spread(title="rate", unit="GB/s", values=values, lower=None, upper=None)], "t")
    axes = drawn[0].axes[0]
    assert axes.get_ylim()[1] >= 8 * 1.05
    assert all(float(tick).is_integer() for tick in axes.get_yticks())


@pytest.mark.parametrize("count", [4, 8, 9, 12])
def test_the_largest_node_count_is_named_on_the_axis(drawn: list[Any], count: int) -> None:
    plots.curves_over_nodes([panel((5.0,) * count)], "t")
    words = [label.get_text() for label in drawn[0].axes[0].get_xticklabels()]
    assert str(1 << (count - 1)) in words
    assert 3 < len(words) <= 8


def test_a_limit_far_away_does_not_flatten_a_figure() -> None:
    far = panel((100.0, 120.0), upper=(30_000_000.0,))
    assert plots._near(far, far.upper) == ()
    assert plots._near(far, (90.0,)) == (90.0,)


@pytest.mark.parametrize("draw", ["nodes", "trend"])
def test_an_axis_ends_at_the_highest_value_that_is_possible(drawn: list[Any], draw: str) -> None:
    full = replace(panel((100.0, 100.0)), top=100.0)
    plots.curves_over_nodes([full], "t") if draw == "nodes" else plots.trends([full], "t", {})
    assert drawn[0].axes[0].get_ylim()[1] == 100.0


def test_a_value_above_what_is_possible_is_still_drawn(drawn: list[Any]) -> None:
    plots.trends([replace(panel((100.0, 120.0)), top=100.0)], "t", {})
    assert drawn[0].axes[0].get_ylim()[1] > 120.0


def test_an_axis_far_below_what_is_possible_stays_near_its_values(drawn: list[Any]) -> None:
    plots.trends([replace(panel((13.0, 13.1)), top=100.0)], "t", {})
    assert drawn[0].axes[0].get_ylim()[1] < 20.0
