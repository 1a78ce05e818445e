"""Confidence intervals of quality measures, in closed form: no seed, and one pass over the records.

All are two-sided with level 95 % and take the records as independent draws.

=====================  =========================================================================================
share                  Wilson's score interval (1927)
F1                     Wilson's interval of TP / (TP + FP + FN), of which F1 is an increasing function
AUROC                  Newcombe's score interval (Statistics in Medicine 2006, method 5), from Hanley and McNeil's
                       variance
mean, root mean        Student's t interval of the mean over the records, its lower end on a logarithmic scale, so that
                       it is never below 0, and its upper end at most the largest value that the measure can have
R²                     1 minus such an interval of the unexplained share, with the delta method's standard error
mean over classes      precision and recall, which are independent from class to class: Zou and Donner's (2008), from
                       the classes' intervals; F1 and AUROC, which are not: the mean of the classes' intervals, which is
                       wide enough for any correlation
=====================  =========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from taciturn.types import Array

Z = 1.959963984540054  # the normal distribution's 97.5 % quantile
HALVINGS = 50


class Bounds(NamedTuple):
    """The ends of a 95 % confidence interval."""

    low: float
    high: float


def share_bounds(hits: float, n: float) -> Bounds | None:
    """Return Wilson's interval for a share of which `hits` of n records were seen; None without records.

    >>> low, high = share_bounds(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if n <= 0:
        return None
    share, z2 = hits / n, Z**2 / n
    middle = (share + z2 / 2.0) / (1.0 + z2)
    half = Z * math.sqrt(share * (1.0 - share) / n + z2 / (4.0 * n)) / (1.0 + z2)
    return Bounds(0.0 if hits == 0 else max(0.0, middle - half), 1.0 if hits == n else min(1.0, middle + half))


def f1_bounds(true_positives: float, mistakes: float) -> Bounds | None:
    """Return the interval of F1 = 2 TP / (2 TP + FP + FN), with mistakes = FP + FN; None if all are 0.

    J = TP / (TP + FP + FN) is a share, and F1 = 2 J / (1 + J).
    """
    found = share_bounds(true_positives, true_positives + mistakes)
    return None if found is None else Bounds(*(2.0 * j / (1.0 + j) for j in found))


def auroc_bounds(auroc: float, positives: int, negatives: int) -> Bounds:
    """Return the values of AUROC from which the measured one is at most Z standard errors away.

    The standard error is a function of the true AUROC, so the interval does not shrink to a point at 1.

    >>> low, high = auroc_bounds(1.0, 20, 20)
    >>> round(low, 2), high
    (0.9, 1.0)
    """
    others = (positives + negatives) / 2.0 - 1.0

    def inside(theta: float) -> bool:
        spread = 1.0 + others * ((1.0 - theta) / (2.0 - theta) + theta / (1.0 + theta))
        return (auroc - theta) ** 2 < Z**2 * theta * (1.0 - theta) * spread / (positives * negatives)

    def end(limit: float) -> float:
        near, far = auroc, limit
        for _ in range(HALVINGS):
            middle = (near + far) / 2.0
            near, far = (middle, far) if inside(middle) else (near, middle)
        return near

    return Bounds(end(0.0) if auroc > 0.0 else 0.0, end(1.0) if auroc < 1.0 else 1.0)


def average_bounds(values: Sequence[float], bounds: Sequence[Bounds], independent: bool) -> Bounds:
    """Return the interval of the mean of several estimates from their own intervals.

    Distances from an estimate to the ends of its interval add up like standard errors: the root of the sum of their
    squares if the estimates are independent, at most the sum if they are not.

    >>> average_bounds([0.4, 0.6], [Bounds(0.1, 0.7), Bounds(0.2, 0.8)], independent=True)
    Bounds(low=0.25, high=0.68...)
    """
    n, mean = len(values), fmean(values)
    add = math.hypot if independent else lambda *distances: math.fsum(distances)
    low = add(*(value - one.low for value, one in zip(values, bounds, strict=True)))
    high = add(*(one.high - value for value, one in zip(values, bounds, strict=True)))
    return Bounds(mean - low / n, mean + high / n)


def mean_bounds(values: Array, most: float = math.inf) -> Bounds | None:
    """Return the interval of the mean m of values [n] from 0 to `most`; None for a single one.

    With h = t(97.5 %, n - 1) s / sqrt(n) it is from m exp(-h / m), the lower end of the interval of ln m, to m + h.

    >>> import numpy as np
    >>> low, high = mean_bounds(np.array([1.0, 2.0, 3.0]))
    >>> round(low, 4), round(high, 4)
    (0.5776, 4.4841)
    """
    half = _half_width(values)
    return None if half is None else _positive_bounds(float(values.mean()), half, most)


def _half_width(values: Array) -> float | None:
    """Return t(97.5 %, n - 1) s / sqrt(n) of values [n]; None for a single one."""
    n = len(values)
    if n < 2:
        return None
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / math.sqrt(n))


def _positive_bounds(mean: float, half: float, most: float) -> Bounds:
    return Bounds(mean * math.exp(-half / mean) if mean > 0.0 else 0.0, min(mean + half, most))


def root_mean_bounds(squares: Array) -> Bounds | None:
    """Return the interval of a root mean square: the roots of the interval of the mean of squares [n]."""
    found = mean_bounds(squares)
    return None if found is None else Bounds(math.sqrt(found.low), math.sqrt(found.high))


def r2_bounds(squares: Array, deviations: Array) -> Bounds | None:
    """Return the interval of R² = 1 - mean(squares) / mean(deviations).

    Parameters
    ----------
    squares
        Squared errors [n].
    deviations
        Squared distances of the labels from their mean [n]; not all 0.
    """
    ratio = float(squares.mean() / deviations.mean())
    half = _half_width((squares - ratio * deviations) / deviations.mean())  # the influence of each record
    if half is None:
        return None
    unexplained = _positive_bounds(ratio, half, math.inf)
    return Bounds(1.0 - unexplained.high, 1.0 - unexplained.low)
