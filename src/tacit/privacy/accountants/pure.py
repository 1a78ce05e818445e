"""Pure composition: the epsilons of Laplace releases add up."""

from __future__ import annotations

import math

from tacit.privacy.accountants import ACCOUNTANTS, Counts
from tacit.privacy.events import DISCRETE_LAPLACE, L2_LAPLACE, OBJECTIVE_L2_LAPLACE, Event, Noise, Objective

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
