"""The pictures of a run: test error, objective, consensus residual and noise against rounds."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, MaxNLocator

from tacit.errors import InputError
from tacit.results.files import replacing
from tacit.results.folder import RunFolder
from tacit.views.compare import predicts_numbers
from tacit.views.curves import Curve, curves

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DASHES = ("-", "--", ":", "-.")
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "tacit",
    "svg.fonttype": "none",
}


class Panel(NamedTuple):
    """One plot: a metric, its title, its unit, how its values are scaled."""

    metric: str
    title: str
    unit: str
    factor: float = 1.0
    logarithmic: bool = False


def panels(regression: bool) -> tuple[Panel, ...]:
    """The four plots of a run."""
    error = (
        Panel("test_error", "Test error", "RMSE, label's unit")
        if regression
        else Panel("test_error", "Test error", "%", 100.0)
    )
    return (
        error,
        Panel("train_objective", "Training objective F(w)", "loss a record"),
        Panel("consensus_residual", "Consensus residual ‖Aw − z‖", "parameter units", logarithmic=True),
        Panel("noise", "Noise magnitude, mean |ξ|", "gradient (outp: parameter) units", logarithmic=True),
    )


def figure(folders: Sequence[RunFolder], local: bool = True) -> Figure:
    """The plots of one or more runs, told apart by their folder's name; not local: those anybody may see."""
    rows = [(folder.path.name if len(folders) > 1 else "", folder.read_metrics(local)) for folder in folders]
    if not any(found for _, found in rows):
        raise InputError(f"{folders[0].path} has no evaluated round yet: there is nothing to draw")
    shown = [panel for panel in panels(predicts_numbers(folders)) if local or _measured(panel, rows)]
    lines = (len(shown) + 1) // 2
    with rc_context(STYLE):
        drawn = Figure(figsize=(9.6, 0.6 + 2.9 * lines), layout="constrained")
        places = list(drawn.subplots(lines, 2, squeeze=False).flat)
        for axes, panel in zip(places, shown, strict=False):
            _draw(axes, panel, rows)
        for empty in places[len(shown) :]:
            empty.remove()
        _legend(drawn)
    return drawn


def _measured(panel: Panel, rows: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> bool:
    return any(row[panel.metric] is not None for _, metrics in rows for row in metrics)


def _draw(axes: Axes, panel: Panel, rows: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> None:
    found = [curve for name, metrics in rows for curve in curves(metrics, panel.metric, f"{name}: " if name else "")]
    for i, curve in enumerate(found):
        _draw_curve(axes, panel, curve, COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)])
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(panel.unit)
    if not found:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes, color="#777777")
    elif panel.logarithmic and any((curve.mean > 0).any() for curve in found):
        axes.set_yscale("log")
        for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            axis_formatter(PlainPowers())


class PlainPowers(LogFormatterSciNotation):
    """2×10⁻¹ in letters: setting it as a formula would take as long as all the rest of the picture."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick."""
        found = re.fullmatch(r"\$\\mathdefault\{(.*)10\^\{(-?[0-9]+)\}\}\$", super().__call__(x, pos))
        return f"{found[1].replace(chr(92) + 'times', '×')}10{found[2].translate(RAISED)}" if found else ""


def _draw_curve(axes: Axes, panel: Panel, curve: Curve, colour: str, dash: str) -> None:
    mean = np.where(curve.mean > 0, curve.mean, np.nan) if panel.logarithmic else curve.mean
    marker = "o" if len(mean) == 1 else None
    axes.plot(curve.rounds, panel.factor * mean, dash, color=colour, label=curve.label, marker=marker, linewidth=1.6)
    if curve.seeds > 1:
        low, high = panel.factor * curve.low, panel.factor * curve.high
        axes.fill_between(curve.rounds, low, high, color=colour, alpha=0.18, linewidth=0)


def _legend(drawn: Figure) -> None:
    """One legend for all four plots, below them."""
    handles, labels = drawn.axes[-2 if len(drawn.axes) > 1 else -1].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=min(4, max(1, len(labels))))


def to_svg(drawn: Figure) -> str:
    """The picture as an SVG element to put into a page."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        drawn.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def save(drawn: Figure, path: Path) -> None:
    """Write the picture in the format its name ends with."""
    formats = sorted(drawn.canvas.get_supported_filetypes())
    if path.suffix.lstrip(".") not in formats:
        raise InputError(f"{path} does not end in a picture's format: there are {', '.join(formats)}")
    with rc_context(STYLE), replacing(path) as file:
        drawn.savefig(file, format=path.suffix.lstrip("."), dpi=160)
