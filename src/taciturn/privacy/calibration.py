"""Calibration: the noise scale that a total budget needs, and the rounds that a budget affords at a given scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from taciturn.errors import InputError
from taciturn.privacy.accountants import ACCOUNTANTS, Accountant, Counts, tightest

CountsAt: TypeAlias = Callable[[float], Counts]
"""The events of a whole run as a function of the scale of their noise."""

LARGEST = 1e15  # a larger scale means that the sensitivity has no bound
LARGE_DELTA = 0.1  # times one over the number of records


def delta_condition(delta: float, total_records: int) -> str:
    """Return what is wrong with a delta for so many records; empty if it is far below one over their number.

    Examples
    --------
    >>> delta_condition(0.05, 700)
    'delta 0.05 is 35 times one over 700 records: it would allow publishing whole records'
    >>> delta_condition(1e-6, 700)
    ''
    """
    share = delta * total_records
    if share < LARGE_DELTA:
        return ""
    harm = "it should be far smaller" if share < 1.0 else "it would allow publishing whole records"
    return f"delta {delta:g} is {float(f'{share:.2g}'):,g} times one over {total_records:,} records: {harm}"


def calibrate(events: CountsAt, total_epsilon: float, delta: float) -> float:
    """Return the smallest noise scale at which the events cost at most `total_epsilon` by the tightest accountant.

    Parameters
    ----------
    events : callable
        Maps a scale to the events of the whole run. Their cost must not grow with the scale.
    total_epsilon, delta : float
        The budget.

    Returns
    -------
    float
        The scale, rounded up to the search's tolerance, so that the cost never exceeds the budget.

    Raises
    ------
    InputError
        If no scale is large enough, or if the budget is so large that the noise vanishes.

    Examples
    --------
    >>> from taciturn.privacy.events import Noise
    >>> scale = calibrate(lambda scale: {Noise("gaussian", scale, math.inf, 1.0): 10}, 1.0, 1e-6)
    >>> round(scale, 2)
    13.36
    """
    best = math.inf
    for name in sorted(ACCOUNTANTS, key=lambda name: (ACCOUNTANTS[name].rank, name)):
        accountant = ACCOUNTANTS[name]
        cost = _cost(accountant.bound, events, delta)
        if cost(1.0) is not None and (math.isinf(best) or _number(cost(best)) < total_epsilon):
            best = min(best, _smallest(cost, total_epsilon, best, accountant.tolerance))
    if math.isinf(best):
        raise _unaffordable(events(LARGEST), total_epsilon, delta)
    return best


def _unaffordable(largest_noise: Counts, total_epsilon: float, delta: float) -> InputError:
    """Return the error for a budget that no noise satisfies; an objective's determinant costs the same at any noise."""
    least = tightest(largest_noise, delta).epsilon
    if math.isfinite(least):
        return InputError(
            f"total-epsilon {total_epsilon:g} is too small: these releases cost epsilon {least:.4g} with any noise"
        )
    mechanism = next(iter(largest_noise)).mechanism
    return InputError(f"no accountant composes {mechanism} noise, so there is no finite guarantee")


def _cost(accountant: Accountant, events: CountsAt, delta: float) -> Callable[[float], float | None]:
    return cache(lambda scale: accountant(events(scale), delta))


def _number(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


def _smallest(cost: Callable[[float], float | None], total: float, start: float, tolerance: float) -> float:
    """Find the smallest affordable scale by bisection, from the side that never exceeds the budget."""

    def affordable(scale: float) -> bool:
        return _number(cost(scale)) <= total

    high = start if math.isfinite(start) else 1.0
    while not affordable(high):
        high *= 4.0
        if high > LARGEST:
            return math.inf
    low = high / 2.0
    while affordable(low):
        low, high = low / 2.0, low
        if low < 1e-9:
            raise InputError(f"total-epsilon {total:g} is so large that its noise vanishes; use inf for no privacy")
    while high > low * (1.0 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return high


def affordable_rounds(events: Callable[[int], Counts], total_epsilon: float, delta: float, most: int) -> int:
    """Return how many rounds the budget allows, at most `most`.

    Parameters
    ----------
    events : callable
        Maps n to the events of the first n rounds.
    total_epsilon, delta : float
        The budget.
    most : int
        The upper limit.

    Returns
    -------
    int
        0 if the budget does not allow a single round.

    Examples
    --------
    >>> from taciturn.privacy.events import Noise
    >>> affordable_rounds(lambda n: {Noise("laplace", 4.0, 1.0, 1.0): n}, 2.0, 1e-12, most=50)
    8
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        fits = tightest(events(middle), delta).epsilon <= total_epsilon
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
