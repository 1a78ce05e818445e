"""Panels in rows and columns: a row for each data set, a column for each epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from tacit.types import Array
from tacit.views.line_names import add_legend, label_lines
from tacit.views.reproduction.groups import Group, Summary, data_name, describe
from tacit.views.style import log_axis

SETTLED = 0.05  # the share of the rounds after which the range of a testing error is taken
POINTS = 120  # of a band, at most: a panel is about as many points wide
STEPS = (1, 2, 5, 10)  # between ticks


class Measure(NamedTuple):
    """What is drawn against the rounds: a value of the curves, its unit, its factor."""

    value: str
    unit: str
    factor: float = 1.0
    logarithmic: bool = False

    def of(self, group: Group, name: str | None = None) -> Array:
        """The values of a group's curve, one for each round; what is missing, or has no logarithm, is nan."""
        read = (group.get("curve") or {}).get(name or self.value) or ()
        found = self.factor * np.array([math.nan if v is None else float(v) for v in read])
        return np.where(found > 0.0, found, math.nan) if self.logarithmic else found


class Line(NamedTuple):
    """One line of a panel."""

    label: str
    group: Group
    colour: str
    dash: str = "-"
    width: float = 1.5
    band: bool = True


class Row(NamedTuple):
    """The panels of a data set: their lines by column."""

    summary: Summary
    panels: dict[int, list[Line]]


Lines = Callable[[Summary, float], list[Line]]  # the lines of a data set's panel at an epsilon


def grid(
    title: str, summaries: Sequence[Summary], columns: Sequence[float], lines: Lines, measure: Measure
) -> Figure | None:
    """The figure, or none where there is nothing to draw; data sets and epsilons without a line are left out."""
    rows = [_row(summary, columns, lines, measure) for summary in summaries]
    rows = [row for row in rows if row.panels]
    kept = sorted({j for row in rows for j in row.panels})
    if not kept:
        return None
    size = (max(1.4 + 1.8 * len(kept), 7.2), 0.9 + 2.0 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(len(rows), len(kept), squeeze=False, sharey="row")
    head(figure, title, [row.summary for row in rows])
    drawn = [
        _draw_row(row, dict(zip(kept, axes, strict=True)), columns, measure)
        for row, axes in zip(rows, places, strict=True)
    ]
    _name(figure, drawn)
    return figure


def _name(figure: Figure, rows: Sequence[Sequence[Axes]]) -> None:
    """Name the lines once in every row, in its last panel that has all of them; where none has, in a legend."""
    complete = [[axes for axes in row if _labels([axes]) == _labels(row)] for row in rows]
    if all(complete):
        label_lines(figure, [axes[-1] for axes in complete])
    else:
        add_legend(figure)


def _labels(panels: Sequence[Axes]) -> set[str]:
    return {str(line.get_label()) for axes in panels for line in axes.lines}


def head(figure: Figure, title: str, summaries: Sequence[Summary]) -> None:
    """A figure's title, with the data sets, rounds and seeds below."""
    figure.suptitle(f"{title}\n{describe(summaries)}", fontsize="medium")


def _draw_row(row: Row, places: Mapping[int, Axes], columns: Sequence[float], measure: Measure) -> list[Axes]:
    for j in places.keys() - row.panels.keys():
        places[j].remove()
    for j, lines in row.panels.items():
        _panel(places[j], lines, measure, f"ε̄ = {columns[j]:g}")
    drawn = [places[j] for j in row.panels]
    _axis(drawn, row, measure)
    return drawn


def _row(summary: Summary, columns: Sequence[float], lines: Lines, measure: Measure) -> Row:
    found = {
        j: [line for line in lines(summary, epsilon) if np.isfinite(measure.of(line.group)).any()]
        for j, epsilon in enumerate(columns)
    }
    return Row(summary, {j: drawable for j, drawable in found.items() if drawable})


def _panel(axes: Axes, lines: Sequence[Line], measure: Measure, title: str) -> None:
    for line in lines:
        _draw(axes, line, measure)
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("round")
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=3, integer=True, steps=STEPS))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _draw(axes: Axes, line: Line, measure: Measure) -> None:
    rounds, mean = np.array(line.group["curve"]["round"], float), measure.of(line.group)
    marker = "o" if len(rounds) == 1 else ""
    style: dict[str, Any] = {"color": line.colour, "linestyle": line.dash, "linewidth": line.width, "marker": marker}
    axes.plot(rounds, mean, label=line.label, **style)
    low, high = measure.of(line.group, "low"), measure.of(line.group, "high")
    if line.band and line.group["seeds"] > 1 and len(low) == len(high) == len(rounds):
        seen = _seen(rounds)
        axes.fill_between(rounds[seen], low[seen], high[seen], color=line.colour, alpha=0.18, linewidth=0)


def _seen(rounds: Array) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The indices of the first and the last round and of those between that a picture can tell apart."""
    cells = np.floor(POINTS * (rounds - rounds[0]) / max(rounds[-1] - rounds[0], 1.0))
    return np.flatnonzero(np.diff(cells, prepend=-1.0) > 0)


def _axis(panels: Sequence[Axes], row: Row, measure: Measure) -> None:
    """The vertical axis all panels of a row share, with the data set's name at the first."""
    panels[0].set_ylabel(f"{data_name(row.summary)}\n{measure.unit}")
    panels[0].tick_params(labelleft=True)
    if measure.logarithmic:
        log_axis(panels[0])
        return
    low, high = _span([line for lines in row.panels.values() for line in lines], measure)
    margin = 0.06 * (high - low) or 1.0
    panels[0].yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    panels[0].set_ylim(max(low - margin, 0.0), min(high + margin, 100.0))


def _span(lines: Sequence[Line], measure: Measure) -> tuple[float, float]:
    """The range of the values once the first rounds, which begin at the guess of a model without training, are over."""
    settled = []
    for line in lines:
        rounds = np.array(line.group["curve"]["round"], float)
        for name in (measure.value, "low", "high") if line.band else (measure.value,):
            found = measure.of(line.group, name)
            if len(found) == len(rounds):
                settled.append(found[rounds >= min(SETTLED * rounds[-1], rounds[-1])])
    every = np.concatenate(settled)
    return float(np.nanmin(every)), float(np.nanmax(every))
