"""What the lines of a figure are called: at their ends where there is room, in one legend where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tacit.types import Array

SIZE = 8.0  # of a name, in points
APART = 1.15 * SIZE  # between two names
SHIFT = 0.8 * SIZE  # from a line's end to its name, at most


def name_lines(figure: Figure, rows: Sequence[Sequence[Axes]]) -> None:
    """Name the lines once in every row, in the panel where their ends are farthest apart; or all in a legend."""
    figure.draw_without_rendering()
    chosen = [_roomiest(row) for row in rows]
    if all(_shift(axes) <= SHIFT for axes in chosen) and all(_complete(axes, rows) for axes in chosen):
        for axes in chosen:
            _name_ends(axes)
    else:
        add_legend(figure)


def add_legend(figure: Figure, columns: int = 5) -> None:
    """One legend below all panels, with every name once."""
    named = [pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(named)}
    labels = list(dict.fromkeys(label for _, label in named))
    figure.legend([handles[label] for label in labels], labels, loc="outside lower center", ncols=columns)


def places(ends: Array, apart: float) -> Array:
    """Where names go that belong at `ends` [n], rising: as near as they can be with `apart` between any two."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415  every command would wait for it

    steps = apart * np.arange(len(ends))
    return isotonic_regression(ends - steps).x + steps


def _roomiest(row: Sequence[Axes]) -> Axes:
    most = max(len(_ends(axes)) for axes in row)
    return min((axes for axes in row if len(_ends(axes)) == most), key=_shift)


def _complete(axes: Axes, rows: Sequence[Sequence[Axes]]) -> bool:
    row = next(row for row in rows if axes in row)
    return {line.get_label() for line in axes.lines} == {line.get_label() for other in row for line in other.lines}


def _ends(axes: Axes) -> list[tuple[float, Line2D]]:
    """The lines with the height of their last point above the panel's foot, in points, rising."""
    points = 72.0 / axes.figure.dpi
    found = [(points * (axes.transData.transform(_last(line))[1] - axes.bbox.y0), line) for line in axes.lines]
    return sorted(found, key=lambda pair: pair[0])


def _last(line: Line2D) -> Array:
    points = np.asarray(line.get_xydata(), float)
    last: Array = points[np.isfinite(points).all(axis=1)][-1]
    return last


def _shift(axes: Axes) -> float:
    ends = np.array([height for height, _ in _ends(axes)])
    return round(float(np.abs(places(ends, APART) - ends).max()), 1)  # the first panel where several are alike


def _name_ends(axes: Axes) -> None:
    ends = _ends(axes)
    for (height, line), place in zip(ends, places(np.array([height for height, _ in ends]), APART), strict=True):
        x, y = map(float, _last(line))
        axes.annotate(
            str(line.get_label()),
            (x, y),
            (4.0, place - height),
            textcoords="offset points",
            va="center",
            fontsize=SIZE,
            color=line.get_color(),
            annotation_clip=False,
        )
