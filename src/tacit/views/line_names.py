"""What lines are called, said at their right ends: apart from each other, beside the panel, within the figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from tacit.types import Array
from tacit.views.style import ink

SIZE = 8.0  # of a name, in points
APART = 1.35 * SIZE  # between the middles of two names
GAP = 7.0  # from the panel to the names
NEAR = 1.5  # from a leader to its name
FOOT = 0.6 * SIZE  # from the panel's foot to the lowest: below it are the numbers of the axis
LONGEST = 26  # letters that fit beside a panel
MOST = 8  # names that an eye finds its way among


class End(NamedTuple):
    """The last point of a line, and the name that belongs there."""

    line: Line2D
    point: tuple[float, float]  # in the line's own coordinates
    name: Annotation


def label_lines(drawn: Figure, panels: Iterable[Axes] | None = None, legend: bool = False) -> None:
    """Name every line of the panels at its right end, in its colour, with a thin leader to where the name has room.

    Where names are many or long, numbers stand at the ends and one legend below says what they mean; `legend` asks
    for one in any case, for what is not a line. Call it last: it lays the figure out for good.
    """
    chosen = list(drawn.axes if panels is None else panels)
    points = {axes: [(line, point) for line in axes.lines if (point := _last(line))] for axes in chosen}
    words = shown_names([str(line.get_label()) for found in points.values() for line, _ in found])
    ends = {axes: [_write(axes, line, point, words) for line, point in found] for axes, found in points.items()}
    numbers = {label: word for label, word in words.items() if word != label}
    if legend or numbers:
        add_legend(drawn, numbers, words.keys() - numbers.keys())
    _lay_out(drawn)
    full = [axes for axes, found in ends.items() if APART * (len(found) - 1) > _room(axes)]
    if full:
        for end in (end for axes in full for end in ends.pop(axes)):
            end.name.remove()
        drawn.legends.clear()
        add_legend(drawn, numbers)
        _lay_out(drawn)
    for axes, found in ends.items():
        _put_apart(axes, found)
    drawn.set_layout_engine("none")  # what stands at measured heights is not to be moved


def shown_names(labels: Sequence[str]) -> dict[str, str]:
    """What is written at the ends of lines so labelled: the labels, or numbers where they are many or long."""
    different = list(dict.fromkeys(labels))
    plain = len(different) <= MOST and all(len(label) <= LONGEST for label in different)
    return {label: label if plain else str(i) for i, label in enumerate(different, 1)}


def add_legend(
    drawn: Figure, numbers: Mapping[str, str] = MappingProxyType({}), left_out: Set[str] = frozenset()
) -> None:
    """One legend below all panels, with every label once, behind the number that stands for it."""
    pairs = [pair for axes in drawn.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs) if label not in left_out}
    labels = list(dict.fromkeys(label for _, label in pairs if label in handles))
    if labels:
        written = [f"{numbers[label]}  {label}" if label in numbers else label for label in labels]
        columns = max(1, min(5, len(labels), int(15 * drawn.get_figwidth() / (max(map(len, written)) + 8))))
        shown = [handles[label] for label in labels]
        drawn.legend(shown, written, loc="outside lower center", ncols=columns)


def places(ends: Array, apart: float, height: float) -> Array:
    """Where names go that belong at `ends` [n], rising: as near as can be in [0, height], `apart` between any two."""
    steps = apart * np.arange(len(ends))
    blocks: list[tuple[float, int]] = []  # names that touch move together, to the mean of where they belong
    for end in ends - steps:
        total, count = float(end), 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            below, more = blocks.pop()
            total, count = total + below, count + more
        blocks.append((total, count))
    found = np.repeat([total / count for total, count in blocks], [count for _, count in blocks])
    placed: Array = np.clip(found, 0.0, height - steps[-1]) + steps
    return placed


def _last(line: Line2D) -> tuple[float, float] | None:
    """The last point of a line that has a label and something to see."""
    points = np.asarray(line.get_xydata(), float)
    there = points[np.isfinite(points).all(axis=1)]
    nameless = str(line.get_label()).startswith("_") or line.get_linestyle() == "None"
    return None if nameless or not len(there) else (float(there[-1, 0]), float(there[-1, 1]))


def _write(axes: Axes, line: Line2D, point: tuple[float, float], words: Mapping[str, str]) -> End:
    name = axes.annotate(
        words[str(line.get_label())],
        (1.0, 0.0),
        (GAP, 0.0),
        xycoords="axes fraction",
        textcoords="offset points",
        va="center",
        fontsize=SIZE,
        color=ink(line.get_color()),
        annotation_clip=False,
    )
    return End(line, point, name)


def _lay_out(drawn: Figure) -> None:
    engine = drawn.get_layout_engine()
    if engine is not None:
        engine.execute(drawn)


def _put_apart(axes: Axes, ends: Sequence[End]) -> None:
    """Move names up and down until none touches another, and draw their leaders."""
    if not ends:
        return
    room, points, panel = _room(axes), 72.0 / axes.figure.dpi, axes.bbox
    found = np.array([end.line.get_transform().transform(end.point) for end in ends])
    tips = np.clip(found, panel.min, panel.max)  # a line may leave its panel
    heights = np.clip(points * (tips[:, 1] - panel.y0) - FOOT, 0.0, room)
    order = np.argsort(heights, kind="stable")
    for i, place in zip(order, places(heights[order], APART, room), strict=True):
        ends[i].name.xyann = (GAP, FOOT + float(place))
        foot = (panel.x1 + (GAP - NEAR) / points, panel.y0 + (FOOT + float(place)) / points)
        _lead(axes, ends[i].line, np.array([tips[i], foot]))


def _lead(axes: Axes, line: Line2D, pixels: Array) -> None:
    """A thin dotted line from a line's end to its name; in shares of the figure, which hold at any resolution."""
    drawn = axes.figure
    x, y = drawn.transFigure.inverted().transform(pixels).T
    leader = Line2D(x, y, color=line.get_color(), linewidth=0.7, linestyle=(0, (1, 2)), transform=drawn.transFigure)
    drawn.add_artist(leader)


def _room(axes: Axes) -> float:
    """From the middle of the lowest name beside a panel to that of the highest, in points."""
    return float(72.0 * axes.bbox.height / axes.figure.dpi) - FOOT
