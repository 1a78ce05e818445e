"""The planner's trade-offs as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.views.plots import COLOURS, STYLE

PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # so that a line behind a word does not cross it


def plan_figure(plan: Mapping[str, Any]) -> Figure:
    """Left: what a budget does to the model. Right: what rounds and local updates do to one upload."""
    with rc_context(STYLE):
        drawn = Figure(figsize=(9.6, 4.0), layout="constrained")
        left, right = drawn.subplots(1, 2)
        _budgets(left, plan)
        _paces(right, plan)
    return drawn


def _budgets(axes: Axes, plan: Mapping[str, Any]) -> None:
    rows = plan["budgets"]
    epsilon, noise = [row["total_epsilon"] for row in rows], [row["noise_to_signal"] for row in rows]
    axes.loglog(epsilon, noise, "-o", color=COLOURS[0], markersize=4)
    for row in rows:
        if row["chosen"]:
            axes.plot(row["total_epsilon"], row["noise_to_signal"], "o", color=COLOURS[1], markersize=9)
    low, high = min(noise) / 2.0, max(noise) * 2.0
    axes.set_ylim(low, high)
    for band in plan["verdicts"]:
        limit, words = band["noise_to_signal"], band["verdict"]
        if low < limit < high:
            axes.axhline(limit, color="#999999", linewidth=0.8, linestyle=":")
            axes.text(max(epsilon), limit * 0.97, words, ha="right", va="top", color="#666666", fontsize=8, bbox=PAPER)
    axes.set_xticks(epsilon, [f"{value:g}" for value in epsilon], minor=False)
    axes.minorticks_off()
    axes.set_title("What a budget buys", loc="left", fontweight="bold")
    axes.set_xlabel(f"total epsilon at delta {plan['delta']:g}")
    axes.set_ylabel("noise to signal of the model, ν")


def _paces(axes: Axes, plan: Mapping[str, Any]) -> None:
    rows = plan["paces"]
    for i, updates in enumerate(sorted({row["local_updates"] for row in rows})):
        mine = [row for row in rows if row["local_updates"] == updates]
        rounds, noise = [row["rounds"] for row in mine], [row["agent_noise"] for row in mine]
        axes.plot(rounds, noise, "-o", color=COLOURS[i % len(COLOURS)], markersize=4)
        axes.annotate(
            f"E = {updates}", (rounds[-1], noise[-1]), (8, 0), textcoords="offset points", va="center", fontsize=8,
            annotation_clip=False,
        )  # fmt: skip
    for row in rows:
        if row["chosen"]:
            axes.plot(row["rounds"], row["agent_noise"], "o", color=COLOURS[1], markersize=9)
    axes.set_ylim(bottom=0.0)
    axes.set_title("What rounds and local updates E cost", loc="left", fontweight="bold")
    axes.set_xlabel("rounds")
    axes.set_ylabel("noise of one update over its largest gradient")
