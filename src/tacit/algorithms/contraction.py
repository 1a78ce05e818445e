"""Where a local step brings two iterates no further apart, whatever the records: what some guarantees need."""

from __future__ import annotations

import math

from tacit.errors import InputError
from tacit.problems import Problem


def largest_eta(name: str, problem: Problem, bound: float, records_max: int) -> float:
    """2 / L, up to which every step of a convex L-smooth f_p contracts; what has no L is refused."""
    smoothness = problem.public_smoothness(bound, records_max)
    if not math.isfinite(smoothness * problem.loss.residual_bound):
        raise InputError(f"{name} needs a smooth loss with bounded gradient, and a smooth regulariser: softmax with l2")
    return 2.0 / smoothness


def check_eta(name: str, eta: float, largest: float) -> None:
    """Refuse steps that might not contract."""
    if eta > largest:
        raise InputError(
            f"{name} needs eta L <= 2 for its updates to contract: eta is {eta:g}, and with L from the public bounds "
            f"(records-max, record-bound) it can be at most {largest:g}"
        )
