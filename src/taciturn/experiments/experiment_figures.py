"""Figures of sweeps and frontiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from taciturn.experiments.frontier_results import FrontierPoint, budget
from taciturn.experiments.statistics import UNITS, At
from taciturn.experiments.sweep_results import at_words, setting_name
from taciturn.reporting.figures.style import COLOURS, DASHES, GREY, STYLE, heading, label_lines, look
from taciturn.reporting.intervals import Interval
from taciturn.reporting.tables import format_setting
from taciturn.types import Array

if TYPE_CHECKING:
    from taciturn.experiments.sweep_results import Sweep

MOST_PANELS = 12
SWEEP_WIDE = 8.0  # the largest value over the smallest, from which an axis is logarithmic
SWEEP_COLUMNS = 3
SWEEP_APART = 0.015  # of the axis, between the bars of two algorithms


class Scale(NamedTuple):
    """Where the values of the swept setting stand on the horizontal axis."""

    name: str
    places: Mapping[Any, float]
    kind: str  # linear, log or named


def sweep_figure(sweep: Sweep) -> Figure:
    """A panel for each setting beside the algorithm and the one that is drawn along the axis."""
    means, regression = sweep.means, sweep.regression
    scale = _scale(means, sweep.grid.over)
    panels = _panels(means, scale.name)
    shown = dict(list(panels.items())[:MOST_PANELS])
    algorithms = list(dict.fromkeys(name for lines in shown.values() for name in lines))
    columns = min(SWEEP_COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    width = 6.4 if columns == 1 else 1.2 + 3.6 * columns
    with rc_context(STYLE):
        drawn = Figure(figsize=(width, 0.6 + 3.2 * lines), layout="constrained")
        places = list(drawn.subplots(lines, columns, squeeze=False, sharey=True).flat)
        for axes, (at, found) in zip(places, shown.items(), strict=False):
            _draw(axes, found, algorithms, scale)
            axes.set_xlabel(_axis_name(scale.name, sweep.grid.points[0].settings.mode))
            heading(axes, at_words(at) or "Test error")
        for axes in places[::columns]:
            axes.set_ylabel("test error, root mean square in the label's unit" if regression else "test error, %")
        for empty in places[len(shown) :]:
            empty.remove()
        _within_reason(places[0], regression)
        owners = "; for the owner of the records alone" if sweep.private else ""
        words = _explained(means, sweep.unit, len(panels)) + owners
        drawn.suptitle(words, x=0.01, ha="left", fontsize=8, color=GREY)  # below may be a legend
        if scale.name == "algorithm":  # the axis names them
            label_lines(drawn, panels=[])
        else:
            label_lines(drawn)
    return drawn


def _scale(means: Mapping[At, Interval], over: Mapping[str, Sequence[Any]]) -> Scale:
    """The first setting of numbers that was swept, else the first of names, else the algorithm alone."""
    names = [name for name, _ in next(iter(means))]
    values = {name: list(dict.fromkeys(dict(at)[name] for at in means)) for name in names}
    varied = [name for name in names if name != "algorithm" and len(values[name]) > 1]
    order = [name for name in over if name in varied] + [name for name in varied if name not in over]
    numbers = [name for name in order if all(_is_number(value) for value in values[name])]
    chosen = (numbers or order or ["algorithm"])[0]
    found = values[chosen]
    if chosen not in numbers or any(math.isinf(value) for value in found):
        return Scale(chosen, {value: float(i) for i, value in enumerate(_sorted(found))}, "named")
    wide = min(found) > 0 and max(found) / min(found) >= SWEEP_WIDE
    return Scale(chosen, {value: float(value) for value in sorted(found)}, "log" if wide else "linear")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values) if all(_is_number(value) for value in values) else values


def _panels(means: Mapping[At, Interval], along: str) -> dict[At, dict[str, dict[Any, Interval]]]:
    """What else varies -> algorithm -> value along the axis -> mean."""
    varied = [name for name, _ in next(iter(means)) if len({dict(at)[name] for at in means}) > 1]
    panels: dict[At, dict[str, dict[Any, Interval]]] = {}
    for at, found in means.items():
        values = dict(at)
        beside = tuple((name, values[name]) for name in varied if name not in {along, "algorithm"})
        panels.setdefault(beside, {}).setdefault(values["algorithm"], {})[values[along]] = found
    return panels


def _draw(axes: Axes, lines: Mapping[str, Mapping[Any, Interval]], algorithms: Sequence[str], scale: Scale) -> None:
    for algorithm, found in lines.items():
        values = sorted(found, key=scale.places.__getitem__)
        x = np.array([scale.places[value] for value in values])
        mean = np.array([found[value].mean for value in values])
        half = np.array([math.nan if found[value].half is None else found[value].half for value in values])
        style = look(algorithms.index(algorithm))
        x = _aside(x, scale, algorithms.index(algorithm) - (len(algorithms) - 1) / 2.0)
        axes.plot(x, mean, label=algorithm, marker="o", markersize=4, linewidth=1.6, **style)
        axes.errorbar(x, mean, half, fmt="none", ecolor=style["color"], capsize=3, elinewidth=1.0, label="_interval")
    if scale.kind == "log":
        axes.set_xscale("log")
    axes.set_xticks(list(scale.places.values()), [_tick(scale, value) for value in scale.places])
    axes.minorticks_off()
    axes.margins(x=0.08)


def _aside(x: Array, scale: Scale, steps: float) -> Array:
    """A little to the side, so that the bars of two algorithms do not cover each other."""
    if scale.name == "algorithm":
        return x
    low, high = min(scale.places.values()), max(scale.places.values())
    logarithmic = scale.kind == "log"
    moved: Array = (
        x * (high / low) ** (SWEEP_APART * steps) if logarithmic else x + SWEEP_APART * steps * ((high - low) or 1.0)
    )
    return moved


def _axis_name(setting: str, mode: str) -> str:
    if setting != "epsilon":
        return setting_name(setting)
    return "epsilon of the whole run" if mode == "certified" else "epsilon of one local update, nominal"


def _tick(scale: Scale, value: Any) -> str:
    if scale.name == "epsilon" and value == math.inf:
        return "no noise"
    return format_setting(value)


def _within_reason(axes: Axes, regression: bool) -> None:
    """No error is below zero or above 100 %, whatever a wide interval says; the panels share the axis."""
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), high if regression else min(high, 1.0))
    if not regression:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100.0 * value:g}")


def _explained(means: Mapping[At, Interval], unit: str, panels: int) -> str:
    n = max(found.n for found in means.values())
    words = f"mean of {n} {UNITS[unit]}s, bars: 95 % interval" if n > 1 else f"one {UNITS[unit]}"
    return words + (f"; the first {MOST_PANELS} of {panels} settings" if panels > MOST_PANELS else "")


TRUST_COLOURS = {"agents": COLOURS[0], "secure-sum": COLOURS[1], "server": COLOURS[2]}
MARKERS = ("o", "s", "^", "D", "v", "P")
FRONTIER_COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2}  # panels beside each other; 3 of more
BEYOND = 3.0  # from the largest budget to no noise, as a factor
FRONTIER_APART = 0.012  # of the axis, between the bars of two lines
FRONTIER_WIDE = 4.0  # the largest error over the smallest, from which the axis is logarithmic
BAR = 1.5  # how far a bar is seen beyond the means on such an axis, as a factor
ROUND = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # where a logarithmic axis may have its numbers, in every power of ten


def frontier_figure(points: Sequence[FrontierPoint], regression: bool, private: bool) -> Figure:
    """Mean test error against the total epsilon, with its interval; filled marks are the frontier."""
    maps = list(dict.fromkeys(one.features for one in points))
    columns = FRONTIER_COLUMNS.get(len(maps), 3)
    lines = math.ceil(len(maps) / columns)
    factor = 1.0 if regression else 100.0
    places = _places(sorted({one.epsilon for one in points}))
    with rc_context(STYLE):
        size = (6.8 if columns == 1 else 1.6 + 3.8 * columns, 0.9 + 3.4 * lines)
        drawn = Figure(figsize=size, layout="constrained")
        panels = list(drawn.subplots(lines, columns, squeeze=False, sharey=True).flat)
        for axes, name in zip(panels, maps, strict=False):
            _draw_picture(axes, [one for one in points if one.features == name], points, places, factor)
            heading(axes, f"{points[0].data}, features {name}")
            axes.set_xlabel(f"total ε of a run, at δ = {points[0].delta:g}")
        for axes in panels[::columns]:
            axes.set_ylabel("test error, root mean square in the label's unit" if regression else "test error, %")
        for empty in panels[len(maps) :]:
            empty.remove()
        _scale_picture(panels[: len(maps)], points, factor)
        drawn.suptitle(_explained_picture(points, private), x=0.01, ha="left", fontsize=8, color=GREY)
        label_lines(drawn, panels[: len(maps)])
    return drawn


def _places(budgets: Sequence[float]) -> dict[float, float]:
    """Where budgets stand on the axis; no noise is beyond the largest."""
    finite = [value for value in budgets if math.isfinite(value)]
    return {value: value if math.isfinite(value) else BEYOND * max(finite, default=1.0) for value in budgets}


def _draw_picture(
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
        aside = spread ** (FRONTIER_APART * (number - (len(names) - 1) / 2.0))
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


def _scale_picture(panels: Sequence[Axes], points: Sequence[FrontierPoint], factor: float) -> None:
    """Logarithmic where errors are far apart; every mean is within the axis, and of wide bars a part."""
    means = [factor * one.error.mean for one in points]
    ends = means + [factor * end for one in points for end in one.error[1:3] if end is not None]
    wide = 0.0 < FRONTIER_WIDE * min(means) <= max(means)
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


def _explained_picture(points: Sequence[FrontierPoint], private: bool) -> str:
    n = max(one.error.n for one in points)
    means = f"means of {n} seeds, bars: 95 % interval" if n > 1 else "one seed"
    owners = "\ncomputed without noise, for the owner of the records alone" if private else ""
    return f"filled: the lowest mean of its trust model at that budget; {means}{owners}"
