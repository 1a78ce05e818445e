"""The planner's trade-offs as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.views.line_names import label_lines
from tacit.views.style import COLOURS, GREY, PALE, STYLE, heading, log_axis, look

PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # so that a line behind a word does not cross it


def plan_figure(plan: Mapping[str, Any]) -> Figure:
    """Left: what a budget does to the model. Right, where updates are charged: what they do to one upload."""
    with rc_context(STYLE):
        panels = 2 if plan["paces"] else 1
        drawn = Figure(figsize=(4.8 * panels, 4.0), layout="constrained")
        left, *right = drawn.subplots(1, panels, squeeze=False)[0]
        _budgets(left, plan)
        for axes in right:
            _paces(axes, plan)
        label_lines(drawn, right)
    return drawn


def _budgets(axes: Axes, plan: Mapping[str, Any]) -> None:
    rows = plan["budgets"]
    epsilon, noise = [row["total_epsilon"] for row in rows], [row["noise_to_signal"] for row in rows]
    axes.semilogx(epsilon, noise, "-o", color=COLOURS[0], markersize=4)
    log_axis(axes)
    for row in rows:
        if row["chosen"]:
            _mark(axes, row["total_epsilon"], row["noise_to_signal"])
    low, high = min(noise) / 2.0, max(noise) * 2.0
    axes.set_ylim(low, high)
    lowest = low * (high / low) ** 0.06  # below it there is no room for a word over the axis
    for band in plan["verdicts"]:
        limit, words = band["noise_to_signal"], band["verdict"]
        if lowest < limit < high:
            axes.axhline(limit, color=PALE, linewidth=0.8, linestyle=":")
            axes.text(max(epsilon), limit * 0.97, words, ha="right", va="top", color=GREY, fontsize=8, bbox=PAPER)
    axes.set_xticks(epsilon, [f"{value:g}" for value in epsilon], minor=False)
    axes.minorticks_off()
    heading(axes, "What a budget buys")
    axes.set_xlabel(f"total ε, all rounds together, at δ = {plan['delta']:g}")
    axes.set_ylabel("noise over signal of the model, ν (ratio)")


def _paces(axes: Axes, plan: Mapping[str, Any]) -> None:
    rows = plan["paces"]
    for i, updates in enumerate(sorted({row["local_updates"] for row in rows})):
        mine = [row for row in rows if row["local_updates"] == updates]
        rounds, noise = [row["rounds"] for row in mine], [row["agent_noise"] for row in mine]
        axes.plot(rounds, noise, marker="o", markersize=4, label=f"E = {updates}", **look(i))
    for row in rows:
        if row["chosen"]:
            _mark(axes, row["rounds"], row["agent_noise"])
    axes.set_ylim(bottom=0.0)
    heading(axes, "What rounds and local updates E cost")
    axes.set_xlabel("rounds of the whole run")
    axes.set_ylabel("noise of an update over its largest gradient (ratio)")


def _mark(axes: Axes, x: float, y: float) -> None:
    """A ring around what was chosen."""
    axes.plot(x, y, "o", markerfacecolor="none", markeredgecolor="black", markeredgewidth=1.4, markersize=10)
    axes.annotate("this plan", (x, y), (-7, -9), textcoords="offset points", ha="right", va="top", bbox=PAPER)
