"""Zero-concentrated differential privacy: rho adds up, even if releases are chosen adaptively."""

from __future__ import annotations

import math

import numpy as np

from taciturn.privacy.accountants import ACCOUNTANTS, AccountantSpec, Counts, additive_cost, pure_epsilon
from taciturn.privacy.accountants.gdp import mu_squared, square
from taciturn.privacy.events import Discrete, Event, Noise, exposure

ORDERS = 1.0 + np.geomspace(1e-2, 1e6, 800)  # of the Renyi divergence; fine enough for 1e-4 of epsilon


def zcdp(counts: Counts, delta: float) -> float | None:
    """Return epsilon of the events' total rho, or None if one has no known rho.

    Examples
    --------
    >>> round(zcdp({Noise("gaussian", 4.0, math.inf, 1.0): 1}, 1e-6), 3)
    1.143
    """
    total = additive_cost(counts, zcdp_rho)
    return None if total is None else zcdp_epsilon(total, delta)


ACCOUNTANTS.register("zcdp")(
    AccountantSpec(zcdp, "zero-concentrated DP (Bun and Steinke 2016) through dp-accounting's Renyi accountant", rank=3)
)


def zcdp_rho(event: Event) -> float | None:
    """Return rho of one event: Delta_2^2 / (2 scale^2), or None if none is known.

    For continuous and discrete Gaussian noise see Bun and Steinke 2016, and Canonne, Kamath and Steinke 2020. A Laplace
    coordinate that changes by d is d/b-private, so d^2/(2 b^2)-zCDP, and the coordinates add up to the same formula.
    Any other epsilon-private event is epsilon^2/2-zCDP; l2-laplace is Delta_2 / scale-private.
    """
    if (exact := mu_squared(event)) is not None:
        return exact / 2.0
    if isinstance(event, Noise | Discrete):
        return square(exposure(event)) / 2.0
    epsilon = pure_epsilon(event)
    return None if epsilon is None else square(epsilon) / 2.0


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon of rho-zCDP at delta.

    It is the minimum over all orders a of rho a + log(1 - 1/a) - log(delta a) / (a - 1) (proposition 12 of Canonne,
    Kamath and Steinke 2020).
    """
    if rho <= 0.0:
        return 0.0
    if math.isinf(rho):
        return math.inf
    bounds = rho * ORDERS + np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    return max(0.0, float(bounds.min()))


def zcdp_budget(epsilon: float, delta: float) -> float:
    """Return the largest rho that (epsilon, delta) allows, rounded down."""
    low, high = 0.0, 1.0
    while zcdp_epsilon(high, delta) <= epsilon:
        low, high = high, 4.0 * high
    while high > low + 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if zcdp_epsilon(middle, delta) <= epsilon else (low, middle)
    return low
