"""The picture of a ranking: a row for each algorithm and budget, its mean test error, interval and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.errors import InputError
from tacit.views.intervals import Interval, mean_words
from tacit.views.plots import panels
from tacit.views.ranking import Ranked, repeated
from tacit.views.style import COLOURS, GREY, STYLE, heading

ROW, REST = 0.3, 1.5  # inches: of a row, of everything else
LETTER = 0.075  # inches, of a name
PANEL = 5.4  # inches, with the values beside it
BELOW = 0.26  # rows, from a mean to the dots of its seeds


class Mark(NamedTuple):
    """How rows of one kind are drawn."""

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
    """The rows whose error is known, in their order, the first on top."""
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
    """Which of MARKS a row gets."""
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
    """What the marks mean, above the rows, where there are several."""
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
    """The value at the end of its row."""
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
    seeds, own = repeated(rows), any(row.own for row in rows)
    words = f"means of {seeds} seeds, which are the small dots; bars: 95 % interval" if seeds else "one run"
    return words + ("\ncomputed without noise, for the owner of the records alone" if own else "")
