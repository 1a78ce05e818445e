"""The figure of one or more runs: test error, objective, consensus residual and noise against rounds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taciturn.errors import InputError
from taciturn.reporting.curves import Curve, curves
from taciturn.reporting.figures.style import GREY, STYLE, heading, label_lines, log_axis, look, round_ticks
from taciturn.reporting.side_by_side import predicts_numbers
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import MetricsRow

RESULTS = ("test_error", "train_objective")  # what a report draws
METRICS = (*RESULTS, "consensus_residual", "noise")


class Panel(NamedTuple):
    """One plot: a metric, its title, its unit, how its values are scaled."""

    metric: str
    title: str
    unit: str
    factor: float = 1.0
    logarithmic: bool = False


def panels(regression: bool, on_uploads: Sequence[str] = ()) -> tuple[Panel, ...]:
    """Return the four plots of runs; `on_uploads` names the methods whose noise is on parameters, not on gradients."""
    error = (
        Panel("test_error", "Test error", "root mean square, in the label's unit")
        if regression
        else Panel("test_error", "Test error", "% of the test records", 100.0)
    )
    whose = ", ".join(on_uploads) if len(on_uploads) < 3 else "on uploads"
    noise = f"gradient units ({whose}: parameter units)" if on_uploads else "gradient units"
    return (
        error,
        Panel("train_objective", "Training objective F(w)", "loss per record"),
        Panel("consensus_residual", "Distance from the common model", "parameter units", logarithmic=True),
        Panel("noise", "Mean size of the noise", noise, logarithmic=True),
    )


def figure(folders: Sequence[RunFolder], local: bool = True, metrics: Collection[str] = METRICS) -> Figure:
    """Return the plots of one or more runs.

    Parameters
    ----------
    folders
        The run folders; several are distinguished by their names.
    local
        Whether to draw what only the owner of the records may see.
    metrics
        The plots to draw.

    Raises
    ------
    InputError
        If there is no evaluated round, or some runs predict classes and some numbers.
    """
    shown = _shown(folders, local, metrics)
    names = list(dict.fromkeys(curve.label for found in shown.values() for curve in found))
    lines = (len(shown) + 1) // 2
    with rc_context(STYLE):
        drawn = Figure(figsize=(9.6, 0.6 + 2.9 * lines), layout="constrained")
        places = list(drawn.subplots(lines, 2, squeeze=False).flat)
        for axes, (panel, found) in zip(places, shown.items(), strict=False):
            _draw(axes, panel, found, names)
        for empty in places[len(shown) :]:
            empty.remove()
        if own := owners_alone(folders) if local else []:
            words = f"{' and '.join(own)}: computed without noise, for the owner of the records only"
            drawn.suptitle(words, x=0.01, ha="left", fontsize=8, color=GREY)  # below may be a legend
        label_lines(drawn)
    return drawn


def owners_alone(folders: Sequence[RunFolder]) -> list[str]:
    """Return the titles of the plots whose values only the owner of the records may see."""
    rows = [(folder.read_metrics(local=True), folder.read_metrics(local=False)) for folder in folders]
    titles = {panel.metric: panel.title for panel in panels(predicts_numbers(folders))}
    return [
        title
        for metric, title in titles.items()
        if any(_measured(metric, owned) and not _measured(metric, public) for owned, public in rows)
    ]


def _measured(metric: str, rows: Sequence[MetricsRow]) -> bool:
    return any(getattr(row, metric) is not None for row in rows)


def text_alternative(folders: Sequence[RunFolder], local: bool = True, metrics: Collection[str] = METRICS) -> str:
    """Return a text alternative to the plots: where every line begins and ends."""
    sentences = [
        f"{panel.title}, {panel.unit}: {'; '.join(_course(panel, curve) for curve in found) or 'not measured'}."
        for panel, found in _shown(folders, local, metrics).items()
    ]
    return " ".join(sentences)


def _course(panel: Panel, curve: Curve) -> str:
    first, last = (f"{panel.factor * value:.4g}" for value in (curve.mean[0], curve.mean[-1]))
    return f"{curve.label} goes from {first} in round {curve.rounds[0]:.0f} to {last} in round {curve.rounds[-1]:.0f}"


def _shown(folders: Sequence[RunFolder], local: bool, metrics: Collection[str]) -> dict[Panel, list[Curve]]:
    rows = [(folder.path.name if len(folders) > 1 else "", folder.read_metrics(local)) for folder in folders]
    if not any(found for _, found in rows):
        raise InputError(f"{folders[0].path} has no evaluated round yet: there is nothing to draw")
    methods = {name: facts for folder in folders for name, facts in folder.read_header().method_facts.items()}
    names = dict.fromkeys(row.algorithm for _, found in rows for row in found)
    on_uploads = [name for name in names if name in methods and methods[name].noise_on == "uploads"]
    measured = {panel: _curves(panel, rows) for panel in panels(predicts_numbers(folders), on_uploads)}
    return {panel: found for panel, found in measured.items() if panel.metric in metrics and (local or found)}


def _curves(panel: Panel, rows: Sequence[tuple[str, Sequence[MetricsRow]]]) -> list[Curve]:
    return [curve for name, metrics in rows for curve in curves(metrics, panel.metric, f"{name}: " if name else "")]


def _draw(axes: Axes, panel: Panel, found: Sequence[Curve], names: Sequence[str]) -> None:
    for curve in found:
        _draw_curve(axes, panel, curve, look(names.index(curve.label)))
    heading(axes, panel.title)
    axes.set_xlabel("round")
    if found:
        axes.set_xticks(round_ticks(max(curve.rounds[-1] for curve in found)))
    axes.set_ylabel(panel.unit)
    if not found:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes, color=GREY)
    elif panel.logarithmic and any((curve.mean > 0).any() for curve in found):
        log_axis(axes)


def _draw_curve(axes: Axes, panel: Panel, curve: Curve, style: dict[str, Any]) -> None:
    mean = np.where(curve.mean > 0, curve.mean, np.nan) if panel.logarithmic else curve.mean
    marker = "o" if len(mean) == 1 else None
    axes.plot(curve.rounds, panel.factor * mean, label=curve.label, marker=marker, linewidth=1.6, **style)
    if curve.seeds > 1:
        low, high = panel.factor * curve.low, panel.factor * curve.high
        axes.fill_between(curve.rounds, low, high, color=style["color"], alpha=0.18, linewidth=0)
