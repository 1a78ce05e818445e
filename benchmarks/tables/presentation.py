"""The results as Markdown tables and as a picture."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import fmean, stdev
from typing import Any

from benchmarks.tables.results import METRICS, Point, Results
from benchmarks.tables.splits import TABLES, TableSource
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, StrMethodFormatter

from taciturn.reporting.figures.style import COLOURS, GREY, PALE, STYLE, heading, label_lines, save
from taciturn.reporting.tables import markdown_table

NAMES = {
    "taciturn-one": "Taciturn, one party",
    "taciturn-parties": "Taciturn, {parties}",
    "taciturn-secure-sum": "Taciturn, {parties}, secure sum",
    "dp-ebm": "DP-EBM, central",
    "diffprivlib": "diffprivlib, central",
    "linear": "no privacy: {linear}",
    "ebm": "no privacy: EBM",
    "boosting": "no privacy: boosting",
    "base-rate": "no model: {base}",
}
TITLES = {"auroc": "AUROC", "log_loss": "log loss", "brier": "Brier score", "rmse": "RMSE, dollars"}
TIMES = {"Seconds": "over_scikit_learn", "Processor seconds": "processor_over_scikit_learn"}
LINES: dict[str, tuple[str, dict[str, Any]]] = {  # label in the picture, and look
    "taciturn-one": ("Taciturn, one party", {"color": COLOURS[0], "marker": "o"}),
    "taciturn-parties": ("Taciturn, noise at each", {"color": COLOURS[2], "marker": "s"}),
    "taciturn-secure-sum": ("Taciturn, secure sum", {"color": COLOURS[5], "marker": "^", "linestyle": "--"}),
    "dp-ebm": ("DP-EBM, central", {"color": COLOURS[1], "marker": "D"}),
    "diffprivlib": ("diffprivlib, central", {"color": COLOURS[3], "marker": "v"}),
}
LEVELS: dict[str, tuple[str, dict[str, Any]]] = {  # without privacy
    "linear": ("linear, no privacy", {"color": GREY, "linestyle": ":"}),
    "ebm": ("EBM, no privacy", {"color": GREY, "linestyle": "--"}),
    "boosting": ("boosting, no privacy", {"color": PALE, "linestyle": "-"}),
}
CAPTION = """Means over random 80/20 splits; the budget is that of the whole training, at δ = 10⁻⁶.
DP-EBM and diffprivlib see all records; Taciturn's parties show theirs to nobody.
One party holds all records; "noise at each" and "secure sum" are the parties named above the panel.
A line that leaves its panel is worse than the panel shows."""
NO_NOISE_FACTOR = 3.0  # where "no noise" is on the axis, over the largest budget
MARGIN = 0.08  # of the panel's height, above and below what must be visible


def name_of(method: str, source: TableSource) -> str:
    """Return a method's name in the tables."""
    linear = "logistic regression" if source.classes else "ridge regression"
    base = "always the base rate" if source.classes else "always the mean"
    return NAMES[method].format(parties=_parties(source), linear=linear, base=base)


def markdown(results: Results) -> str:
    """Return tables for every data set: means and standard deviations over the splits that all its points have.

    What was measured on more splits follows in a table of its own, with standard errors.
    """
    budgets = _budgets(results)
    text = []
    for source in _measured(results):
        shared = results.shared_splits(source.name)
        for metric in METRICS[source.classes]:
            rows = []
            for method in NAMES:
                points = [Point(source.name, method, epsilon) for epsilon in budgets]
                cells = [_cell(results, point, metric, shared) for point in points]
                if any(cells):
                    rows.append([name_of(method, source), *cells])
            headings = ["", *(f"ε = {_budget(epsilon)}" for epsilon in budgets)]
            text.append(
                f"**{source.name}**, {TITLES[metric]}, {len(shared)} splits\n\n{markdown_table(headings, rows, [''])}"
            )
        text.append(_on_more_splits(results, source, len(shared)))
    if results.time:
        for title, key in TIMES.items():
            if key in results.time:
                ratios = ", ".join(f"{name}: {ratio:.2f}" for name, ratio in results.time[key].items())
                text.append(
                    f"{title} from {results.time['table']}.csv to the report, over scikit-learn's plain fit: {ratios}"
                )
    return "\n\n".join(filter(None, text))


def _on_more_splits(results: Results, source: TableSource, shared: int) -> str:
    """Return a table of the points of a data set that were measured on more splits than all have."""
    metric, rows = METRICS[source.classes][0], []
    digits = "d" if metric == "rmse" else ".4f"
    for method in NAMES:
        for epsilon in _budgets(results):
            found = results.values(Point(source.name, method, epsilon), metric)
            if len(found) > shared:
                numbers = (fmean(found), stdev(found) / math.sqrt(len(found)))
                mean, error = (f"{round(n) if metric == 'rmse' else n:{digits}}" for n in numbers)
                rows.append([name_of(method, source), _budget(epsilon), str(len(found)), mean, error])
    headings = ["", "ε", "splits", TITLES[metric], "standard error"]
    return markdown_table(headings, rows, [""]) if rows else ""


def draw(results: Results) -> None:
    """Draw the first metric of every data set against the budget."""
    sources, budgets = _measured(results), _budgets(results)
    largest = max((epsilon for epsilon in budgets if math.isfinite(epsilon)), default=1.0)
    places = {epsilon: min(epsilon, NO_NOISE_FACTOR * largest) for epsilon in budgets}
    with rc_context(STYLE):
        drawn = Figure(figsize=(9.6, 7.4), layout="constrained")
        panels = list(drawn.subplots(2, 2, squeeze=False).flat)
        for axes, source in zip(panels, sources, strict=False):
            _panel(axes, results, source, places)
        for empty in panels[len(sources) :]:
            empty.remove()
        drawn.suptitle(CAPTION, x=0.01, ha="left", fontsize=8, color=GREY)
        label_lines(drawn, panels[: len(sources)])
    for ending in (".svg", ".png"):
        save(drawn, results.place.with_suffix(ending))


def _panel(axes: Axes, results: Results, source: TableSource, places: dict[float, float]) -> None:
    metric = METRICS[source.classes][0]
    visible: list[float] = []
    shared = results.shared_splits(source.name)
    for method, (label, look) in LINES.items():
        found = [
            (place, mean)
            for epsilon, place in places.items()
            if (mean := results.mean(Point(source.name, method, epsilon), metric, shared)) is not None
        ]
        if found:
            axes.plot(*zip(*found, strict=True), label=label, markersize=4, linewidth=1.6, **look)
            visible += [mean for _, mean in found if method != "diffprivlib"]
    ends = [min(places.values()), max(places.values())]
    for method, (label, look) in LEVELS.items():
        level = results.mean(Point(source.name, method, math.inf), metric, shared)
        if level is not None:
            axes.plot(ends, [level, level], label=label, linewidth=1.0, **look)
            visible.append(level)
    spare = MARGIN * (max(visible) - min(visible))
    axes.set_ylim(min(visible) - spare, max(visible) + spare)
    axes.set_xscale("log")
    axes.set_xticks(list(places.values()), [_budget(epsilon) for epsilon in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("total ε")
    axes.set_ylabel(f"{TITLES[metric]} ({'higher' if source.classes else 'lower'} is better)")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.3f}" if source.classes else "{x:,.0f}"))
    heading(axes, f"{source.name}, {_parties(source)}")


def _measured(results: Results) -> list[TableSource]:
    found = {point.table for point in results.points}
    return [source for name, source in TABLES.items() if name in found]


def _budgets(results: Results) -> list[float]:
    return sorted({point.epsilon for point in results.points})


def _cell(results: Results, point: Point, metric: str, splits: Collection[int]) -> str:
    mean, deviation = results.mean(point, metric, splits), results.deviation(point, metric, splits)
    if mean is None:
        return ""
    digits = ",.0f" if metric == "rmse" else ".4f"
    return f"{mean:{digits}}" + ("" if deviation is None else f" ± {deviation:{digits}}")


def _budget(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def _parties(source: TableSource) -> str:
    return f"{source.parties} {'hospitals' if source.party else 'parties'}"
