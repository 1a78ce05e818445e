"""Means over repeated runs with their confidence intervals, as numbers and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from taciturn.reporting.tables import format_share

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean with a two-sided Student-t interval; its bounds are None for a single value."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None else self.high - self.mean


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return mean ± t(level, n - 1) s / sqrt(n), where s is the sample standard deviation.

    >>> interval([0.5])
    Interval(mean=0.5, low=None, high=None, n=1)
    >>> round(interval([1.0, 2.0, 3.0]).half, 4)
    2.4841
    """
    mean, n = fmean(values), len(values)
    if n < 2:
        return Interval(mean, None, None, n)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, 0.5 + level / 2.0)) * stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def points_of(value: float, regression: bool, sign: str = "") -> str:
    """Return the size of an error or a difference without its unit: percentage points, or the label's unit."""
    return f"{value:{sign}.3g}" if regression else f"{100.0 * value:{sign}.2f}"


def mean_words(found: Interval, regression: bool) -> str:
    """Return a mean error with half its interval.

    >>> mean_words(Interval(0.1, 0.09, 0.11, 5), regression=False)
    '10.00 ± 1.00 %'
    """
    mean = format_share(found.mean, regression)
    if found.half is None:
        return mean
    number, unit = mean.split(" ")
    return f"{number} ± {points_of(found.half, regression)} {unit}"
