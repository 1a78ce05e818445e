"""Accountants: valid upper bounds on the epsilon of composed events, of which the tightest is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from taciturn.core.registry import Registry
from taciturn.privacy.events import DISCRETE_LAPLACE, L2_LAPLACE, OBJECTIVE_L2_LAPLACE, Event, Noise, Objective

Counts: TypeAlias = Mapping[Event, int]
"""How often each event happened."""

Accountant: TypeAlias = Callable[[Counts, float], float | None]
"""(events, delta) -> epsilon, or None if the accountant cannot handle one of the events."""

ACCOUNTANTS: Registry[Accountant] = Registry("accountant", __name__)
LAPLACES = ("laplace", DISCRETE_LAPLACE)


@ACCOUNTANTS.register("pure")
def pure(counts: Counts, delta: float) -> float | None:
    """Return the sum of the pure epsilons of all events, or None if one has none.

    The bound holds at delta = 0, so at every delta.

    Parameters
    ----------
    counts : mapping of Event to int
        How often each event happened.
    delta : float
        Unused.

    Returns
    -------
    float or None

    Examples
    --------
    >>> pure({Noise("laplace", 4.0, 1.0, 1.0): 8}, 1e-6)
    2.0
    """
    return additive_cost(counts, pure_epsilon)


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
        return event.l2 / event.scale + event.determinant
    if isinstance(event, Noise) and event.mechanism == L2_LAPLACE:
        return event.l2 / event.scale
    if isinstance(event, Noise) and event.mechanism in LAPLACES:
        return event.l1 / event.scale
    return None


EXPLAINED = {
    "pure": "pure composition: the epsilons of the releases added up (delta is 0)",
    "gdp": "Gaussian composition (closed form of Balle and Wang 2018)",
    "zcdp": "zero-concentrated DP (Bun and Steinke 2016) through dp-accounting's Renyi accountant",
    "rdp": "Renyi DP at many orders, of what the page 'Perturbed objectives' proves for each release",
    "pld": "privacy loss distributions (dp-accounting)",
    "none": "no accountant gives a finite bound",
}


class EpsilonBound(NamedTuple):
    """A valid epsilon, and the accountant that proves it.

    Parameters
    ----------
    epsilon : float
        The bound.
    accountant : str
        A key of `EXPLAINED`.
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
    bounds = [
        EpsilonBound(epsilon, name) for name in ACCOUNTANTS if (epsilon := ACCOUNTANTS[name](counts, delta)) is not None
    ]
    return min(bounds, default=EpsilonBound(math.inf, "none"))
