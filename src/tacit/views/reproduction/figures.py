"""The paper's four figures, drawn from the summaries of a reproduction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tacit.errors import InputError
from tacit.views.line_names import label_lines
from tacit.views.reproduction.groups import (
    ALGORITHMS,
    PENALTY_NAMES,
    Summary,
    data_name,
    epsilons,
    find,
    in_order,
)
from tacit.views.reproduction.panels import STEPS, Line, Measure, grid, head
from tacit.views.reproduction.published import PUBLISHED, ROUNDS
from tacit.views.style import COLOURS, DASHES, GREY, STYLE, save

ERROR = Measure("mean", "test error, %", 100.0)
NOISE = Measure("noise", "mean |ξ|, gradient\n(OutP: parameter) units", logarithmic=True)
COLOUR = {"outp": COLOURS[1], "objp": COLOURS[0], "objpm": COLOURS[2]}
MARKER = {"outp": "s", "objp": "o", "objpm": "^"}
NO_NOISE = "no noise"


def testing_errors(summaries: Sequence[Summary]) -> Figure | None:
    """Figure 1: testing errors of the three algorithms against rounds, with the 20/80 band over the seeds."""

    def lines(summary: Summary, epsilon: float) -> list[Line]:
        found = _algorithms(summary, epsilon)
        free = find(summary, "objpm", math.inf)
        return found + ([Line(NO_NOISE, free, GREY, "--", 0.9, band=False)] if found and free else [])

    title = "Testing errors: mean of the seeds, with their 20 to 80 % band"
    return grid(title, summaries, epsilons(summaries), lines, ERROR)


def noise(summaries: Sequence[Summary]) -> Figure | None:
    """Figure 3: average noise magnitudes at the epsilons 0.05 and 1."""

    def lines(summary: Summary, epsilon: float) -> list[Line]:
        found = [line._replace(band=False) for line in _algorithms(summary, epsilon)]
        return [line._replace(dash="--") if line.label == ALGORITHMS["objpm"] else line for line in found]  # on ObjP's

    columns = [epsilon for epsilon in epsilons(summaries) if epsilon in {0.05, 1.0}]
    title = "Average noise magnitude: on gradients (ObjP, ObjPM), on parameters (OutP)"
    return grid(title, summaries, columns, lines, NOISE)


def penalties(summaries: Sequence[Summary]) -> Figure | None:
    """Figure 4: testing errors of OutP under the five penalties, without bands; none where only one of them was run."""

    def lines(summary: Summary, epsilon: float) -> list[Line]:
        looks = zip(PENALTY_NAMES.items(), COLOURS, (*DASHES, "-"), strict=False)
        found = [(find(summary, "outp", epsilon, p), name, colour, dash) for (p, name), colour, dash in looks]
        drawn = [Line(name, group, colour, dash, 1.2, band=False) for group, name, colour, dash in found if group]
        return drawn if len(drawn) > 1 else []

    outp = [{**s, "groups": [g for g in s["groups"] if g["algorithm"] == "outp"]} for s in summaries]
    return grid("Testing errors of OutP by penalty: mean of the seeds", outp, epsilons(outp), lines, ERROR)


def best_errors(summaries: Sequence[Summary]) -> Figure | None:
    """Figure 2: the best final testing error of the seeds against epsilon; hollow: the paper's."""
    shown = [summary for summary in summaries if any(_best(summary, algorithm) for algorithm in ALGORITHMS)]
    if not shown:
        return None
    figure = Figure(figsize=(3.4 + 2.6 * len(shown), 3.6), layout="constrained")
    for axes, summary in zip(figure.subplots(1, len(shown), squeeze=False).flat, shown, strict=True):
        _best_panel(axes, summary)
    head(figure, f"Best testing error among the seeds; hollow: the paper, {ROUNDS:,} rounds", shown)
    label_lines(figure, legend=True)
    return figure


def _algorithms(summary: Summary, epsilon: float) -> list[Line]:
    found = ((algorithm, find(summary, algorithm, epsilon)) for algorithm in ALGORITHMS)
    return [Line(ALGORITHMS[algorithm], group, COLOUR[algorithm]) for algorithm, group in found if group]


def _best(summary: Summary, algorithm: str) -> list[tuple[float, float]]:
    """The points of an algorithm's line: epsilon and the best error in %."""
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
    """One of the paper's figures, its data sets in the paper's order; none where there is nothing to draw."""
    if number not in FIGURES:
        raise InputError(f"no figure {number}: there are {', '.join(map(str, FIGURES))}")
    with rc_context(STYLE):
        return FIGURES[number][1](in_order(summaries))


def draw(summaries: Sequence[Summary], folder: Path, figures: Sequence[int] = (1, 2, 3, 4)) -> list[Path]:
    """Write the figures for which there is data as PNG and SVG; the same summaries give the same bytes."""
    made = [(number, figure(summaries, number)) for number in figures]
    written = [(drawn, folder / f"{FIGURES[n][0]}.{end}") for n, drawn in made if drawn for end in ("png", "svg")]
    for drawn, path in written:
        save(drawn, path)
    return [path for _, path in written]
