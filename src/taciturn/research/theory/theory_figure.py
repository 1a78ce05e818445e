"""Figures of the theorems: measurement and bound against rounds, epsilon and local updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

from taciturn.reporting.figures.style import COLOURS, GREY, STYLE, add_legend, heading, log_axis
from taciturn.research.theory.measure import MeanInterval
from taciturn.research.theory.theorem_checks import Result, TheoremFinding
from taciturn.types import Array

MEASURED, BOUND = COLOURS[0], COLOURS[1]
NAMES = ("measured, mean over seeds", "bound, repaired", "bound, as printed")
GAP = "F(z) − F(z*) + γ‖Aw − z‖"
WIDTH, HEIGHT = 3.6, 2.7  # of a panel, in inches
FEW = 100  # rounds, below which the axis is numbered more finely
ROOM, SHARE = 5.0, 0.2  # below the lines: at least this factor, and this share of the decades they span


def figure(results: Sequence[Result]) -> Figure:
    """Draw a column for each theorem, with rows against T, epsilon and E where they were measured."""
    rows = [_against_rounds]
    if all(len(_finite(result)) > 1 for result in results):
        rows.append(_against_epsilon)
    if all(result.by_updates for result in results):
        rows.append(_against_updates)
    with rc_context(STYLE):
        size = (0.8 + WIDTH * max(2, len(results)), 0.9 + HEIGHT * len(rows))
        drawn = Figure(figsize=size, layout="constrained")
        panels = drawn.subplots(len(rows), len(results), squeeze=False)
        for line, draw in zip(panels, rows, strict=True):
            for axes, result in zip(line, results, strict=True):
                draw(axes, result)
            line[0].set_ylabel(GAP)
        for axes, result in zip(panels[0], results, strict=True):
            heading(axes, f"Theorem {result.theorem.number}, {result.theorem.functions} f")
        add_legend(drawn)
    return drawn


def run_figure(results: Sequence[tuple[str, Result]], note: str) -> Figure:
    """Draw the findings of a run: a row for each algorithm, a panel for each epsilon."""
    widest = max(len(result.findings) for _, result in results)
    with rc_context(STYLE):
        size = (0.8 + WIDTH * max(2, widest), 0.9 + HEIGHT * len(results))
        drawn = Figure(figsize=size, layout="constrained")
        panels = drawn.subplots(len(results), widest, squeeze=False)
        for line, (algorithm, result) in zip(panels, results, strict=True):
            for axes, one in zip(line, result.findings, strict=False):
                _rounds_panel(axes, one)
                heading(axes, f"{algorithm}, ε = {one.setting.epsilon:g}: theorem {result.theorem.number}")
            for empty in line[len(result.findings) :]:
                empty.remove()
            line[0].set_ylabel(GAP)
        drawn.suptitle(note, x=0.01, ha="left", fontsize=8, color=GREY)
        add_legend(drawn)
    return drawn


def _against_rounds(axes: Axes, result: Result) -> None:
    _rounds_panel(axes, result.shown)


def _rounds_panel(axes: Axes, one: TheoremFinding) -> None:
    _lines(axes, one.rounds, one.measured, [b.total for b in one.corrected], [b.total for b in one.stated])
    axes.set_xlabel(f"rounds T, at ε = {one.setting.epsilon:g}, E = {one.setting.updates}")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if one.rounds[-1] >= FEW else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, place: f"{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    if one.exponent is not None:
        _write(axes, f"slope {_shown(one.exponent)}\npromised −{one.theorem.in_rounds:g}")


def _against_epsilon(axes: Axes, result: Result) -> None:
    ones = _finite(result)
    budgets = [one.setting.epsilon for one in ones]
    _ends(axes, budgets, ones)
    axes.set_xlabel(f"ε of one update, at T = {ones[0].rounds[-1]:,}")
    _ticks(axes, budgets)
    if result.in_epsilon is not None:
        _write(axes, f"slope {_shown(result.in_epsilon)}\npromised −{result.theorem.in_epsilon:g}")


def _against_updates(axes: Axes, result: Result) -> None:
    ones = result.by_updates
    updates = [one.setting.updates for one in ones]
    _ends(axes, updates, ones)
    axes.set_xlabel(f"local updates E, at ε = {ones[0].setting.epsilon:g}, T = {ones[0].rounds[-1]:,}")
    _ticks(axes, updates)


def _ends(axes: Axes, x: Sequence[float], ones: Sequence[TheoremFinding]) -> None:
    corrected, stated = [one.corrected[-1].total for one in ones], [one.stated[-1].total for one in ones]
    _lines(axes, x, [one.measured[-1] for one in ones], corrected, stated, marker="o")


def _lines(
    axes: Axes,
    x: Sequence[float],
    means: Sequence[MeanInterval],
    corrected: Sequence[float],
    stated: Sequence[float],
    marker: str = "",
) -> None:
    look: Any = {"marker": marker or None, "markersize": 3.5}
    axes.plot(x, _positive([mean.value for mean in means]), color=MEASURED, linewidth=1.6, label=NAMES[0], **look)
    low, high = _positive([mean.low for mean in means]), _positive([mean.high for mean in means])
    axes.fill_between(x, low, high, color=MEASURED, alpha=0.18, linewidth=0)
    axes.plot(x, corrected, color=BOUND, linewidth=1.6, label=NAMES[1], **look)
    axes.plot(x, stated, color=BOUND, linewidth=1.2, linestyle="--", label=NAMES[2], **look)
    log_axis(axes)
    axes.yaxis.set_minor_locator(NullLocator())


def _positive(values: Sequence[float]) -> Array:
    found = np.array(values, np.float64)
    shown: Array = np.where((found > 0.0) & np.isfinite(found), found, np.nan)
    return shown


def _ticks(axes: Axes, values: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{value:g}" for value in values]))
    axes.xaxis.set_minor_locator(NullLocator())


def _write(axes: Axes, words: str) -> None:
    """Write text below all lines."""
    low, high = axes.get_ylim()
    axes.set_ylim(bottom=low / max(ROOM, (high / low) ** SHARE))
    axes.text(0.03, 0.04, words, transform=axes.transAxes, fontsize=8, color=GREY, va="bottom")


def _shown(found: MeanInterval) -> str:
    """Return an exponent as the slope in the figure; one seed gives no interval."""
    slope, low, high = (f"{-value:.2f}".replace("-", "−") for value in (found.value, found.high, found.low))
    return f"{slope} ({low} to {high})" if np.isfinite(found.low) else slope


def _finite(result: Result) -> list[TheoremFinding]:
    return sorted(
        (one for one in result.findings if np.isfinite(one.setting.epsilon)), key=lambda one: one.setting.epsilon
    )
