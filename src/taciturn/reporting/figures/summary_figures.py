"""Figures of rankings, of plans, and of the upload of an agent."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taciturn.errors import InputError
from taciturn.reporting.figures.run_figure import panels
from taciturn.reporting.figures.style import COLOURS, DIVERGING, GREY, PALE, STYLE, heading, label_lines, log_axis, look
from taciturn.reporting.intervals import Interval, mean_words
from taciturn.reporting.ranking import Ranked, seeds_range
from taciturn.types import Array

if TYPE_CHECKING:
    from taciturn.planning.tradeoffs import PlanReport

ROW, REST = 0.3, 1.5  # inches: of a row, of everything else
LETTER = 0.075  # inches, of a name
PANEL = 5.4  # inches, with the values beside it
BELOW = 0.26  # rows, from a mean to the dots of its seeds


class Mark(NamedTuple):
    """The marker of one kind of row."""

    colour: str
    marker: str
    hollow: bool


MARKS = {
    "private in total": Mark(COLOURS[0], "o", hollow=False),
    "central: one curator holds all records": Mark(COLOURS[1], "D", hollow=True),
    "nominal ε: no total": Mark(COLOURS[2], "^", hollow=False),
    "no noise": Mark(COLOURS[6], "s", hollow=True),
}


def ranking_figure(rows: Sequence[Ranked], regression: bool) -> Figure:
    """Return the figure of a ranking: the rows whose error is known, the first on top.

    Raises
    ------
    InputError
        If no error is known.
    """
    shown = [(row, row.error) for row in rows if row.error is not None]
    if not shown:
        raise InputError(f"{rows[0].run} has {rows[0].unknown or 'no test error'}: there is nothing to draw")
    panel = panels(regression)[0]
    width = PANEL + LETTER * max(len(row.label) for row, _ in shown)
    with rc_context(STYLE):
        drawn = Figure(figsize=(width, REST + ROW * len(shown)), layout="constrained")
        axes = drawn.subplots()
        for place, (row, error) in enumerate(shown):
            _draw(axes, place, row, error, panel.factor)
            _write(axes, place, mean_words(error, regression))
        axes.set_yticks(range(len(shown)), [row.label for row, _ in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, 0.0), high if regression else min(high, 100.0))
        heading(axes, panel.title)
        axes.set_xlabel(panel.unit)
        drawn.supxlabel(_explained([row for row, _ in shown]), x=0.01, ha="left", fontsize=8, color=GREY)
        _name_marks(drawn, axes)
    return drawn


def kind(row: Ranked) -> str:
    """Return which of MARKS a row has."""
    private, central, nominal, silent = MARKS
    if row.central:
        return central
    if math.isinf(row.epsilon):
        return silent
    return private if math.isfinite(row.spent) else nominal


def _draw(axes: Axes, place: int, row: Ranked, error: Interval, factor: float) -> None:
    mark = MARKS[kind(row)]
    face = "white" if mark.hollow else mark.colour
    if error.n > 1:
        seeds = [factor * value for value in row.errors]
        axes.plot(
            seeds, [place + BELOW] * len(seeds), "o", markersize=2.6, markeredgewidth=0, color=mark.colour, alpha=0.5
        )
    if error.low is not None and error.high is not None:
        axes.plot([factor * error.low, factor * error.high], [place, place], color=mark.colour, linewidth=1.6)
    axes.plot(
        factor * error.mean, place, mark.marker, color=mark.colour, markerfacecolor=face, markersize=6, label=kind(row)
    )


def _name_marks(drawn: Figure, axes: Axes) -> None:
    """Add a legend of the markers above the rows, if there are several."""
    handles, labels = axes.get_legend_handles_labels()
    found = dict(zip(labels, handles, strict=True))
    used = [name for name in MARKS if name in found]
    if len(used) > 1:
        drawn.legend(
            [found[name] for name in used],
            used,
            loc="outside upper left",
            ncols=2 if len(used) > 3 else 3,
            columnspacing=1.2,
        )


def _write(axes: Axes, place: int, words: str) -> None:
    """Write the value at the end of its row."""
    axes.annotate(
        words,
        (1.0, place),
        (7.0, 0.0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        annotation_clip=False,
    )


def _explained(rows: Sequence[Ranked]) -> str:
    seeds, own = seeds_range(rows), any(row.own for row in rows)
    words = f"means of {seeds} seeds, which are the small dots; bars: 95 % interval" if seeds else "one run"
    return words + ("\ncomputed without noise, for the owner of the records only" if own else "")


PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # so that a line behind a word does not cross it


def plan_figure(plan: PlanReport) -> Figure:
    """Return the figure of a plan: noise against the budget and, if updates are charged, against rounds."""
    with rc_context(STYLE):
        panels = 2 if plan.rounds_options else 1
        drawn = Figure(figsize=(4.8 * panels, 4.0), layout="constrained")
        left, *right = drawn.subplots(1, panels, squeeze=False)[0]
        _budgets(left, plan)
        for axes in right:
            _paces(axes, plan)
        label_lines(drawn, right)
    return drawn


def _budgets(axes: Axes, plan: PlanReport) -> None:
    rows = plan.budgets
    epsilon, noise = [row.total_epsilon for row in rows], [row.noise_to_signal for row in rows]
    axes.semilogx(epsilon, noise, "-o", color=COLOURS[0], markersize=4)
    log_axis(axes)
    for row in rows:
        if row.chosen:
            _mark(axes, row.total_epsilon, row.noise_to_signal)
    low, high = min(noise) / 2.0, max(noise) * 2.0
    axes.set_ylim(low, high)
    lowest = low * (high / low) ** 0.06  # below it there is no room for a word over the axis
    for limit, words in plan.verdict_bands:
        if lowest < limit < high:
            axes.axhline(limit, color=PALE, linewidth=0.8, linestyle=":")
            axes.text(max(epsilon), limit * 0.97, words, ha="right", va="top", color=GREY, fontsize=8, bbox=PAPER)
    axes.set_xticks(epsilon, [f"{value:g}" for value in epsilon], minor=False)
    axes.minorticks_off()
    heading(axes, "What a budget buys")
    axes.set_xlabel(f"total ε, all rounds together, at δ = {plan.part.plans[0].delta:g}")
    axes.set_ylabel("noise over signal of the model, ν (ratio)")


def _paces(axes: Axes, plan: PlanReport) -> None:
    rows = plan.rounds_options
    for i, updates in enumerate(sorted({row.local_updates for row in rows})):
        mine = [row for row in rows if row.local_updates == updates]
        rounds, noise = [row.rounds for row in mine], [row.agent_noise for row in mine]
        axes.plot(rounds, noise, marker="o", markersize=4, label=f"E = {updates}", **look(i))
    for row in rows:
        if row.chosen:
            _mark(axes, row.rounds, row.agent_noise)
    axes.set_ylim(bottom=0.0)
    heading(axes, "What rounds and local updates E cost")
    axes.set_xlabel("rounds of the whole run")
    axes.set_ylabel("noise of an update over its largest gradient (ratio)")


def _mark(axes: Axes, x: float, y: float) -> None:
    """Mark the chosen plan with a ring."""
    axes.plot(x, y, "o", markerfacecolor="none", markeredgecolor="black", markeredgewidth=1.4, markersize=10)
    axes.annotate("this plan", (x, y), (-7, -9), textcoords="offset points", ha="right", va="top", bbox=PAPER)


UNIT = "parameter units (same as w)"
IMAGES = 10  # classes in a row
FEATURES = 20  # in a list
PANELS = 2  # classes beside each other
ALMOST_ALL = 99.5  # percent of the values within the colours' range
LETTERS = 17  # of a caption, to an inch


class Weights(NamedTuple):
    """The arrays of an upload figure."""

    clean: Array  # [J, K]  z without noise
    noisy: Array  # [J, K]  z as sent
    model: Array  # [J, K]  w
    features: tuple[str, ...]  # J names
    classes: tuple[str, ...]  # K names; "" for the only output


def sent_figure(weights: Weights, image: tuple[int, int] | None, title: str, caption: str) -> Figure:
    """Return the figure of an upload: an image for each class if features are pixels, else dots.

    Parameters
    ----------
    weights
        The arrays.
    image
        Rows and columns of an image; None: features are not pixels.
    title, caption
        Text above and below.
    """
    with rc_context(STYLE):
        drawn = _images(weights, image) if image else _dots(weights)
        shown = min(len(weights.classes), IMAGES if image else PANELS)
        some = (
            f" The first {shown} of {len(weights.classes)} classes are shown." if shown < len(weights.classes) else ""
        )
        drawn.suptitle(title, x=0.01, ha="left", fontweight="bold")
        words = "\n".join(textwrap.wrap(caption + some, int(LETTERS * drawn.get_figwidth())))
        drawn.supxlabel(words, x=0.01, ha="left", fontsize=8)
    return drawn


def _images(weights: Weights, image: tuple[int, int]) -> Figure:
    shown = min(len(weights.classes), IMAGES)
    rows = {
        "z without\nnoise": weights.clean,
        "noise in it": weights.noisy - weights.clean,
        "z as sent": weights.noisy,
        "model w": weights.model,
    }
    drawn = Figure(figsize=(1.7 + 0.8 * shown, 4.3), layout="constrained")
    grid = drawn.subplots(len(rows), shown, squeeze=False)
    sent, model = _limit(weights.clean, weights.noisy), _limit(weights.model)
    for i, (name, values) in enumerate(rows.items()):
        for k in range(shown):
            pixels = values[: image[0] * image[1], k].reshape(image)
            _image(grid[i, k], pixels, model if name == "model w" else sent)
            grid[0, k].set_title(f"class {weights.classes[k]}" if k == 0 else weights.classes[k], fontsize=9)
        grid[i, 0].set_ylabel(name, rotation=0, ha="right", va="center")
    for axes, label in ((grid[:3], UNIT), (grid[3:], "units of w")):
        drawn.colorbar(axes[0, 0].images[0], ax=list(axes.flat), label=label, extend="both", aspect=10 * len(axes))
    return drawn


def _image(axes: Axes, pixels: Array, limit: float) -> None:
    axes.imshow(pixels, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _limit(*values: Array) -> float:
    """Return the limit of the symmetric colour scale."""
    return max(float(np.percentile(np.abs(one), ALMOST_ALL)) for one in values) or 1.0


def _dots(weights: Weights) -> Figure:
    """Draw the features with the largest weights: what is sent for each class, and the model beside it."""
    largest = np.maximum(np.abs(weights.clean), np.abs(weights.noisy)).max(axis=1)
    chosen = np.argsort(-largest, kind="stable")[:FEATURES][::-1]
    shown = min(len(weights.classes), PANELS)
    drawn = Figure(figsize=(2.6 + 3.6 * shown, 1.8 + 0.24 * len(chosen)), layout="constrained")
    panels = drawn.subplots(1, 2 * shown, squeeze=False, sharey=True, width_ratios=[3, 2] * shown)[0]
    for k in range(shown):
        _sent_dots(panels[2 * k], weights.clean[chosen, k], weights.noisy[chosen, k])
        panels[2 * k + 1].plot(weights.model[chosen, k], np.arange(len(chosen)), "o", color=COLOURS[6], markersize=5)
        name = f"class {weights.classes[k]}: " if weights.classes[k] else ""
        heading(panels[2 * k], f"{name}z")
        heading(panels[2 * k + 1], "model w")
    for axes in panels:
        axes.axvline(0.0, color=PALE, linewidth=0.8, zorder=1)
        axes.set_xlabel("parameter units")
    panels[0].set_yticks(range(len(chosen)), [_cut(weights.features[j]) for j in chosen])
    every = len(weights.features)
    panels[0].set_ylabel(f"features, the {len(chosen)} largest of {every}" if len(chosen) < every else "features")
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


def _sent_dots(axes: Axes, clean: Array, noisy: Array) -> None:
    """Draw z without noise and as sent; the line between the two dots of a feature is the noise."""
    places = np.arange(len(clean))
    axes.hlines(places, clean, noisy, color=PALE, linewidth=1.2)
    axes.plot(clean, places, "o", color=COLOURS[0], markerfacecolor="white", markersize=6, label="z without noise")
    axes.plot(noisy, places, "o", color=COLOURS[1], markersize=5, label="z as sent")


def _cut(name: str) -> str:
    return textwrap.shorten(name, 28, placeholder="…") if " " in name else name if len(name) <= 28 else f"{name[:27]}…"
