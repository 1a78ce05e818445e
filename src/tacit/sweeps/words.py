"""The results of a sweep in words: differences, tables, and what the intervals are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.sweeps.statistics import UNITS, At, Comparison
from tacit.views.intervals import Interval, mean_words, points_of
from tacit.views.tables import format_setting

PAIRED = (
    "Differences are paired over {unit}s, with Student-t intervals of 95 %. They tell what other {unit}s would give on "
    "the same records, not what other records would."
)
SIMULTANEOUS = (
    "Of {count} such intervals some miss by chance; the wider ones (Bonferroni) hold for all of them at once with 95 %."
)
ONE_SEED = "one {unit} gives no interval: {advice}"


def setting_name(name: str) -> str:
    """A setting as it is written on the command line; the budget is called epsilon, as in every table."""
    return name.replace("_", "-")


def at_words(at: At) -> str:
    """Settings that runs share, as text."""
    return ", ".join(_one(name, value) for name, value in at)


def _one(name: str, value: Any) -> str:
    return "no noise" if (name, value) == ("epsilon", math.inf) else f"{setting_name(name)} {format_setting(value)}"


def _value(setting: str, value: Any) -> str:
    """A value that is compared, by a name that says what it is."""
    return str(value) if setting == "algorithm" else _one(setting, value)


def verdict(comparison: Comparison, regression: bool) -> str:
    """Who has the lower test error, by how much, and how sure that is."""
    c, found = comparison, comparison.difference
    unit = "RMSE" if regression else "points"
    first, second = (_value(c.setting, value) for value in (c.first, c.second))
    better, worse, size = (second, first, -found.mean) if found.mean < 0 else (first, second, found.mean)
    runs = f"{found.n} {UNITS[c.unit]}{'s' * (found.n > 1)}"
    by = f"lower than {worse} by {points_of(size, regression)} {unit}"
    if c.exact:
        return f"{better} is {by}; without noise no seed changes it" if size else f"{first} and {second} are equal"
    if found.low is None or found.high is None:
        return f"{better} was {by} with one {UNITS[c.unit]}, which tells nothing of others"
    ends = sorted(abs(end) for end in (found.low, found.high))
    if not c.told_apart:
        low, high = (points_of(end, regression, "+") for end in (found.low, found.high))
        words = f"{second} minus {first} is {points_of(found.mean, regression, '+')} {unit} ({low} to {high})"
        return f"no difference can be told: {words}, {runs}"
    span = " to ".join(points_of(end, regression) for end in ends)
    doubt = "" if c.among_all else f"; among {c.comparisons} comparisons it may be chance"
    return f"{better} is {by} ({span}), {runs}{doubt}"


def notes(comparisons: Sequence[Comparison], counts: Sequence[int], unit: str, hardened: bool) -> list[str]:
    """What a reader has to know about the intervals."""
    if max(counts, default=0) < 2:
        advice = (
            "hardened noise has no seeds; --seed 1 --seeds 5 simulates"
            if hardened
            else "sweep more of them"
            if unit == "partition_key"
            else "--seeds 5 gives one"
        )
        return [ONE_SEED.format(unit=UNITS[unit], advice=advice)]
    found = [PAIRED.format(unit=UNITS[unit])] if comparisons else []
    uncertain = comparisons[0].comparisons if comparisons else 0
    return [*found, SIMULTANEOUS.format(count=uncertain)] if uncertain > 1 else found


def summary_table(
    summaries: Mapping[At, Interval], unit: str, regression: bool
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows: the settings that vary, mean test error ± half its interval, and over how many."""
    names = [name for name, _ in next(iter(summaries))]
    shown = [name for name in names if len({dict(at)[name] for at in summaries}) > 1 or name == "algorithm"]
    rows = [
        (
            *(format_setting(dict(at)[name]) for name in shown),
            mean_words(found, regression),
            str(found.n),
        )
        for at, found in summaries.items()
    ]
    return (*(setting_name(name) for name in shown), "test error", f"{UNITS[unit]}s"), rows


def comparison_row(comparison: Comparison, regression: bool) -> dict[str, Any]:
    """A comparison as a line of comparisons.csv; differences are second minus first, in the unit of test_error."""
    c = comparison
    return {
        "setting": setting_name(c.setting),
        "first": format_setting(c.first),
        "second": format_setting(c.second),
        "at": at_words(c.at),
        "difference": c.difference.mean,
        "low": c.difference.low,
        "high": c.difference.high,
        "simultaneous_low": c.simultaneous.low,
        "simultaneous_high": c.simultaneous.high,
        "pairs": c.difference.n,
        "paired_over": c.unit.replace("_", "-"),
        "verdict": verdict(c, regression),
    }
