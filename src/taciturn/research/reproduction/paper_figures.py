"""The paper's four figures, drawn from the summaries of a reproduction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, StrMethodFormatter

from taciturn.errors import InputError
from taciturn.reporting.figures.style import COLOURS, DASHES, GREY, STYLE, add_legend, label_lines, log_axis, save
from taciturn.research.reproduction.published import (
    ALGORITHMS,
    PENALTY_NAMES,
    PUBLISHED,
    ROUNDS,
    CurveName,
    Group,
    Summary,
    data_name,
    describe,
    epsilons,
    find,
    in_paper_order,
)
from taciturn.types import Array

SETTLED = 0.05  # the share of the rounds after which the range of a testing error is taken
POINTS = 120  # of a band, at most: a panel is about as many points wide
STEPS = (1, 2, 5, 10)  # between ticks


class Measure(NamedTuple):
    """A quantity that is drawn against rounds: its name in the curves, its unit and its factor."""

    value: CurveName
    unit: str
    factor: float = 1.0
    logarithmic: bool = False

    def of(self, group: Group, name: CurveName | None = None) -> Array:
        """Return the values of a group's curve, one for each round; missing and non-positive values are NaN."""
        read = group["curve"].get(name or self.value) or ()
        found = self.factor * np.array([math.nan if v is None else float(v) for v in read])
        return np.where(found > 0.0, found, math.nan) if self.logarithmic else found


class PanelLine(NamedTuple):
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
    panels: dict[int, list[PanelLine]]


Lines = Callable[[Summary, float], list[PanelLine]]  # the lines of a data set's panel at an epsilon


def grid(
    title: str, summaries: Sequence[Summary], columns: Sequence[float], lines: Lines, measure: Measure
) -> Figure | None:
    """Draw rows of panels, without data sets and epsilons that have no lines; None if there is nothing to draw."""
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
    """Label the lines once in every row, in its last panel that has all of them, or else in a legend."""
    complete = [[axes for axes in row if _labels([axes]) == _labels(row)] for row in rows]
    if all(complete):
        label_lines(figure, [axes[-1] for axes in complete])
    else:
        add_legend(figure)


def _labels(panels: Sequence[Axes]) -> set[str]:
    return {str(line.get_label()) for axes in panels for line in axes.lines}


def head(figure: Figure, title: str, summaries: Sequence[Summary]) -> None:
    """Write a figure's title, with data sets, rounds and seeds below it."""
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


def _panel(axes: Axes, lines: Sequence[PanelLine], measure: Measure, title: str) -> None:
    for line in lines:
        _draw(axes, line, measure)
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("round")
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=3, integer=True, steps=STEPS))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _draw(axes: Axes, line: PanelLine, measure: Measure) -> None:
    rounds, mean = np.array(line.group["curve"]["round"], float), measure.of(line.group)
    marker = "o" if len(rounds) == 1 else ""
    style: dict[str, Any] = {"color": line.colour, "linestyle": line.dash, "linewidth": line.width, "marker": marker}
    axes.plot(rounds, mean, label=line.label, **style)
    low, high = measure.of(line.group, "low"), measure.of(line.group, "high")
    if line.band and line.group["seeds"] > 1 and len(low) == len(high) == len(rounds):
        seen = _seen(rounds)
        axes.fill_between(rounds[seen], low[seen], high[seen], color=line.colour, alpha=0.18, linewidth=0)


def _seen(rounds: Array) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the indices of the first and last round and of those between that are distinguishable in a figure."""
    cells = np.floor(POINTS * (rounds - rounds[0]) / max(rounds[-1] - rounds[0], 1.0))
    return np.flatnonzero(np.diff(cells, prepend=-1.0) > 0)


def _axis(panels: Sequence[Axes], row: Row, measure: Measure) -> None:
    """Set the vertical axis that all panels of a row share, and write the data set's name at the first."""
    panels[0].set_ylabel(f"{data_name(row.summary)}\n{measure.unit}")
    panels[0].tick_params(labelleft=True)
    if measure.logarithmic:
        log_axis(panels[0])
        return
    low, high = _span([line for lines in row.panels.values() for line in lines], measure)
    margin = 0.06 * (high - low) or 1.0
    panels[0].yaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    panels[0].set_ylim(max(low - margin, 0.0), min(high + margin, 100.0))


def _span(lines: Sequence[PanelLine], measure: Measure) -> tuple[float, float]:
    """Return the range of the values after the first rounds, which start from an untrained model."""
    settled = []
    for line in lines:
        rounds = np.array(line.group["curve"]["round"], float)
        names: tuple[CurveName, ...] = (measure.value, "low", "high") if line.band else (measure.value,)
        for name in names:
            found = measure.of(line.group, name)
            if len(found) == len(rounds):
                settled.append(found[rounds >= min(SETTLED * rounds[-1], rounds[-1])])
    every = np.concatenate(settled)
    return float(np.nanmin(every)), float(np.nanmax(every))


ERROR = Measure("mean", "test error, %", 100.0)
NOISE = Measure("noise", "mean |ξ|, gradient\n(OutP: parameter) units", logarithmic=True)
COLOUR = {"outp": COLOURS[1], "objp": COLOURS[0], "objpm": COLOURS[2]}
MARKER = {"outp": "s", "objp": "o", "objpm": "^"}
NO_NOISE = "no noise"


def testing_errors(summaries: Sequence[Summary]) -> Figure | None:
    """Draw figure 1: testing errors of the three algorithms against rounds, with the 20/80 band over the seeds."""

    def lines(summary: Summary, epsilon: float) -> list[PanelLine]:
        found = _algorithms(summary, epsilon)
        free = find(summary, "objpm", math.inf)
        return found + ([PanelLine(NO_NOISE, free, GREY, "--", 0.9, band=False)] if found and free else [])

    title = "Testing errors: mean of the seeds, with their 20 to 80 % band"
    return grid(title, summaries, epsilons(summaries), lines, ERROR)


def noise(summaries: Sequence[Summary]) -> Figure | None:
    """Draw figure 3: average noise magnitudes at the epsilons 0.05 and 1."""

    def lines(summary: Summary, epsilon: float) -> list[PanelLine]:
        found = [line._replace(band=False) for line in _algorithms(summary, epsilon)]
        return [line._replace(dash="--") if line.label == ALGORITHMS["objpm"] else line for line in found]  # on ObjP's

    columns = [epsilon for epsilon in epsilons(summaries) if epsilon in {0.05, 1.0}]
    title = "Average noise magnitude: on gradients (ObjP, ObjPM), on parameters (OutP)"
    return grid(title, summaries, columns, lines, NOISE)


def penalties(summaries: Sequence[Summary]) -> Figure | None:
    """Draw figure 4: testing errors of OutP under the five penalties; None if only one of them was run."""

    def lines(summary: Summary, epsilon: float) -> list[PanelLine]:
        looks = zip(PENALTY_NAMES.items(), COLOURS, (*DASHES, "-"), strict=False)
        found = [(find(summary, "outp", epsilon, p), name, colour, dash) for (p, name), colour, dash in looks]
        drawn = [PanelLine(name, group, colour, dash, 1.2, band=False) for group, name, colour, dash in found if group]
        return drawn if len(drawn) > 1 else []

    outp: list[Summary] = [{**s, "groups": [g for g in s["groups"] if g["algorithm"] == "outp"]} for s in summaries]
    return grid("Testing errors of OutP by penalty: mean of the seeds", outp, epsilons(outp), lines, ERROR)


def best_errors(summaries: Sequence[Summary]) -> Figure | None:
    """Draw figure 2: the best final testing error of the seeds against epsilon; hollow marks are the paper's."""
    shown = [summary for summary in summaries if any(_best(summary, algorithm) for algorithm in ALGORITHMS)]
    if not shown:
        return None
    figure = Figure(figsize=(3.4 + 2.6 * len(shown), 3.6), layout="constrained")
    for axes, summary in zip(figure.subplots(1, len(shown), squeeze=False).flat, shown, strict=True):
        _best_panel(axes, summary)
    head(figure, f"Best testing error among the seeds; hollow: the paper, {ROUNDS:,} rounds", shown)
    label_lines(figure, legend=True)
    return figure


def _algorithms(summary: Summary, epsilon: float) -> list[PanelLine]:
    found = ((algorithm, find(summary, algorithm, epsilon)) for algorithm in ALGORITHMS)
    return [PanelLine(ALGORITHMS[algorithm], group, COLOUR[algorithm]) for algorithm, group in found if group]


def _best(summary: Summary, algorithm: str) -> list[tuple[float, float]]:
    """Return the points of an algorithm's line: epsilon and the best error in %."""
    found = ((epsilon, find(summary, algorithm, epsilon)) for epsilon in epsilons([summary]))
    return [(e, 100.0 * g["final"]["best"]) for e, g in found if g and g["final"]["best"] is not None]


def _best_panel(axes: Axes, summary: Summary) -> None:
    for algorithm, name in ALGORITHMS.items():
        points = _best(summary, algorithm)
        if points:
            axes.plot(*zip(*points, strict=True), color=COLOUR[algorithm], marker=MARKER[algorithm], ms=4, label=name)
    free = find(summary, "objpm", math.inf)
    if free and free["final"]["best"] is not None:
        _level(axes, 100.0 * free["final"]["best"], "--", f"ObjPM, {NO_NOISE}")
    _paper_points(axes, summary)
    _best_axes(axes, summary)


def _best_axes(axes: Axes, summary: Summary) -> None:
    axes.set_title(data_name(summary), fontsize="medium")
    axes.set_xscale("log")
    ticks = epsilons([summary])
    axes.set_xlim(ticks[0] / 1.4, ticks[-1] * 1.4)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel("ε̄, each local update")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=STEPS))
    axes.set_ylabel(ERROR.unit)


def _paper_points(axes: Axes, summary: Summary) -> None:
    for point in PUBLISHED.get(summary["data"], ()):
        if math.isinf(point.epsilon):
            _level(axes, point.error, ":", f"{NO_NOISE}, the paper")
            continue
        colour, name = COLOUR[point.algorithm], f"{ALGORITHMS[point.algorithm]}, the paper"
        style: Mapping[str, Any] = {"mfc": "none", "mec": colour, "ms": 9, "linestyle": "none", "label": name}
        axes.plot([point.epsilon], [point.error], marker=MARKER[point.algorithm], **style)


def _level(axes: Axes, error: float, dash: str, name: str) -> None:
    axes.axhline(error, color=GREY, linestyle=dash, linewidth=0.9, label=name)


FIGURES: Mapping[int, tuple[str, Callable[[Sequence[Summary]], Figure | None]]] = {
    1: ("figure-1-testing-errors", testing_errors),
    2: ("figure-2-best-errors", best_errors),
    3: ("figure-3-noise", noise),
    4: ("figure-4-penalties", penalties),
}


def figure(summaries: Sequence[Summary], number: int) -> Figure | None:
    """Draw one of the paper's figures, with data sets in the paper's order; None if there is nothing to draw."""
    if number not in FIGURES:
        raise InputError(f"no figure {number}: there are {', '.join(map(str, FIGURES))}")
    with rc_context(STYLE):
        return FIGURES[number][1](in_paper_order(summaries))


def draw(summaries: Sequence[Summary], folder: Path, figures: Sequence[int] = (1, 2, 3, 4)) -> list[Path]:
    """Write the figures for which there is data as PNG and SVG; the same summaries give the same bytes."""
    made = [(number, figure(summaries, number)) for number in figures]
    written = [(drawn, folder / f"{FIGURES[n][0]}.{end}") for n, drawn in made if drawn for end in ("png", "svg")]
    for drawn, path in written:
        save(drawn, path)
    return [path for _, path in written]
