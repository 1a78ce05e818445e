"""Names at the ends of lines: within the figure, apart from each other, in order, in their line's colour."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from taciturn.reporting.figures.style import (
    APART,
    LONGEST,
    MOST,
    STYLE,
    ink,
    label_lines,
    log_axis,
    look,
    places,
    round_ticks,
)

HEIGHT = 150.0
ANY = st.floats(-1e6, 1e6, width=32)


def drawn(ends: list[float], names: list[str], points: int = 3, log: bool = False) -> tuple[Figure, Axes]:
    """One panel of the report's size whose lines end at these heights."""
    with rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.2), layout="constrained")
        axes = figure.subplots()
        for i, (end, name) in enumerate(zip(ends, names, strict=True)):
            axes.plot(np.arange(points), np.linspace(0.0, end, points) if points > 1 else [end], label=name, **look(i))
        axes.set(xlabel="round", ylabel="%", title="Title")
        if log:
            log_axis(axes)
        label_lines(figure)
    return figure, axes


def boxes(figure: Figure, axes: Axes) -> list[Bbox]:
    figure.draw_without_rendering()
    return [Text.get_window_extent(text) for text in axes.texts]


def check(figure: Figure, axes: Axes) -> None:
    found = sorted(boxes(figure, axes), key=lambda box: box.y0)
    for box in found:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
        assert box.x0 > axes.bbox.x1  # beside the panel, where no line goes
        assert box.y0 > axes.bbox.y0 - 3.0  # above the numbers of the axis
    assert all(low.y1 <= high.y0 for low, high in pairwise(found))


@settings(max_examples=15, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=MOST))
@example([0.1, 0.1, 0.1, 0.1])
@example([5.0])
def test_names_are_within_the_figure_and_do_not_touch(ends: list[float]) -> None:
    figure, axes = drawn(ends, [f"objpm, ε = {i}" for i in range(len(ends))])
    assert [text.get_text() for text in axes.texts] == [f"objpm, ε = {i}" for i in range(len(ends))]
    assert not figure.legends
    check(figure, axes)
    middles = [(box.y0 + box.y1) / 2.0 for box in boxes(figure, axes)]
    order = np.argsort(ends, kind="stable")
    assert all(middles[a] <= middles[b] + 1e-6 for a, b in pairwise(order) if ends[a] < ends[b])


@pytest.mark.parametrize("ends", [[3.0, 3.0], [math.nan, 2.0], [0.0, 1.0]])
@pytest.mark.parametrize("log", [False, True])
def test_one_round_and_lines_with_nothing_to_see(ends: list[float], log: bool) -> None:
    shown = [name for end, name in zip(ends, "ab", strict=True) if math.isfinite(end)]
    figure, axes = drawn(ends, ["a", "b"], points=1, log=log)
    assert [text.get_text() for text in axes.texts] == shown
    check(figure, axes)


def test_leaders_keep_the_height_of_their_line_within_the_panel() -> None:
    """A slanted one across the panel, from a line that ends early, looked like a line that rises."""
    with rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.2), layout="constrained")
        axes = figure.subplots()
        for end in (1.0, 1.001, 1.002):
            axes.plot([0.0, 100.0], [5.0, end], label=f"to {end}")
        axes.plot([1.0], [1.0015], marker="o", label="one point")
        label_lines(figure)
    ends = {line.get_color(): np.asarray(line.get_xydata(), float)[-1] for line in axes.lines}
    assert len(figure.artists) == len(ends)
    for leader in figure.artists:
        assert isinstance(leader, Line2D)
        tip, turn, foot = leader.get_transform().transform(np.asarray(leader.get_xydata(), float))
        np.testing.assert_allclose(tip, axes.transData.transform(ends[leader.get_color()]), atol=1e-6)
        assert turn[1] == pytest.approx(tip[1])
        assert axes.bbox.x1 < turn[0] < foot[0]


@given(st.integers(1, 5000))
def test_an_axis_of_rounds_ends_at_the_last(last: int) -> None:
    ticks = round_ticks(last)
    assert ticks[-1] == last and ticks == sorted(ticks) and len(ticks) <= 8
    assert np.diff(ticks).min() >= 0.7 * np.diff(ticks)[0]


def test_names_have_their_lines_colour_dark_enough_to_read() -> None:
    _, axes = drawn([1.0, 2.0], ["a", "b"])
    assert [text.get_color() for text in axes.texts] == [ink(look(i)["color"]) for i in range(2)]


@pytest.mark.parametrize(
    ("count", "name"), [(MOST + 1, "run {}"), (2, f"{{}}: a folder's name of more than {LONGEST} letters")]
)
def test_where_names_are_many_or_long_numbers_stand_for_them(count: int, name: str) -> None:
    names = [name.format(i) for i in range(count)]
    figure, axes = drawn([float(i) for i in range(count)], names)
    assert [text.get_text() for text in axes.texts] == [str(i + 1) for i in range(count)]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {f"{i + 1}  {n}" for i, n in enumerate(names)}
    check(figure, axes)
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 and legend.x1 <= figure.bbox.x1


def test_a_panel_that_is_too_low_has_everything_in_its_legend() -> None:
    figure, axes = drawn([float(i) for i in range(28)], [f"run {i}" for i in range(28)])
    assert not axes.texts
    assert len(figure.legends[0].get_texts()) == 28


@given(st.lists(st.floats(0, HEIGHT), min_size=1, max_size=12))
def test_places_keep_their_distance_and_stay_near(ends: list[float]) -> None:
    rising = np.sort(ends)
    found = places(rising, APART, HEIGHT)
    assert (np.diff(found) >= APART - 1e-9).all()
    assert found.min() >= 0.0 and found.max() <= HEIGHT + 1e-9
    assert np.abs(found - rising).max() <= APART * len(ends)
    if (np.diff(rising) >= APART).all():
        np.testing.assert_allclose(found, rising)
