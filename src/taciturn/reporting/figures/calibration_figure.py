"""The reliability diagram: what a model predicts against what is observed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, PercentFormatter

from taciturn.errors import InputError
from taciturn.reporting.figures.style import COLOURS, GREY, PALE, STYLE
from taciturn.reporting.quality_tables import drawn_probability
from taciturn.runs.quality import ClassificationQuality, ReliabilityBin

PANEL, HEIGHT = 3.4, 5.2  # inches: width of a panel, height of all
LEFT, RIGHT, ABOVE, BELOW, BETWEEN = 0.8, 0.2, 0.55, 0.95, 0.35  # inches around and between panels
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def reliability_figure(models: Mapping[str, ClassificationQuality]) -> Figure:
    """Return a panel for each model: observed against predicted shares in bins, above a histogram of predictions.

    Parameters
    ----------
    models
        The quality of models by their names; an empty name gives a panel without one.

    Raises
    ------
    InputError
        If no model has probabilities.
    """
    shown = {name: quality for name, quality in models.items() if quality.reliability}
    if not shown:
        raise InputError("the model's loss has no probabilities (softmax has): there is no reliability to draw")
    with rc_context(STYLE):
        width = LEFT + PANEL * len(shown) + BETWEEN * (len(shown) - 1) + RIGHT
        drawn = Figure(figsize=(width, HEIGHT))
        grid = drawn.subplots(2, len(shown), sharex=True, sharey="row", squeeze=False, height_ratios=[4, 1])
        drawn.subplots_adjust(  # fixed: to measure what is written takes most of the time
            LEFT / width, BELOW / HEIGHT, 1.0 - RIGHT / width, 1.0 - ABOVE / HEIGHT, BETWEEN / PANEL, hspace=0.1
        )
        for place, (name, quality) in enumerate(shown.items()):
            bins = [one for one in quality.reliability or () if one.records]
            _draw_shares(grid[0, place], bins)
            _draw_counts(grid[1, place], bins)
            _name(grid[0, place], name or "Reliability", quality)
            grid[1, place].set_xlabel(f"predicted {drawn_probability(quality)}")
        grid[0, 0].set_ylabel("share for which it came true")
        grid[1, 0].set_ylabel("records")
        note = "on the diagonal: as often as predicted\nbars: 95 % intervals (Wilson)"
        drawn.text(0.08 / width, 0.08 / HEIGHT, note, fontsize=8, color=GREY)
    return drawn


def text_alternative(models: Mapping[str, ClassificationQuality]) -> str:
    """Return a text alternative to the diagram: predicted and observed share of every bin."""
    return " ".join(
        f"{name}: " + "; ".join(f"predicted {one.predicted:.2f}, observed {one.observed:.2f}" for one in bins) + "."
        for name, quality in models.items()
        if (bins := [one for one in quality.reliability or () if one.records])
    )


def _name(axes: Axes, name: str, quality: ClassificationQuality) -> None:
    """Write the name of a panel, and below it the calibration error."""
    axes.set_title(name, loc="left", fontweight="bold", pad=19.0)
    error, chance = 100.0 * (quality.calibration_error or 0.0), 100.0 * (quality.calibration_by_chance or 0.0)
    words = f"calibration error {error:.1f} %, by chance {chance:.1f} %"
    axes.annotate(words, (0.0, 1.0), (0.0, 6.0), xycoords="axes fraction", textcoords="offset points", color=GREY)


def _draw_shares(axes: Axes, bins: list[ReliabilityBin]) -> None:
    axes.plot([0.0, 1.0], [0.0, 1.0], color=PALE, linewidth=1.0, linestyle="--")
    predicted, observed = np.array([(one.predicted, one.observed) for one in bins], float).T
    lows, highs = np.array([one.interval for one in bins], float).T
    axes.vlines(predicted, lows, highs, color=COLOURS[0], linewidth=1.4, alpha=0.6)
    axes.plot(predicted, observed, "o", color=COLOURS[0], markersize=5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(TICKS))
        axis.set_major_formatter(PercentFormatter(1.0))


def _draw_counts(axes: Axes, bins: list[ReliabilityBin]) -> None:
    middles, widths = [(one.low + one.high) / 2 for one in bins], [0.94 * (one.high - one.low) for one in bins]
    axes.bar(middles, [one.records for one in bins], widths, color=COLOURS[0], alpha=0.35)
