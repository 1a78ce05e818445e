"""The figure of effects: categories in the schema's order, curves without strokes, one scale for all columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from taciturn.data.feature_maps.bins import KNOTS
from taciturn.reporting.figures.effects_figure import CLOSE, caption, curve_points, effects_figure
from taciturn.runs.effects import ColumnEffect, RunEffects

EVEN = np.full(len(KNOTS), 1.0 / len(KNOTS))
PAIN = ColumnEffect(
    column="pain", form="categories", names=("typical", "other", "none", "missing"), missing=False,
    shares=(0.2, 0.3, 0.4, 0.1), effect=((-1.0, 0.5, 1.5, -0.2),), error=((0.2, 0.2, 0.2, 0.2),),
)  # fmt: skip


def number(effect: np.ndarray, error: float = 0.1, scale: str = "linear", low: float = 20.0) -> ColumnEffect:
    """A column of numbers from `low` to 90, with a part for missing values."""
    knots = low * (90.0 / low) ** KNOTS if scale == "log" else low + (90.0 - low) * KNOTS
    return ColumnEffect(
        column="age", form="numeric", names=(), missing=True, shares=(*(0.9 * EVEN), 0.1), effect=((*effect, 0.3),),
        error=((*np.full(len(KNOTS), error), error),), scale=scale, knots=tuple(knots),
    )  # fmt: skip


def run(*columns: ColumnEffect) -> RunEffects:
    return RunEffects(
        run=0, algorithm="additive", epsilon=1.0, seed=1, unit="log-odds", outputs=("yes over no",), intercept=(0.0,),
        released_shares=True, columns=columns,
    )  # fmt: skip


def panels(effects: RunEffects) -> dict[str, Axes]:
    return {axes.get_title(loc="left"): axes for axes in effects_figure(effects).axes}


def test_categories_are_in_the_order_of_the_schema() -> None:
    axes = panels(run(PAIN))["pain"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["typical", "other", "none", "missing"]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_points_that_nearly_share_a_place_are_drawn_as_one(scale: str) -> None:
    """At both ends of a range knots are crowded: what noise makes of them looked like a vertical stroke."""
    rising = KNOTS - 0.5
    rising[:4], rising[-3:] = (3.0, -3.0, 3.0, -3.0), (2.0, -2.0, 2.0)
    column = number(rising, scale=scale)
    points = curve_points(column)
    x = np.log(points.x) if scale == "log" else points.x
    assert np.diff((x - x[0]) / (x[-1] - x[0])).min() >= CLOSE
    assert (points.x[0], points.x[-1]) == (column.knots[0], column.knots[-1])
    crowded = KNOTS < CLOSE
    assert points.effect[0, 0] == pytest.approx(rising[crowded].mean())
    assert points.error is not None and points.error[0, 0] == pytest.approx(0.1)
    inside = (KNOTS > 0.1) & (KNOTS < 0.9)
    np.testing.assert_allclose(np.interp(column.knots, points.x, points.effect[0])[inside], rising[inside])
    drawn = max(len(np.asarray(line.get_xdata())) for line in panels(run(column))["age"].lines)
    assert drawn == len(points.x)


def test_a_point_of_several_weighs_them_by_their_shares() -> None:
    shares = np.zeros(len(KNOTS))
    shares[0], shares[20] = 0.75, 0.25  # most records are at the lower end
    column = replace(number(np.where(KNOTS == 0.0, -1.0, 2.0)), shares=(*shares, 0.0))
    assert curve_points(column).effect[0, 0] == -1.0


def test_all_columns_have_one_scale() -> None:
    """The strongest come first, so that sizes invite comparison."""
    weak = [replace(number(0.1 * KNOTS), column=f"measure {i}") for i in range(5)]
    effects = run(PAIN, *weak)
    shown = panels(effects)
    assert len(shown) == 6  # two rows of panels
    (scale,) = {axes.get_ylim() for axes in shown.values()}
    assert scale[0] < -1.4 and scale[1] > 1.9
    assert "All panels have the same scale." in caption(effects)


def test_a_bar_far_longer_than_all_effects_does_not_flatten_them() -> None:
    unknown = replace(PAIN, error=((0.2, 40.0, 0.2, 0.2),))
    effects = run(unknown, number(0.1 * KNOTS, error=20.0))
    low, high = panels(effects)["pain"].get_ylim()
    assert low > -4.0 and high < 4.0
    assert "a bar that leaves its panel is longer than it shows" in caption(effects)
    (diamond,) = [
        bars for axes in panels(effects).values() for bars in axes.containers if axes.get_title(loc="left") == "age"
    ]
    ends = np.concatenate([np.asarray(path.vertices)[:, 1] for path in diamond[2][0].get_paths()])
    assert low <= ends.min() and ends.max() <= high  # beside the panel nothing would cut it
