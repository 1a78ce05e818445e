"""How every picture looks: colours that colour-blind eyes tell apart, axes, files; line_names.py names the lines."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation

from tacit.errors import InputError
from tacit.results.files import replacing

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
GREY, PALE = "#555555", "#999999"  # what is there for comparison: its words, its lines
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
    "svg.hashsalt": "tacit",
    "svg.fonttype": "none",
}


def look(i: int) -> dict[str, Any]:
    """Colour and dash of line number i; no two of the first 28 are alike."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}


def ink(colour: Any) -> tuple[float, float, float]:
    """The colour, dark enough to be read as a word on white."""
    light = [(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for c in to_rgb(colour)]
    luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]
    factor = min(1.0, (1.05 / CONTRAST - 0.05) / luminance) if luminance > 0.0 else 1.0
    red, green, blue = (factor * c for c in light)
    return _shown(red), _shown(green), _shown(blue)


def _shown(light: float) -> float:
    return 12.92 * light if light <= 0.0031308 else 1.055 * light ** (1.0 / 2.4) - 0.055


def heading(axes: Axes, text: str) -> None:
    """The title of a panel."""
    axes.set_title(text, loc="left", fontweight="bold")


class PlainPowers(LogFormatterSciNotation):
    """2×10⁻¹ in letters: setting it as a formula would take as long as all the rest of the picture."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick."""
        found = re.fullmatch(r"\$\\mathdefault\{(.*)10\^\{(-?[0-9]+)\}\}\$", super().__call__(x, pos))
        return f"{found[1].replace(chr(92) + 'times', '×')}10{found[2].translate(RAISED)}" if found else ""


def log_axis(axes: Axes) -> None:
    """A logarithmic vertical axis."""
    axes.set_yscale("log")
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(PlainPowers())


def check_place(path: Path) -> None:
    """Refuse a picture that could not be saved, before anything is computed for it."""
    formats = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix.lstrip(".") not in formats:
        raise InputError(f"{path} does not end in a picture's format: there are {', '.join(formats)}")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to put {path.name} into")


def save(drawn: Figure, path: Path, private: bool = False) -> None:
    """Write the picture in the format its name ends with; the same picture gives the same bytes.

    `private`: it shows what was computed from private records without noise, and is for its owner's eyes (0600).
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
    with replacing(path, private) as file:
        file.write(content)


def to_svg(drawn: Figure, title: str, description: str) -> str:
    """The picture as an SVG element to put into a page, with words for those who do not see it."""
    text = _svg(drawn)
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
    return re.sub(r"(\d\.\d\d)\d+", r"\1", buffer.getvalue())  # a hundredth of a point is enough
