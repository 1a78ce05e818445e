"""Means over repeated runs with their uncertainty, as numbers and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from taciturn.reporting.tables import format_share

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean with a two-sided Student-t interval; None where one value alone tells nothing of the others."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half(self) -> float | None:
        """Half its width."""
        return None if self.high is None else self.high - self.mean


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """mean ± t(level, n - 1) s / sqrt(n)."""
    mean, n = fmean(values), len(values)
    if n < 2:
        return Interval(mean, None, None, n)
    from scipy.stats import t

    half = float(t.ppf(0.5 + level / 2.0, n - 1)) * stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def points_of(value: float, regression: bool, sign: str = "") -> str:
    """An error's size: percentage points, or the label's unit."""
    return f"{value:{sign}.3g}" if regression else f"{100.0 * value:{sign}.2f}"


def mean_words(found: Interval, regression: bool) -> str:
    """A mean error with half its interval."""
    mean = format_share(found.mean, regression)
    if found.half is None:
        return mean
    number, unit = mean.split(" ")
    return f"{number} ± {points_of(found.half, regression)} {unit}"
