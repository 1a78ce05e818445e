"""The figure of a benchmark: bars of times, or growth curves."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from taciturn.reporting.figures.style import COLOURS, GREY, PALE, STYLE, label_lines
from taciturn.research.bench.benchmark import Growth, Report
from taciturn.research.bench.timing import format_seconds

OWN, OTHER, MEMORY = COLOURS[1], COLOURS[0], COLOURS[2]


def picture(report: Report) -> Figure:
    """Draw a report."""
    with rc_context(STYLE):
        return _curves(report) if report.growth else _bars(report)


def _bars(report: Report) -> Figure:
    names, best = list(report.timings), [timing.best for timing in report.timings.values()]
    drawn = Figure(figsize=(8.6, 1.3 + 0.36 * len(names)), layout="constrained")
    axes: Axes = drawn.subplots()
    bars = axes.barh(names, best, color=[OWN, *[OTHER] * (len(names) - 1)], height=0.62)
    labels = [format_seconds(value) + _times(best[0], value, i) for i, value in enumerate(best)]
    axes.bar_label(bars, labels, padding=4)
    axes.set_xlim(0.0, max(best) * 1.7)  # room for the words
    axes.set_xlabel("seconds, best of all turns")
    axes.set_title(f"records: {report.figures.get('data', 'none')}", loc="left", fontsize=9, color=GREY)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    drawn.suptitle(report.title, x=0.01, ha="left", fontweight="bold")
    return drawn


def _times(own: float, other: float, place: int) -> str:
    return f"   Taciturn takes {own / other:.3g} x" if place else ""


def _curves(report: Report) -> Figure:
    lines = (len(report.growth) + 2) // 3
    drawn = Figure(figsize=(10.2, 0.9 + 2.7 * lines), layout="constrained")
    places: Sequence[Axes] = list(drawn.subplots(lines, 3, squeeze=False).flat)
    for axes, one in zip(places, report.growth, strict=False):
        _panel(axes, one)
    for empty in places[len(report.growth) :]:
        empty.remove()
    drawn.suptitle(report.title, x=0.01, ha="left", fontweight="bold")
    label_lines(drawn)
    return drawn


def _panel(axes: Axes, one: Growth) -> None:
    """Draw time and memory as multiples of their values at the smallest size, so that slopes can be compared."""
    for label, found, colour, marker in (
        ("time of a round", one.seconds, OTHER, "o"),
        ("peak memory", one.bytes, MEMORY, "s"),
    ):
        axes.plot(one.values, [value / found[0] for value in found], marker + "-", color=colour, label=label, ms=4)
    first = one.values[0]
    axes.plot(one.values, [value / first for value in one.values], ":", color=PALE, lw=1, label="in proportion")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=6))
    axes.set_xticks(one.values, [_short(value) for value in one.values])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"{one.factor}, {one.meaning}" if one.meaning != one.factor else one.factor)
    axes.set_ylabel("multiple of the first")
    powers = f"time ~ {one.factor}^{one.seconds_exponent:.2f}, memory ~ {one.factor}^{one.bytes_exponent:.2f}"
    axes.set_title(powers, loc="left", fontsize=9)


def _short(value: int) -> str:
    """Return 20k for 20,000, which would overlap its neighbour."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:,}"
