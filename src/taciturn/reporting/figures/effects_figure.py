"""The figure of a model's effects: one panel for each column, with bands for the noise alone."""

from __future__ import annotations

import math
from typing import Any

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


def effects_figure(effects: RunEffects) -> Figure:
    """Return the panels of a model's columns, the strongest first."""
    columns, outputs = effects.by_strength()[:MAX_COLUMNS], _outputs(effects)
    across = min(ACROSS, len(columns))
    down = math.ceil(len(columns) / across)
    with rc_context(STYLE):
        drawn = Figure(figsize=(WIDTH * across + 0.3, HEIGHT * down + REST), layout="constrained")
        places = list(drawn.subplots(down, across, squeeze=False, sharey="row").flat)
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


def caption(effects: RunEffects) -> str:
    """Return what the panels show, in sentences."""
    left_out = len(effects.columns) - MAX_COLUMNS
    classes = len(effects.outputs) - MAX_OUTPUTS
    errors = any(column.error is not None for column in effects.columns)
    lines = [
        "Bands and bars: ± 2 standard errors of the privacy noise alone, not of the choice of records. "
        "Grey: within the noise."
        if errors
        else "No standard errors: the noise in these curves is not known, or there is none.",
        "An effect is 0 on average over the released frequencies of its column; the strongest columns come first."
        if effects.released_shares
        else "An effect is 0 on average over its column's levels, with equal weights.",
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
    knots, noise = np.array(column.knots), column.within_noise()
    count = len(knots)
    for place, k in enumerate(outputs):
        colour, values = COLOURS[place % len(COLOURS)], np.array(column.effect[k])
        error = None if column.error is None else NOISE_LEVEL * np.array(column.error[k])
        if error is not None:
            low, high = (values - error)[:count], (values + error)[:count]
            axes.fill_between(knots, low, high, color=colour, alpha=0.15 if len(outputs) == 1 else 0.08, linewidth=0)
        axes.plot(knots, values[:count], color=PALE, linewidth=1.2)
        sure = np.where(noise[k, :count], np.nan, values[:count])
        axes.plot(knots, _kept(sure, values[:count]), color=colour, linewidth=1.8, label=effects.outputs[k])
        if column.missing:
            shift = 1.06 + 0.03 * place
            shade = PALE if noise[k, -1] else colour
            bar = None if error is None else error[-1]
            axes.errorbar(
                shift, values[-1], bar, fmt="D", color=shade, markersize=4, transform=axes.get_yaxis_transform(),
                clip_on=False,
            )  # fmt: skip
    if column.missing:
        axes.annotate(
            "missing", (1.06, 1.0), (0, 3), xycoords="axes fraction", textcoords="offset points", ha="center",
            va="bottom", fontsize=7, color=GREY, annotation_clip=False,
        )  # fmt: skip
    if column.scale == "log":
        axes.set_xscale("log")
    elif column.scale == "asinh":
        positive = np.abs(knots[knots != 0.0])
        axes.set_xscale("asinh", linear_width=float(positive.min()) if len(positive) else 1.0)
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
    """Return the levels to draw: those that matter most, by size of their effect and share."""
    weight = (np.square(np.array(column.effect)) * np.array(column.shares)).max(axis=0)
    most = sorted(np.argsort(-weight, kind="stable")[:MAX_LEVELS].tolist())
    if column.form == "ordered":
        return most
    return sorted(most, key=lambda level: -column.effect[0][level])


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
