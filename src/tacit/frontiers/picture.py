"""The picture of a frontier: a panel for each feature map, a colour for each trust model, a dash for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from tacit.frontiers.points import FrontierPoint
from tacit.frontiers.words import budget
from tacit.views.line_names import label_lines
from tacit.views.style import COLOURS, DASHES, GREY, STYLE, heading

TRUST_COLOURS = {"agents": COLOURS[0], "secure-sum": COLOURS[1], "server": COLOURS[2]}
MARKERS = ("o", "s", "^", "D", "v", "P")
COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2}  # panels beside each other; 3 of more
BEYOND = 3.0  # from the largest budget to no noise, as a factor
APART = 0.012  # of the axis, between the bars of two lines
WIDE = 4.0  # the largest error over the smallest, from which the axis is logarithmic
BAR = 1.5  # how far a bar is seen beyond the means on such an axis, as a factor
ROUND = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # where a logarithmic axis may have its numbers, in every power of ten


def frontier_figure(points: Sequence[FrontierPoint], regression: bool, private: bool) -> Figure:
    """Mean test error against the total epsilon, with its interval; filled marks are the frontier."""
    maps = list(dict.fromkeys(one.features for one in points))
    columns = COLUMNS.get(len(maps), 3)
    lines = math.ceil(len(maps) / columns)
    factor = 1.0 if regression else 100.0
    places = _places(sorted({one.epsilon for one in points}))
    with rc_context(STYLE):
        size = (6.8 if columns == 1 else 1.6 + 3.8 * columns, 0.9 + 3.4 * lines)
        drawn = Figure(figsize=size, layout="constrained")
        panels = list(drawn.subplots(lines, columns, squeeze=False, sharey=True).flat)
        for axes, name in zip(panels, maps, strict=False):
            _draw(axes, [one for one in points if one.features == name], points, places, factor)
            heading(axes, f"{points[0].data}, features {name}")
            axes.set_xlabel(f"total ε of a run, at δ = {points[0].delta:g}")
        for axes in panels[::columns]:
            axes.set_ylabel("test error, root mean square in the label's unit" if regression else "test error, %")
        for empty in panels[len(maps) :]:
            empty.remove()
        _scale(panels[: len(maps)], points, factor)
        drawn.suptitle(_explained(points, private), x=0.01, ha="left", fontsize=8, color=GREY)
        label_lines(drawn, panels[: len(maps)])
    return drawn


def _places(budgets: Sequence[float]) -> dict[float, float]:
    """Where budgets stand on the axis; no noise is beyond the largest."""
    finite = [value for value in budgets if math.isfinite(value)]
    return {value: value if math.isfinite(value) else BEYOND * max(finite, default=1.0) for value in budgets}


def _draw(
    axes: Axes,
    mine: Sequence[FrontierPoint],
    points: Sequence[FrontierPoint],
    places: dict[float, float],
    factor: float,
) -> None:
    methods = list(dict.fromkeys(one.algorithm for one in points))
    names = list(dict.fromkeys((one.trust, one.algorithm) for one in mine))
    spread = max(places.values()) / min(places.values())
    for number, (trust, method) in enumerate(names):
        line = sorted((one for one in mine if (one.trust, one.algorithm) == (trust, method)), key=lambda o: o.epsilon)
        aside = spread ** (APART * (number - (len(names) - 1) / 2.0))
        x = np.array([places[one.epsilon] * aside for one in line])
        mean = factor * np.array([one.error.mean for one in line])
        half = factor * np.array([math.nan if one.error.half is None else one.error.half for one in line])
        look: dict[str, Any] = {"color": TRUST_COLOURS[trust]}
        kind = methods.index(method)
        axes.plot(x, mean, label=f"{method}, {trust}", linestyle=DASHES[kind % len(DASHES)], linewidth=1.5, **look)
        axes.errorbar(x, mean, half, fmt="none", ecolor=look["color"], capsize=2.5, elinewidth=0.9, label="_interval")
        for place, height, one in zip(x, mean, line, strict=True):
            face = look["color"] if one.lowest else "white"
            marker = MARKERS[kind % len(MARKERS)]
            axes.plot(place, height, marker, markersize=5.5, markerfacecolor=face, label="_mark", zorder=3, **look)
    axes.set_xscale("log")
    axes.set_xticks(list(places.values()), [budget(value) for value in places])
    axes.minorticks_off()
    axes.margins(x=0.06)


def _scale(panels: Sequence[Axes], points: Sequence[FrontierPoint], factor: float) -> None:
    """Logarithmic where errors are far apart; every mean is within the axis, and of wide bars a part."""
    means = [factor * one.error.mean for one in points]
    ends = means + [factor * end for one in points for end in one.error[1:3] if end is not None]
    wide = 0.0 < WIDE * min(means) <= max(means)
    reach = (max(means) - min(means)) or math.inf  # a bar may be as long beyond the means as these are apart
    low = max(min(ends), min(means) / BAR if wide else min(means) - reach)
    high = min(max(ends), BAR * max(means) if wide else max(means) + reach)
    if wide:
        _logarithmic(panels, 0.92 * low, 1.08 * high)
    else:
        pad = 0.05 * ((high - low) or high or 1.0)
        panels[0].set_ylim(max(low - pad, 0.0), high + pad)


def _logarithmic(panels: Sequence[Axes], low: float, high: float) -> None:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in ROUND if low <= step * 10.0**power <= high]
    for axes in panels:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_locator(NullLocator())
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _explained(points: Sequence[FrontierPoint], private: bool) -> str:
    n = max(one.error.n for one in points)
    means = f"means of {n} seeds, bars: 95 % interval" if n > 1 else "one seed"
    owners = "\ncomputed without noise, for the owner of the records alone" if private else ""
    return f"filled: the lowest mean of its trust model at that budget; {means}{owners}"
