"""Renyi differential privacy: divergences of every order add up. Used for Poisson samples and perturbed objectives."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from taciturn.privacy.accountants import ACCOUNTANTS, AccountantSpec, Counts, additive_cost
from taciturn.privacy.accountants.gdp import mu_squared, square
from taciturn.privacy.accountants.zcdp import ORDERS, zcdp_rho
from taciturn.privacy.events import OBJECTIVE_GAUSSIAN, Event, Objective, Sampled, exposure
from taciturn.privacy.objective_perturbation import renyi, single_epsilon

Floats = NDArray[np.float64]

WHOLE_ORDERS = np.array([*range(2, 64), *range(64, 128, 4), *range(128, 256, 16), *range(256, 1025, 64)], np.float64)
OVERFLOW = 1e200  # larger 1 / (2 sigma^2) would overflow
ROUNDING = 1e-14  # added to every sampled release's divergence, which must not be underestimated


def rdp(counts: Counts, delta: float) -> float | None:
    """Return epsilon from the sum of the events' Renyi divergences.

    Returns
    -------
    float or None
        None if an event has no known divergence, or if zcdp, which is then equally tight, handles all events.

    Examples
    --------
    >>> round(rdp({Sampled(4.0, 1.0, 0.1): 100}, 1e-6), 2)
    1.23
    """
    curve = None if additive_cost(counts, zcdp_rho) is not None else _curve(frozenset(counts.items()))
    if curve is None:
        return None
    from dp_accounting.rdp import compute_epsilon

    epsilon = float(compute_epsilon(*curve, delta)[0])
    alone = _single(counts)
    return epsilon if alone is None or delta == 0.0 else single_epsilon(*alone, delta, epsilon)


ACCOUNTANTS.register("rdp")(
    AccountantSpec(
        rdp,
        "Renyi DP at many orders, of what docs/explanation/objective-perturbation.md proves for each release",
        rank=4,
        tolerance=1e-4,
    )
)


@lru_cache(maxsize=64)
def _curve(counts: frozenset[tuple[Event, int]]) -> tuple[Floats, Floats] | None:
    """Return orders, and the divergence of all events at each; integer orders if there are samples."""
    orders = WHOLE_ORDERS if any(isinstance(event, Sampled) for event, _ in counts) else ORDERS
    total, rhos = np.zeros_like(orders), []
    for event, count in counts:
        if isinstance(event, Sampled):
            total += count * sampled_renyi(event, orders)
        elif isinstance(event, Objective) and event.mechanism == OBJECTIVE_GAUSSIAN:
            total += count * renyi(event, orders)
        elif (rho := zcdp_rho(event)) is not None:
            rhos.append(count * rho)
        else:
            return None
    return orders, total + math.fsum(rhos) * orders


def sampled_renyi(event: Sampled, orders: Floats) -> Floats:
    """Return ln sum_i C(a, i) (1-q)^(a-i) q^i exp((i^2 - i) / (2 sigma^2)) / (a-1) for integer orders a.

    sigma = scale / l2 (Mironov, Talwar and Zhang 2019, section 3.3).
    """
    from scipy.special import logsumexp, xlog1py, xlogy

    half = square(exposure(event)) / 2.0 if event.rate > 0.0 else 0.0
    if half > OVERFLOW:
        return np.full_like(orders, np.inf)
    a, i = orders[:, None], np.arange(orders[-1] + 1.0)
    drawn = xlogy(i, event.rate) + xlog1py(np.maximum(a - i, 0.0), -event.rate)
    total: Floats = logsumexp(_log_choose(tuple(orders)) + drawn + (i * i - i) * half, axis=1)
    return np.maximum(total, 0.0) / (orders - 1.0) + ROUNDING


@cache
def _log_choose(orders: tuple[float, ...]) -> Floats:
    """Return ln C(a, i), [orders, i], -inf where i > a."""
    from scipy.special import gammaln

    a, i = np.array(orders)[:, None], np.arange(orders[-1] + 1.0)
    table = gammaln(a + 1.0) - gammaln(i + 1.0) - gammaln(np.maximum(a - i, 0.0) + 1.0)
    return np.where(i <= a, table, -np.inf)


def _single(counts: Counts) -> tuple[Objective, float] | None:
    """Return the only minimiser and the mu of all Gaussian events beside it, or None if there are other events."""
    rest = [count * part for event, count in counts.items() if (part := mu_squared(event)) is not None]
    one = [event for event, count in counts.items() if isinstance(event, Objective) and count == 1]
    return (one[0], math.sqrt(math.fsum(rest))) if len(one) == 1 == len(counts) - len(rest) else None
