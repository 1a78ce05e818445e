"""The figure of private evaluations: the error against rounds, with standard errors of noise and sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taciturn.reporting.evaluation_tables import REACH, evaluation_points
from taciturn.reporting.figures.style import GREY, STYLE, heading, label_lines, look, round_ticks
from taciturn.runs.private_quality import Estimate, PrivateRegression
from taciturn.runs.records import EvaluationRow

SIZE = (6.4, 3.4)  # inches


def evaluation_figure(rows: Sequence[EvaluationRow]) -> Figure:
    """Return the curve of the private error with 95 % intervals: thick for the noise alone, thin with sampling."""
    regression = any(isinstance(row.quality, PrivateRegression) for row in rows)
    with rc_context(STYLE):
        drawn = Figure(figsize=SIZE, layout="constrained")
        axes = drawn.subplots()
        points = evaluation_points(rows)
        for number, (label, own) in enumerate(points.items()):
            _draw(axes, label, own, number, len(points), 1.0 if regression else 100.0)
        heading(axes, "Error on held-out records, with noise")
        axes.set_xlabel("round")
        if points:
            axes.set_xticks(round_ticks(max(t for own in points.values() for t, _ in own)))
        axes.set_ylabel("root mean square, in the label's unit" if regression else "% of the held-out records")
        axes.set_ylim(bottom=0.0)
        if not points:
            axes.text(0.5, 0.5, "too few held-out records", ha="center", transform=axes.transAxes, color=GREY)
        elif len(points) > 1:
            label_lines(drawn)
    return drawn


def _draw(axes: Axes, label: str, points: list[tuple[int, Estimate]], number: int, of: int, factor: float) -> None:
    style = look(number)
    rounds = np.array([t for t, _ in points], float)
    values, noise, both = (
        factor * np.array([getattr(one, name) for _, one in points], float) for name in ("value", "noise", "error")
    )
    span = max(1.0, float(np.ptp(rounds)))
    places = rounds + 0.008 * span * (number - (of - 1) / 2.0)  # bars of several settings do not cover each other
    axes.plot(places, values, marker="o", markersize=4, linewidth=1.4, label=label, **style)
    for spread, width, alpha in ((both, 1.2, 0.9), (noise, 3.6, 0.4)):
        low = np.maximum(0.0, values - REACH * spread)
        axes.vlines(places, low, values + REACH * spread, color=style["color"], linewidth=width, alpha=alpha)


def text_alternative(rows: Sequence[EvaluationRow]) -> str:
    """Return a text alternative to the figure: every point with its standard errors."""
    points: Mapping[str, list[tuple[int, Estimate]]] = evaluation_points(rows)
    return " ".join(
        f"{label}: "
        + "; ".join(f"{one.value:.4g} in round {t}, standard errors {one.noise:.2g} of the noise and "
                    f"{one.sampling or 0.0:.2g} of sampling" for t, one in own)
        + "."
        for label, own in points.items()
    )  # fmt: skip
