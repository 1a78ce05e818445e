"""Accountants: valid bounds on the composition of events; the tightest is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from taciturn.core.registry import Registry
from taciturn.privacy.events import DISCRETE_LAPLACE, L2_LAPLACE, OBJECTIVE_L2_LAPLACE, Event, Noise, Objective

Counts: TypeAlias = Mapping[Event, int]
"""How often each event happened."""

Accountant: TypeAlias = Callable[[Counts, float], float | None]
"""(events, delta) -> epsilon, or None where the accountant knows nothing of an event."""

ACCOUNTANTS: Registry[Accountant] = Registry("accountant", __name__)


LAPLACES = ("laplace", DISCRETE_LAPLACE)


@ACCOUNTANTS.register("pure")
def pure(counts: Counts, delta: float) -> float | None:
    """epsilon = the sum of the releases' own; it holds with delta = 0, so with any."""
    parts = [count * epsilon for event, count in counts.items() if (epsilon := pure_epsilon(event)) is not None]
    return math.fsum(parts) if len(parts) == len(counts) else None


def pure_epsilon(event: Event) -> float | None:
    """Delta_1 / b of Laplace noise, Delta_2 / b where its density falls with ||xi||_2.

    An objective's minimiser costs its determinant besides (docs/explanation/objective-perturbation.md).
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
    "rdp": "Renyi DP at many orders, of what docs/explanation/objective-perturbation.md proves for each release",
    "pld": "privacy loss distributions (dp-accounting)",
    "none": "no accountant gives a finite bound",
}


class EpsilonBound(NamedTuple):
    """An epsilon that holds, and the accountant that shows it."""

    epsilon: float
    accountant: str  # a key of EXPLAINED


def tightest(counts: Counts, delta: float) -> EpsilonBound:
    """The smallest epsilon any accountant gives at delta; infinite where none knows all events."""
    counts = {event: count for event, count in counts.items() if count}
    if not counts:
        return EpsilonBound(0.0, "pure")
    bounds = [
        EpsilonBound(epsilon, name) for name in ACCOUNTANTS if (epsilon := ACCOUNTANTS[name](counts, delta)) is not None
    ]
    return min(bounds, default=EpsilonBound(math.inf, "none"))
