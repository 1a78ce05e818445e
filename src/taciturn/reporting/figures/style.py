"""Style of all figures: colours, axes, direct labels of lines, and files."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import LogFormatterSciNotation, MaxNLocator

from taciturn.core.storage import atomic_write, require_folder
from taciturn.errors import InputError
from taciturn.types import Array

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
GREY, PALE = "#555555", "#999999"  # text and lines for comparison
DIVERGING = "PuOr_r"  # purple below zero, orange above
DASHES = ("-", "--", ":", "-.")
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
RESOLUTION = 150  # dots an inch
CONTRAST = 4.5  # of a word on white, at least
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.08,
    "svg.hashsalt": "taciturn",
    "svg.fonttype": "none",
}


def look(i: int) -> dict[str, Any]:
    """Return colour and dash of line number i; the first 28 are different."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}


def ink(colour: Any) -> tuple[float, float, float]:
    """Return the colour, darkened until text in it has a contrast of 4.5 on white."""
    light = [(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for c in to_rgb(colour)]
    luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]
    factor = min(1.0, (1.05 / CONTRAST - 0.05) / luminance) if luminance > 0.0 else 1.0
    red, green, blue = (factor * c for c in light)
    return _shown(red), _shown(green), _shown(blue)


def _shown(light: float) -> float:
    return 12.92 * light if light <= 0.0031308 else 1.055 * light ** (1.0 / 2.4) - 0.055


def heading(axes: Axes, text: str) -> None:
    """Set the title of a panel."""
    axes.set_title(text, loc="left", fontweight="bold")


class PlainPowers(LogFormatterSciNotation):
    """Tick labels such as 2×10⁻¹ in plain characters, which is much faster than rendering a formula."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick."""
        found = re.fullmatch(r"\$\\mathdefault\{(.*)10\^\{(-?[0-9]+)\}\}\$", super().__call__(x, pos))
        return f"{found[1].replace(chr(92) + 'times', '×')}10{found[2].translate(RAISED)}" if found else ""


def log_axis(axes: Axes) -> None:
    """Make the vertical axis logarithmic."""
    axes.set_yscale("log")
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(PlainPowers())


def round_ticks(last: float) -> list[float]:
    """Return the ticks of an axis of rounds: round numbers, and the last round.

    >>> round_ticks(100), round_ticks(23)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.0, 5.0, 10.0, 15.0, 23.0])
    """
    found = MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True).tick_values(0.0, last)
    room = 0.7 * (found[1] - found[0])  # for the number of the last round
    return [*(float(tick) for tick in found if tick <= last - room), float(last)]


def check_place(path: Path) -> None:
    """Raise InputError if a figure cannot be saved at this path; call it before computing the figure."""
    formats = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix.lstrip(".") not in formats:
        raise InputError(f"{path} does not end in a picture's format; the choices are {', '.join(formats)}")
    require_folder(path)


def save(drawn: Figure, path: Path, private: bool = False) -> None:
    """Write the figure in the format of the extension; the same figure gives the same bytes.

    Parameters
    ----------
    drawn
        The figure.
    path
        The file.
    private
        Whether it shows what was computed from private records without noise; the file's mode is 0600 then.

    Raises
    ------
    InputError
        If the extension is not an image format, or the folder does not exist.
    """
    check_place(path)
    if path.suffix == ".svg":
        content = _svg(drawn).encode()
    else:
        png: Any = {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}} if path.suffix == ".png" else {}
        buffer = io.BytesIO()
        with rc_context(STYLE):
            drawn.savefig(buffer, format=path.suffix.lstrip("."), dpi=RESOLUTION, **png)
        content = buffer.getvalue()
    with atomic_write(path, private) as file:
        file.write(content)


def to_svg(drawn: Figure, title: str, description: str) -> str:
    """Return the figure as an SVG element for a page, with a title and a description for screen readers.

    Its ids begin with the first word of the title: figures of one page need titles that begin with different words.
    """
    own = re.split(r"\W", title, maxsplit=1)[0]
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{own}-", _svg(drawn))
    opening = re.compile("<svg ")
    words = f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>"
    return opening.sub('<svg role="img" ', text[text.index("<svg") :], count=1).replace(">", f">{words}", 1)


def _svg(drawn: Figure) -> str:
    buffer = io.StringIO()
    with rc_context(STYLE):
        canvas: Any = FigureCanvasSVG(drawn)
        dpi = drawn.dpi
        canvas.print_svg(buffer, metadata={"Date": None})  # savefig would draw it twice
        drawn.dpi = dpi
    # in tags, a hundredth of a point is enough; what is written keeps its digits
    return re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), buffer.getvalue())


SIZE = 8.0  # of a name, in points
APART = 1.35 * SIZE  # between the middles of two names
GAP = 12.0  # from the panel to the names
TURN = 2.0  # from the panel to the place where leaders leave the height of their line
NEAR = 1.5  # from a leader to its name
FOOT = 0.6 * SIZE  # from the panel's foot to the lowest: below it are the numbers of the axis
LONGEST = 26  # letters that fit beside a panel
MOST = 8  # labels beside one panel


class End(NamedTuple):
    """The last point of a line, and its label."""

    line: Line2D
    point: tuple[float, float]  # in the line's own coordinates
    name: Annotation


def label_lines(drawn: Figure, panels: Iterable[Axes] | None = None, legend: bool = False) -> None:
    """Label every line at its right end, in its colour, with a thin leader to the label.

    Where labels are many or long, numbers are used, and one legend below explains them. Call it last: it fixes the
    layout.

    Parameters
    ----------
    drawn
        The figure.
    panels
        The axes to label; None: all.
    legend
        Whether to add a legend in any case, for what is not a line.
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
    drawn.set_layout_engine("none")  # labels have measured positions


def shown_names(labels: Sequence[str]) -> dict[str, str]:
    """Return the text at the ends of lines by label: the labels, or numbers where they are many or long."""
    different = list(dict.fromkeys(labels))
    plain = len(different) <= MOST and all(len(label) <= LONGEST for label in different)
    return {label: label if plain else str(i) for i, label in enumerate(different, 1)}


def add_legend(
    drawn: Figure, numbers: Mapping[str, str] = MappingProxyType({}), left_out: Set[str] = frozenset()
) -> None:
    """Add one legend below all panels, with every label once, after its number."""
    pairs = [pair for axes in drawn.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs) if label not in left_out}
    labels = list(dict.fromkeys(label for _, label in pairs if label in handles))
    if labels:
        written = [f"{numbers[label]}  {label}" if label in numbers else label for label in labels]
        columns = max(1, min(5, len(labels), int(15 * drawn.get_figwidth() / (max(map(len, written)) + 8))))
        shown = [handles[label] for label in labels]
        drawn.legend(shown, written, loc="outside lower center", ncols=columns)


def places(ends: Array, apart: float, height: float) -> Array:
    """Return label positions in [0, height], at least `apart` from each other and as near as possible to `ends` [n].

    `ends` must be in increasing order.
    """
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
    """Return the last finite point of a line that has a label and is drawn."""
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
    """Move labels vertically until none touches another, and draw their leaders."""
    if not ends:
        return
    room, points, panel = _room(axes), 72.0 / axes.figure.dpi, axes.bbox
    found = np.array([end.line.get_transform().transform(end.point) for end in ends])
    tips = np.clip(found, panel.min, panel.max)  # a line may leave its panel
    heights = np.clip(points * (tips[:, 1] - panel.y0) - FOOT, 0.0, room)
    order = np.argsort(heights, kind="stable")
    for i, place in zip(order, places(heights[order], APART, room), strict=True):
        ends[i].name.xyann = (GAP, FOOT + float(place))
        turn = (panel.x1 + TURN / points, tips[i, 1])
        foot = (panel.x1 + (GAP - NEAR) / points, panel.y0 + (FOOT + float(place)) / points)
        _lead(axes, ends[i].line, np.array([tips[i], turn, foot]))


def _lead(axes: Axes, line: Line2D, pixels: Array) -> None:
    """Draw a thin dotted line through these points, from a line's end to its label."""
    drawn = axes.figure
    x, y = drawn.transFigure.inverted().transform(pixels).T
    leader = Line2D(x, y, color=line.get_color(), linewidth=0.7, linestyle=(0, (1, 2)), transform=drawn.transFigure)
    drawn.add_artist(leader)


def _room(axes: Axes) -> float:
    """Return the distance from the centre of the lowest label beside a panel to that of the highest, in points."""
    return float(72.0 * axes.bbox.height / axes.figure.dpi) - FOOT
