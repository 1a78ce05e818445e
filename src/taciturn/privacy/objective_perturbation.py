"""The privacy cost of the minimiser of a perturbed objective (proof: docs/explanation/objective-perturbation.md).

The privacy loss of <b, z> with Gaussian b is at most determinant + m^2/2 + m X, where m = Delta_2 / scale and X has
the chi distribution with `outputs` degrees of freedom.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from taciturn.privacy.events import Objective, exposure

Floats = NDArray[np.float64]

POINTS = 2000  # of the Riemann sum that bounds the delta of a single minimiser from above
ROUNDING = 4e-16  # a generous relative error of one operation on logarithms


def log_chi_mgf(t: Floats, k: int) -> Floats:
    """Return an upper bound on ln E exp(t X) for t >= 0, X being the length of k independent standard normal numbers.

    I_k = int_0^inf x^(k-1) exp(t x - x^2/2) dx satisfies I_(k+1) = t I_k + (k-1) I_(k-1). All terms are positive, so
    nothing cancels; the recursion runs over the logarithms of I_k exp(-t^2/2).
    """
    from scipy.special import gammaln, log_ndtr

    with np.errstate(divide="ignore", over="ignore"):
        log_t, square = np.log(t), t * t
        before: Floats = 0.5 * math.log(2.0 * math.pi) + log_ndtr(t)
        here = before if k == 1 else np.logaddexp(-square / 2.0, log_t + before)
        for j in range(2, k):
            before, here = here, np.logaddexp(log_t + here, math.log(j - 1) + before)
    whole = (k / 2.0 - 1.0) * math.log(2.0) + float(gammaln(k / 2.0))  # I_k where t = 0
    rounding = ROUNDING * (k * (np.abs(here) + abs(whole) + 1.0) + square)
    total: Floats = square / 2.0 + here - whole + rounding
    return total


def renyi(event: Objective, orders: Floats) -> Floats:
    """Return the Renyi divergence of a minimiser at every order a: the smaller of two bounds.

    The first takes the worst b: d + m^2/2 + ln E exp((a-1) m X) / (a-1), d being the determinant. The second shifts b,
    and is far smaller if d is small: a m^2/2 - ln[(1 - (a-1) (e^d - 1)) (1 + (a-1) (1 - e^-d))] / (a-1), valid while
    the first factor is positive.

    Parameters
    ----------
    event : Objective
        With the mechanism objective-gaussian.
    orders : Array, [n]
        The orders a > 1.

    Returns
    -------
    Array, [n]
    """
    m, d, less = exposure(event), event.determinant, orders - 1.0
    if math.isinf(m):
        return np.full_like(orders, np.inf)
    with np.errstate(divide="ignore", over="ignore"):
        room = np.maximum(1.0 - less * np.expm1(d), 0.0)
        volume = np.log(room) + np.log1p(-less * np.expm1(-d)) - 4.0 * ROUNDING
        shifted = orders * m * m / 2.0 - volume / less
    smaller: Floats = np.minimum(shifted, d + m * m / 2.0 + _worst(m, event.outputs, orders.tobytes()))
    return smaller


@lru_cache(maxsize=64)
def _worst(m: float, k: int, orders: bytes) -> Floats:
    """Return ln E exp((a-1) m X) / (a-1); the objectives of many rounds share it, and bytes are hashable."""
    less = np.frombuffer(orders) - 1.0
    part: Floats = log_chi_mgf(less * m, k) / less
    return part


def single_epsilon(event: Objective, mu: float, delta: float, most: float) -> float:
    """Return the epsilon of one minimiser beside Gaussian releases of mu-GDP, or `most` if that is smaller.

    delta(epsilon) <= E delta_mu(epsilon - determinant - m^2/2 - m X), delta_mu being the Gaussian mechanism's. It grows
    with X, so its Riemann sum with P(X > x) at the left end of every step is an upper bound.
    """
    from scipy.special import chdtrc, chdtri

    m, k = exposure(event), event.outputs
    if math.isinf(most):
        return most
    x = np.linspace(0.0, math.sqrt(chdtri(k, 1e-6 * delta)), POINTS)
    beyond = chdtrc(k, x * x)  # P(X > x)
    loss = event.determinant + m * m / 2.0 + m * x

    def affordable(epsilon: float) -> bool:
        given = np.maximum.accumulate(gaussian_delta(epsilon - loss, mu))
        return bool(given[0] + np.diff(given, append=1.0) @ beyond <= delta)

    low, high = 0.0, most
    if not affordable(high):
        return most
    while high - low > 1e-7 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return high


def gaussian_delta(epsilon: Floats, mu: float) -> Floats:
    """Return Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu); for mu = 0 it is max(0, 1 - e^eps)."""
    from scipy.special import log_ndtr, ndtr

    if mu == 0.0:
        return -np.expm1(np.minimum(epsilon, 0.0))
    shifted = epsilon / mu
    return np.clip(ndtr(mu / 2.0 - shifted) - np.exp(epsilon + log_ndtr(-mu / 2.0 - shifted)), 0.0, 1.0)
