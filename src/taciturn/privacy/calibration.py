"""From a total budget to the scale of the noise, and from a scale to the rounds a budget affords."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from taciturn.errors import InputError
from taciturn.privacy.accountants import ACCOUNTANTS, Accountant, Counts, tightest

CountsAt: TypeAlias = Callable[[float], Counts]
"""The events of a whole run, for a scale of their noise."""

SLOW_LAST = ("gdp", "pure", "zcdp", "rdp", "pld")
TOLERANCE = {"rdp": 1e-4, "pld": 2e-4}  # relative, of the scale; what takes long is searched less finely
FINE = 1e-6
LARGEST = 1e15  # scales beyond it stand for a sensitivity without a bound


def calibrate(events: CountsAt, total_epsilon: float, delta: float) -> float:
    """The smallest scale at which the events cost at most total_epsilon by the tightest accountant."""
    best = math.inf
    for name in sorted(ACCOUNTANTS, key=SLOW_LAST.index):
        cost = _cost(ACCOUNTANTS[name], events, delta)
        if cost(1.0) is not None and (math.isinf(best) or _number(cost(best)) < total_epsilon):
            best = min(best, _smallest(cost, total_epsilon, best, TOLERANCE.get(name, FINE)))
    if math.isinf(best):
        raise _unaffordable(events(LARGEST), total_epsilon, delta)
    return best


def _unaffordable(endless: Counts, total_epsilon: float, delta: float) -> InputError:
    """What to say where no noise is enough: an objective's determinant is paid whatever the noise."""
    least = tightest(endless, delta).epsilon
    if math.isfinite(least):
        return InputError(
            f"total-epsilon {total_epsilon:g} is too small: these releases cost epsilon {least:.4g} with any noise"
        )
    mechanism = next(iter(endless)).mechanism
    return InputError(f"no accountant adds up {mechanism} noise: there is no finite guarantee")


def _cost(accountant: Accountant, events: CountsAt, delta: float) -> Callable[[float], float | None]:
    return cache(lambda scale: accountant(events(scale), delta))


def _number(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


def _smallest(cost: Callable[[float], float | None], total: float, start: float, tolerance: float) -> float:
    """Bisection for the scale on the side that never exceeds the budget; the cost falls with the scale."""

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
            raise InputError(f"total-epsilon {total:g} is so large that its noise vanishes: use inf, which says so")
    while high > low * (1.0 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return high


def affordable_rounds(events: Callable[[int], Counts], total_epsilon: float, delta: float, most: int) -> int:
    """How many rounds the budget allows, up to `most`; `events` gives those of the first n rounds."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        fits = tightest(events(middle), delta).epsilon <= total_epsilon
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
