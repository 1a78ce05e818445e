"""Accountants: valid upper bounds on the epsilon of composed events, of which the tightest is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from taciturn.core.registry import Registry
from taciturn.privacy.events import (
    DISCRETE_LAPLACE,
    L2_LAPLACE,
    OBJECTIVE_L2_LAPLACE,
    Event,
    Noise,
    Objective,
    exposure,
)

Counts: TypeAlias = Mapping[Event, int]
"""How often each event happened."""

Accountant: TypeAlias = Callable[[Counts, float], float | None]
"""(events, delta) -> epsilon: how often each event happened, the delta of (epsilon, delta), and the epsilon that the
accountant proves; None if it cannot handle one of the events, or is known not to be the tightest."""

LAPLACES = ("laplace", DISCRETE_LAPLACE)


class AccountantSpec(NamedTuple):
    """An accountant with what a report says of it and how calibration uses it.

    Parameters
    ----------
    bound : callable
        The accountant.
    description : str
        What proves the bound, for reports.
    rank : int, default 99
        Calibration asks accountants in this order; slow ones come last and are asked only if they can win.
    tolerance : float, default 1e-6
        The relative error of a calibrated scale; slow accountants are searched less finely.
    """

    bound: Accountant
    description: str
    rank: int = 99
    tolerance: float = 1e-6


ACCOUNTANTS: Registry[AccountantSpec] = Registry("accountant", __name__)
NO_ACCOUNTANT = "none"


def pure(counts: Counts, delta: float) -> float | None:
    """Return the sum of the pure epsilons of all events, or None if one has none.

    The bound holds at delta = 0, so at every delta.

    Examples
    --------
    >>> pure({Noise("laplace", 4.0, 1.0, 1.0): 8}, 1e-6)
    2.0
    """
    return additive_cost(counts, pure_epsilon)


ACCOUNTANTS.register("pure")(
    AccountantSpec(pure, "pure composition: the epsilons of the releases added up (delta is 0)", rank=2)
)


def additive_cost(counts: Counts, cost: Callable[[Event], float | None]) -> float | None:
    """Return the sum of the events' costs, or None if the cost of one is unknown (None)."""
    costs = [count * value for event, count in counts.items() if (value := cost(event)) is not None]
    return math.fsum(costs) if len(costs) == len(counts) else None


def pure_epsilon(event: Event) -> float | None:
    """Return the pure epsilon of one event, or None if it has none.

    It is Delta_1 / b for Laplace noise and Delta_2 / b for noise of density ~ exp(-||xi||_2 / b); a perturbed objective
    adds its determinant (docs/explanation/objective-perturbation.md).

    >>> pure_epsilon(Noise("l2-laplace", 4.0, math.inf, 1.0)), pure_epsilon(Noise("gaussian", 1.0, 1.0, 1.0))
    (0.25, None)
    """
    if isinstance(event, Objective) and event.mechanism == OBJECTIVE_L2_LAPLACE:
        return exposure(event) + event.determinant
    if isinstance(event, Noise) and event.mechanism == L2_LAPLACE:
        return exposure(event)
    if isinstance(event, Noise) and event.mechanism in LAPLACES:
        return event.l1 / event.scale
    return None


def describe_accountant(name: str) -> str:
    """Return what proves the bounds of an accountant, or that there is none.

    >>> describe_accountant("none")
    'no accountant gives a finite bound'
    """
    return "no accountant gives a finite bound" if name == NO_ACCOUNTANT else ACCOUNTANTS[name].description


class EpsilonBound(NamedTuple):
    """A valid epsilon, and the accountant that proves it.

    Parameters
    ----------
    epsilon : float
        The bound.
    accountant : str
        A key of `ACCOUNTANTS`, or "none".
    """

    epsilon: float
    accountant: str


def tightest(counts: Counts, delta: float) -> EpsilonBound:
    """Return the smallest epsilon that any accountant proves at delta.

    Parameters
    ----------
    counts : mapping of Event to int
        How often each event happened.
    delta : float
        The delta of (epsilon, delta).

    Returns
    -------
    EpsilonBound
        Infinite, with accountant "none", if no accountant can handle all events.

    Examples
    --------
    >>> tightest({Noise("gaussian", 4.0, math.inf, 1.0): 2}, 1e-6).accountant
    'gdp'
    """
    counts = {event: count for event, count in counts.items() if count}
    if not counts:
        return EpsilonBound(0.0, "pure")
    bounds = ((ACCOUNTANTS[name].bound(counts, delta), name) for name in ACCOUNTANTS)
    proven = (EpsilonBound(epsilon, name) for epsilon, name in bounds if epsilon is not None)
    return min(proven, default=EpsilonBound(math.inf, NO_ACCOUNTANT))
