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

from taciturn.experiments.frontier_results import FrontierPoint, format_budget
from taciturn.experiments.statistics import UNIT_NAMES, Condition
from taciturn.experiments.sweep_results import format_condition
from taciturn.reporting.figures.style import COLOURS, DASHES, GREY, STYLE, heading, label_lines, look
from taciturn.reporting.intervals import Interval
from taciturn.reporting.tables import format_setting
from taciturn.settings.rules import flag_name
from taciturn.types import Array

if TYPE_CHECKING:
    from taciturn.experiments.sweep_results import Sweep

MAX_PANELS = 12
SWEEP_LOG_FROM = 8.0  # ratio of the largest to the smallest value from which an axis is logarithmic
SWEEP_OFFSET = 0.015  # of the axis, between the error bars of two algorithms

TRUST_COLOURS = {"agents": COLOURS[0], "secure-sum": COLOURS[1], "server": COLOURS[2]}
MARKERS = ("o", "s", "^", "D", "v", "P")
NO_NOISE_FACTOR = 3.0  # position of "no noise" on the axis, relative to the largest budget
FRONTIER_OFFSET = 0.012  # of the axis, between the error bars of two lines
FRONTIER_LOG_FROM = 4.0  # ratio of the largest to the smallest error from which the axis is logarithmic
BAR_REACH = 1.5  # how far a bar is visible beyond the means on a logarithmic axis, as a factor
TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # possible ticks of a logarithmic axis, in every power of ten


class Scale(NamedTuple):
    """Positions of the swept setting's values on the horizontal axis."""

    name: str
    positions: Mapping[Any, float]
    kind: str  # linear, log or named


def sweep_figure(sweep: Sweep) -> Figure:
    """Draw mean test error against a swept setting, with a panel for each combination of the other settings."""
    scale = _choose_scale(sweep.means, sweep.grid.over)
    panels = _split_panels(sweep.means, scale.name)
    shown = dict(list(panels.items())[:MAX_PANELS])
    algorithms = list(dict.fromkeys(name for lines in shown.values() for name in lines))
    n = max(mean.n for mean in sweep.means.values())
    unit = UNIT_NAMES[sweep.unit]
    caption = f"mean of {n} {unit}s, bars: 95 % interval" if n > 1 else f"one {unit}"
    caption += f"; the first {MAX_PANELS} of {len(panels)} settings" if len(panels) > MAX_PANELS else ""
    caption += "; for the owner of the records only" if sweep.private else ""
    columns = min(3, len(shown))
    size = 6.4 if columns == 1 else 1.2 + 3.6 * columns, 0.6 + 3.2 * math.ceil(len(shown) / columns)
    with rc_context(STYLE):
        drawn, axes_list = _make_panels(len(shown), columns, size, sweep.regression, caption)
        for axes, (at, lines) in zip(axes_list, shown.items(), strict=True):
            _draw_sweep_panel(axes, lines, algorithms, scale)
            axes.set_xlabel(_axis_label(scale.name, sweep.grid.points[0].settings.mode))
            heading(axes, format_condition(at) or "Test error")
        _limit_errors(axes_list[0], sweep.regression)
        if scale.name == "algorithm":  # the axis names them
            label_lines(drawn, panels=[])
        else:
            label_lines(drawn)
    return drawn


def frontier_figure(points: Sequence[FrontierPoint], regression: bool, private: bool) -> Figure:
    """Draw mean test error against the total epsilon, with a panel for each feature map.

    Parameters
    ----------
    points : sequence of FrontierPoint
        Marked points; those on the frontier have filled markers.
    regression : bool
        Whether errors are RMSE rather than shares.
    private : bool
        Whether the figure is for the owner of the records only, which its caption then says.
    """
    maps = list(dict.fromkeys(point.features for point in points))
    columns = {1: 1, 2: 2, 4: 2}.get(len(maps), 3)
    factor = 1.0 if regression else 100.0
    positions = _budget_positions(sorted({point.epsilon for point in points}))
    n = max(point.error.n for point in points)
    means = f"means of {n} seeds, bars: 95 % interval" if n > 1 else "one seed"
    owner = "\ncomputed without noise, for the owner of the records only" if private else ""
    caption = f"filled: the lowest mean of its trust model at that budget; {means}{owner}"
    size = 6.8 if columns == 1 else 1.6 + 3.8 * columns, 0.9 + 3.4 * math.ceil(len(maps) / columns)
    with rc_context(STYLE):
        drawn, panels = _make_panels(len(maps), columns, size, regression, caption)
        for axes, name in zip(panels, maps, strict=True):
            own = [point for point in points if point.features == name]
            _draw_frontier_panel(axes, own, points, positions, factor)
            heading(axes, f"{points[0].data}, features {name}")
            axes.set_xlabel(f"total ε of a run, at δ = {points[0].delta:g}")
        _scale_errors(panels, points, factor)
        label_lines(drawn, panels)
    return drawn


def _make_panels(
    count: int, columns: int, size: tuple[float, float], regression: bool, caption: str
) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels that share the error axis; the caption is on top, above any legend."""
    drawn = Figure(figsize=size, layout="constrained")
    panels = list(drawn.subplots(math.ceil(count / columns), columns, squeeze=False, sharey=True).flat)
    for axes in panels[::columns]:
        axes.set_ylabel("test error, root mean square in the label's unit" if regression else "test error, %")
    for empty in panels[count:]:
        empty.remove()
    drawn.suptitle(caption, x=0.01, ha="left", fontsize=8, color=GREY)
    return drawn, panels[:count]


def _choose_scale(means: Mapping[Condition, Interval], over: Mapping[str, Sequence[Any]]) -> Scale:
    """Choose the first swept setting with numbers, else the first with names, else the algorithm."""
    names = [name for name, _ in next(iter(means))]
    values = {name: list(dict.fromkeys(dict(at)[name] for at in means)) for name in names}
    varied = [name for name in names if name != "algorithm" and len(values[name]) > 1]
    order = [name for name in over if name in varied] + [name for name in varied if name not in over]
    numbers = [name for name in order if all(_is_number(value) for value in values[name])]
    chosen = (numbers or order or ["algorithm"])[0]
    found = sorted(values[chosen]) if chosen in numbers else values[chosen]
    if chosen not in numbers or any(math.isinf(value) for value in found):
        return Scale(chosen, {value: float(i) for i, value in enumerate(found)}, "named")
    wide = found[0] > 0 and found[-1] / found[0] >= SWEEP_LOG_FROM
    return Scale(chosen, {value: float(value) for value in found}, "log" if wide else "linear")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _split_panels(means: Mapping[Condition, Interval], along: str) -> dict[Condition, dict[str, dict[Any, Interval]]]:
    """Return, for each combination of the other settings, algorithm -> value along the axis -> mean."""
    varied = [name for name, _ in next(iter(means)) if len({dict(at)[name] for at in means}) > 1]
    panels: dict[Condition, dict[str, dict[Any, Interval]]] = {}
    for at, mean in means.items():
        values = dict(at)
        others = tuple((name, values[name]) for name in varied if name not in {along, "algorithm"})
        panels.setdefault(others, {}).setdefault(values["algorithm"], {})[values[along]] = mean
    return panels


def _draw_sweep_panel(
    axes: Axes, lines: Mapping[str, Mapping[Any, Interval]], algorithms: Sequence[str], scale: Scale
) -> None:
    for algorithm, found in lines.items():
        number = algorithms.index(algorithm)
        values = sorted(found, key=scale.positions.__getitem__)
        x = np.array([scale.positions[value] for value in values])
        x = _offset(x, scale, number - (len(algorithms) - 1) / 2.0)
        mean, half = _mean_and_half([found[value] for value in values])
        style = look(number)
        axes.plot(x, mean, label=algorithm, marker="o", markersize=4, linewidth=1.6, **style)
        axes.errorbar(x, mean, half, fmt="none", ecolor=style["color"], capsize=3, elinewidth=1.0, label="_interval")
    if scale.kind == "log":
        axes.set_xscale("log")
    ticks = ["no noise" if (scale.name, v) == ("epsilon", math.inf) else format_setting(v) for v in scale.positions]
    _set_ticks(axes, list(scale.positions.values()), ticks, 0.08)


def _mean_and_half(means: Sequence[Interval]) -> tuple[Array, Array]:
    """Return means and half widths, NaN where a mean has no interval."""
    halves = [math.nan if mean.half is None else mean.half for mean in means]
    return np.array([mean.mean for mean in means]), np.array(halves)


def _set_ticks(axes: Axes, positions: Sequence[float], labels: Sequence[str], margin: float) -> None:
    axes.set_xticks(positions, labels)
    axes.minorticks_off()
    axes.margins(x=margin)


def _offset(x: Array, scale: Scale, steps: float) -> Array:
    """Move positions aside, so that the error bars of two algorithms do not cover each other."""
    if scale.name == "algorithm":
        return x
    low, high = min(scale.positions.values()), max(scale.positions.values())
    if scale.kind == "log":
        return np.asarray(x * (high / low) ** (SWEEP_OFFSET * steps))
    return np.asarray(x + SWEEP_OFFSET * steps * ((high - low) or 1.0))


def _axis_label(setting: str, mode: str) -> str:
    if setting != "epsilon":
        return flag_name(setting)
    return "epsilon of the whole run" if mode == "certified" else "epsilon of one local update, nominal"


def _limit_errors(axes: Axes, regression: bool) -> None:
    """Keep the axis between 0 and 100 %, however wide an interval is; the panels share the axis."""
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), high if regression else min(high, 1.0))
    if not regression:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100.0 * value:g}")


def _budget_positions(budgets: Sequence[float]) -> dict[float, float]:
    """Return the positions of budgets on the axis; no noise is beyond the largest."""
    finite = [value for value in budgets if math.isfinite(value)]
    return {value: value if math.isfinite(value) else NO_NOISE_FACTOR * max(finite, default=1.0) for value in budgets}


def _draw_frontier_panel(
    axes: Axes,
    own: Sequence[FrontierPoint],
    points: Sequence[FrontierPoint],
    positions: Mapping[float, float],
    factor: float,
) -> None:
    """Draw the points of one feature map; line styles and markers are by method, over all panels."""
    methods = list(dict.fromkeys(point.algorithm for point in points))
    names = list(dict.fromkeys((point.trust, point.algorithm) for point in own))
    spread = max(positions.values()) / min(positions.values())
    for number, (trust, method) in enumerate(names):
        line = [point for point in own if (point.trust, point.algorithm) == (trust, method)]
        line.sort(key=lambda point: point.epsilon)
        offset = spread ** (FRONTIER_OFFSET * (number - (len(names) - 1) / 2.0))
        x = np.array([positions[point.epsilon] * offset for point in line])
        mean, half = (factor * values for values in _mean_and_half([point.error for point in line]))
        colour, kind = TRUST_COLOURS[trust], methods.index(method)
        dashes, marker = DASHES[kind % len(DASHES)], MARKERS[kind % len(MARKERS)]
        axes.plot(x, mean, label=f"{method}, {trust}", linestyle=dashes, linewidth=1.5, color=colour)
        axes.errorbar(x, mean, half, fmt="none", ecolor=colour, capsize=2.5, elinewidth=0.9, label="_interval")
        for position, height, point in zip(x, mean, line, strict=True):
            face = colour if point.lowest else "white"
            marks: dict[str, Any] = {"markersize": 5.5, "markerfacecolor": face, "color": colour}
            axes.plot(position, height, marker, label="_mark", zorder=3, **marks)
    axes.set_xscale("log")
    _set_ticks(axes, list(positions.values()), [format_budget(value) for value in positions], 0.06)


def _scale_errors(panels: Sequence[Axes], points: Sequence[FrontierPoint], factor: float) -> None:
    """Set the error axis, logarithmic where errors are far apart; it shows every mean, and wide bars in part."""
    means = [factor * point.error.mean for point in points]
    ends = means + [factor * end for point in points for end in point.error[1:3] if end is not None]
    wide = 0.0 < FRONTIER_LOG_FROM * min(means) <= max(means)
    reach = (max(means) - min(means)) or math.inf  # a bar may extend beyond the means as far as these are apart
    low = max(min(ends), min(means) / BAR_REACH if wide else min(means) - reach)
    high = min(max(ends), BAR_REACH * max(means) if wide else max(means) + reach)
    if wide:
        _set_logarithmic(panels, 0.92 * low, 1.08 * high)
    else:
        pad = 0.05 * ((high - low) or high or 1.0)
        panels[0].set_ylim(max(low - pad, 0.0), high + pad)


def _set_logarithmic(panels: Sequence[Axes], low: float, high: float) -> None:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in TICKS if low <= step * 10.0**power <= high]
    for axes in panels:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_locator(NullLocator())
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
