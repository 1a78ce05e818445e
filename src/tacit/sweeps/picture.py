"""The picture of a sweep: test error against what was swept, a line for each algorithm, intervals as bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.sweeps.statistics import UNITS, At
from tacit.sweeps.words import at_words, setting_name
from tacit.types import Array
from tacit.views.intervals import Interval
from tacit.views.line_names import label_lines
from tacit.views.style import GREY, STYLE, heading, look
from tacit.views.tables import format_setting

if TYPE_CHECKING:
    from tacit.sweeps.outcome import Sweep

MOST_PANELS = 12
WIDE = 8.0  # the largest value over the smallest, from which an axis is logarithmic
COLUMNS = 3
APART = 0.015  # of the axis, between the bars of two algorithms


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
    columns = min(COLUMNS, len(shown))
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
    wide = min(found) > 0 and max(found) / min(found) >= WIDE
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
    moved: Array = x * (high / low) ** (APART * steps) if logarithmic else x + APART * steps * ((high - low) or 1.0)
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
