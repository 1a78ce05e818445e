"""The figure of a model's effects: one panel for each column, with bands for the noise alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from taciturn.reporting.curves import full_label
from taciturn.reporting.figures.style import COLOURS, GREY, PALE, STYLE, add_legend, heading
from taciturn.runs.effects import NOISE_LEVEL, ColumnEffect, RunEffects

ACROSS = 4  # panels in a row
WIDTH, HEIGHT, REST = 2.9, 2.2, 0.9  # inches: of a panel, and of everything else
MAX_COLUMNS = 24
MAX_LEVELS = 10  # categories in a panel
MAX_OUTPUTS = 6  # classes in a panel
LONGEST = 16  # letters of a category
HEADING = 26  # letters of a column's name
CLOSE = 0.01  # of the axis; nearer points of a curve are drawn as one
REACH = 2.0  # how far bands and bars may extend the common scale, over the largest effect


class Points(NamedTuple):
    """What is drawn of the curves of a numeric column: n points."""

    x: NDArray[np.float64]  # [n]
    effect: NDArray[np.float64]  # [outputs, n]
    error: NDArray[np.float64] | None  # [outputs, n]
    noise: NDArray[np.bool_]  # [outputs, n]  whether the effect is within the noise


def effects_figure(effects: RunEffects) -> Figure:
    """Return the panels of a model's columns, the strongest first."""
    columns, outputs = effects.by_strength()[:MAX_COLUMNS], _outputs(effects)
    across = min(ACROSS, len(columns))
    down = math.ceil(len(columns) / across)
    with rc_context(STYLE):
        drawn = Figure(figsize=(WIDTH * across + 0.3, HEIGHT * down + REST), layout="constrained")
        places = list(drawn.subplots(down, across, squeeze=False, sharey=True).flat)
        places[0].set_ylim(common_scale(effects))
        for axes, column in zip(places, columns, strict=False):
            _draw(axes, column, effects, outputs)
        for empty in places[len(columns) :]:
            empty.remove()
        about = effects.outputs[0] if len(outputs) == 1 else "every class, relative to their mean"
        title = f"{full_label(effects)}: effect of each column on {about}, in {_unit(effects)}"
        drawn.suptitle(title, x=0.01, ha="left", fontweight="bold")
        drawn.supxlabel(caption(effects), x=0.01, ha="left", fontsize=8, color=GREY)
        if len(outputs) > 1:
            add_legend(drawn)
    return drawn


def common_scale(effects: RunEffects) -> tuple[float, float]:
    """Return the vertical range of all panels: every effect, and bands and bars unless they are far longer."""
    low, high, peak = _extent(effects)
    low, high = max(low, -REACH * peak), min(high, REACH * peak)
    spare = 0.05 * (high - low) or 1.0
    return low - spare, high + spare


def _extent(effects: RunEffects) -> tuple[float, float, float]:
    """Return where bands and bars end, below and above, and the size of the largest effect."""
    low = high = peak = 0.0
    for column in effects.by_strength()[:MAX_COLUMNS]:
        for values, errors in _shown_values(column):
            low = min(low, float((values - NOISE_LEVEL * errors).min()))
            high = max(high, float((values + NOISE_LEVEL * errors).max()))
            peak = max(peak, float(np.abs(values).max()))
    return low, high, peak


def _shown_values(column: ColumnEffect) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield the effects that are drawn of a column, with their standard errors."""
    effect = np.array(column.effect)
    error = np.zeros(effect.shape) if column.error is None else np.array(column.error)
    if column.form != "numeric":
        levels = _chosen(column)
        yield effect[:, levels], error[:, levels]
        return
    points = curve_points(column)
    yield points.effect, np.zeros(points.effect.shape) if points.error is None else points.error
    if column.missing:
        yield effect[:, -1:], error[:, -1:]


def curve_points(column: ColumnEffect) -> Points:
    """Return the points of a numeric column's curves; those that nearly share a place on the axis are one.

    Such a point has the mean of their effects by their shares. The mean of their standard errors bounds its own.
    """
    x = np.array(column.knots)
    effect, shares = np.array(column.effect)[:, : len(x)], np.array(column.shares)[: len(x)]
    error = None if column.error is None else np.array(column.error)[:, : len(x)]
    groups = _close(_places(x, column.scale))
    weights = np.zeros((len(x), len(groups)))
    for i, group in enumerate(groups):
        own = np.maximum(shares[group], 0.0)
        weights[group, i] = own / own.sum() if own.sum() > 0.0 else 1.0 / len(own)
    middle = np.array([x[group[-1] if group[-1] == len(x) - 1 else group[0]] for group in groups])
    effect = effect @ weights
    error = None if error is None else error @ weights
    noise = np.zeros(effect.shape, bool) if error is None else np.abs(effect) <= NOISE_LEVEL * error
    return Points(middle, effect, error, noise)


def _close(places: NDArray[np.float64]) -> list[list[int]]:
    """Return the positions of the points that are drawn as one, for points in order on an axis of length 1."""
    groups: list[list[int]] = []
    for i, place in enumerate(places):
        if groups and place - places[groups[-1][0]] < CLOSE:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _places(x: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Return where the values of a column are on its axis, from 0 to 1."""
    along = np.log(x) if scale == "log" else np.arcsinh(x / _linear_width(x)) if scale == "asinh" else x
    found: NDArray[np.float64] = (along - along[0]) / (along[-1] - along[0])
    return found


def _linear_width(x: NDArray[np.float64]) -> float:
    """Return the part of an asinh axis around 0 that is nearly linear."""
    positive = np.abs(x[x != 0.0])
    return float(positive.min()) if len(positive) else 1.0


def caption(effects: RunEffects) -> str:
    """Return what the panels show, in sentences."""
    left_out = len(effects.columns) - MAX_COLUMNS
    classes = len(effects.outputs) - MAX_OUTPUTS
    errors = any(column.error is not None for column in effects.columns)
    low, high, peak = _extent(effects)
    cut = max(-low, high) > REACH * peak
    lines = [
        "Bands and bars: ± 2 standard errors of the privacy noise alone, not of the choice of records. "
        "Grey: within the noise."
        if errors
        else "No standard errors: the noise in these curves is not known, or there is none.",
        "An effect is 0 on average over the released frequencies of its column; the strongest columns come first."
        if effects.released_shares
        else "An effect is 0 on average over its column's levels, with equal weights.",
        "All panels have the same scale" + ("; a bar that leaves its panel is longer than it shows." if cut else "."),
    ]
    if left_out > 0:
        lines.append(f"The {left_out} weakest columns are left out.")
    if classes > 0:
        lines.append(f"The {MAX_OUTPUTS} classes with the strongest effects are drawn of {len(effects.outputs)}.")
    return "\n".join(lines)


def text_alternative(effects: RunEffects) -> str:
    """Return a text alternative to the panels: the range of every column's effect."""
    found = []
    for column in effects.by_strength():
        values = np.array(column.effect)
        noise = "; all within the noise" if column.is_noise() else ""
        found.append(f"{column.column}: from {values.min():.3g} to {values.max():.3g}{noise}.")
    return f"Effects in {_unit(effects)}. {' '.join(found)}"


def _unit(effects: RunEffects) -> str:
    return effects.unit if effects.unit in ("log-odds", "score") else f"units of {effects.unit}"


def _outputs(effects: RunEffects) -> list[int]:
    """Return the outputs to draw: those with the strongest effects, in their order."""
    count = len(effects.outputs)
    strength = [max(column.strength(k) for column in effects.columns) for k in range(count)]
    return sorted(sorted(range(count), key=lambda k: -strength[k])[:MAX_OUTPUTS])


def _draw(axes: Axes, column: ColumnEffect, effects: RunEffects, outputs: list[int]) -> None:
    axes.axhline(0.0, color=PALE, linewidth=0.8)
    if column.form == "numeric":
        _draw_curves(axes, column, effects, outputs)
    else:
        _draw_levels(axes, column, effects, outputs)
    heading(axes, _short(column.column, HEADING))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _draw_curves(axes: Axes, column: ColumnEffect, effects: RunEffects, outputs: list[int]) -> None:
    points = curve_points(column)
    low, high = axes.get_ylim()
    for place, k in enumerate(outputs):
        colour, values = COLOURS[place % len(COLOURS)], points.effect[k]
        if points.error is not None:
            error = NOISE_LEVEL * points.error[k]
            alpha = 0.15 if len(outputs) == 1 else 0.08
            axes.fill_between(points.x, values - error, values + error, color=colour, alpha=alpha, linewidth=0)
        axes.plot(points.x, values, color=PALE, linewidth=1.2)
        sure = np.where(points.noise[k], np.nan, values)
        axes.plot(points.x, _kept(sure, values), color=colour, linewidth=1.8, label=effects.outputs[k])
        if column.missing:
            value, bar = column.effect[k][-1], 0.0 if column.error is None else NOISE_LEVEL * column.error[k][-1]
            shade = PALE if column.within_noise()[k, -1] else colour
            bars = np.maximum([[value - max(value - bar, low)], [min(value + bar, high) - value]], 0.0)
            axes.errorbar(
                1.06 + 0.03 * place, value, bars, fmt="D", color=shade, markersize=4,
                transform=axes.get_yaxis_transform(), clip_on=False,
            )  # fmt: skip
    if column.missing:
        axes.annotate(
            "missing", (1.06, 1.0), (0, 3), xycoords="axes fraction", textcoords="offset points", ha="center",
            va="bottom", fontsize=7, color=GREY, annotation_clip=False,
        )  # fmt: skip
    if column.scale == "log":
        axes.set_xscale("log")
    elif column.scale == "asinh":
        axes.set_xscale("asinh", linear_width=_linear_width(np.array(column.knots)))
    axes.tick_params(axis="x", labelsize=8)


def _kept(sure: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values outside the noise, and one neighbour of each, so that single points have a segment."""
    known = ~np.isnan(sure)
    beside = known.copy()
    beside[1:] |= known[:-1]
    kept: NDArray[np.float64] = np.where(beside, values, np.nan)
    return kept


def _draw_levels(axes: Axes, column: ColumnEffect, effects: RunEffects, outputs: list[int]) -> None:
    chosen = _chosen(column)
    values, noise = np.array(column.effect), column.within_noise()
    places = np.arange(len(chosen))
    for place, k in enumerate(outputs):
        colour = COLOURS[place % len(COLOURS)]
        shift = 0.0 if len(outputs) == 1 else 0.6 * (place / (len(outputs) - 1) - 0.5)
        error = None if column.error is None else NOISE_LEVEL * np.array(column.error[k])[chosen]
        for i, level in enumerate(chosen):
            style: dict[str, Any] = {"color": PALE if noise[k, level] else colour, "markersize": 4.5, "linewidth": 1.4}
            axes.errorbar(places[i] + shift, values[k, level], None if error is None else error[i], fmt="o", **style)
        axes.plot([], [], "o", color=colour, label=effects.outputs[k])
    names = [_short(column.level_names()[level], LONGEST) for level in chosen]
    axes.set_xticks(places, names)
    if sum(map(len, names)) + 2 * len(names) > 30:
        axes.tick_params(axis="x", labelrotation=40, labelsize=7)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
    axes.set_xlim(-0.6, len(chosen) - 0.4)
    left_out = len(column.shares) - len(chosen)
    if left_out:
        axes.text(
            0.99, 0.98, f"{left_out} more", transform=axes.transAxes, ha="right", va="top", fontsize=7, color=GREY
        )


def _chosen(column: ColumnEffect) -> list[int]:
    """Return the levels to draw, in the schema's order: those that matter most, by size of their effect and share."""
    weight = (np.square(np.array(column.effect)) * np.array(column.shares)).max(axis=0)
    return sorted(np.argsort(-weight, kind="stable")[:MAX_LEVELS].tolist())


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
