"""Gaussian differential privacy: Gaussian releases compose into one Gaussian release, exactly."""

from __future__ import annotations

import math

import numpy as np

from tacit.privacy.accountants import ACCOUNTANTS, Counts
from tacit.privacy.events import Event, Hidden, Noise
from tacit.privacy.hidden import hidden_factor


@ACCOUNTANTS.register("gdp")
def gdp(counts: Counts, delta: float) -> float | None:
    """mu^2 = sum of (Delta_2 / sigma)^2, and delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    parts = [count * square for event, count in counts.items() if (square := mu_squared(event)) is not None]
    if len(parts) < len(counts):
        return None
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian  # noqa: PLC0415  a second to import

    mu = math.sqrt(math.fsum(parts))
    with np.errstate(divide="ignore", over="ignore"):  # of budgets far from any use
        return float(get_epsilon_gaussian(1.0 / mu, delta)) if mu > 0.0 else 0.0


def mu_squared(event: Event) -> float | None:
    """mu^2 of one event, where it is Gaussian."""
    if isinstance(event, Hidden):
        return hidden_factor(event.contraction, event.updates) * square(event.l2 / event.scale)
    if isinstance(event, Noise) and event.mechanism == "gaussian":
        return square(event.l2 / event.scale)
    return None


def square(ratio: float) -> float:
    """ratio^2, infinite where ** would overflow."""
    return ratio * ratio
