"""Gaussian differential privacy: Gaussian releases compose into one Gaussian release, exactly.

Discrete Gaussian noise costs a little more than continuous noise of the same scale; `Slack` bounds by how much.
docs/explanation/discrete-gaussian.md has the proof, and the one for other noise expressed as Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taciturn.privacy.accountants import ACCOUNTANTS, LAPLACES, AccountantSpec, Counts, additive_cost, pure_epsilon
from taciturn.privacy.events import Discrete, Event, Hidden, Noise, exposure
from taciturn.privacy.sensitivity import hidden_factor

TAIL = 12.0  # B: larger noise, in units of sigma, is counted in delta
FINEST = 0.25  # the smallest sigma of a discrete Gaussian for which the bound on its normaliser holds
EPSILON_ROUNDING = 1e-11  # more than rounding in the formula of delta can take away from an epsilon


@dataclass(frozen=True)
class Slack:
    """How far discrete Gaussian noise departs from rounded continuous noise, summed over all draws.

    Except for a set of transcripts of probability `outside`, a transcript is at most e^above times and at least
    e^-below times as likely.

    Parameters
    ----------
    above, below : float
        K+ and K-.
    outside : float
        p.

    Examples
    --------
    >>> Slack(0.1, 0.2, 1e-9) * 2 + NO_SLACK
    Slack(above=0.2, below=0.4, outside=2e-09)
    """

    above: float = 0.0
    below: float = 0.0
    outside: float = 0.0

    def __add__(self, other: Slack) -> Slack:
        """Return the slack of both."""
        return Slack(self.above + other.above, self.below + other.below, self.outside + other.outside)

    def __mul__(self, count: int) -> Slack:
        """Return the slack of `count` independent draws."""
        return Slack(count * self.above, count * self.below, count * self.outside)


NO_SLACK = Slack()


def slack_of(event: Event, reach: float = TAIL) -> Slack:
    """Return the slack of one event; 0 unless it is discrete Gaussian noise.

    With n coordinates and m = Delta_2 / sigma: K+ = n / (24 sigma^2), K- = n ((B + m)^2 / (24 sigma^2)
    + 3 exp(-2 pi^2 sigma^2)), p = 2 n exp(-B^2 / 2).
    """
    if not isinstance(event, Discrete):
        return NO_SLACK
    n, sigma = event.coordinates, event.sigma
    if not sigma >= FINEST:
        return Slack(math.inf, math.inf, 1.0)
    each = n / (24.0 * sigma * sigma)
    normaliser = 3.0 * n * math.exp(-2.0 * square(math.pi * sigma))
    return Slack(each, each * square(reach + exposure(event)) + normaliser, 2.0 * n * math.exp(-(reach**2) / 2.0))


def gdp(counts: Counts, delta: float) -> float | None:
    """Return epsilon of mu-GDP with mu^2 = sum of (Delta_2 / sigma)^2.

    delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

    Returns
    -------
    float or None
        None if no event is Gaussian, or if one has no known mu.

    Examples
    --------
    >>> round(gdp({Noise("gaussian", 4.0, math.inf, 1.0): 1}, 1e-6), 4)
    1.0607
    """
    if not any(is_gaussian(event) for event in counts):
        return None
    total = additive_cost(counts, gdp_mu_squared)
    if total is None:
        return None
    slack = sum((slack_of(event) * count for event, count in counts.items()), NO_SLACK)
    return gdp_epsilon(total, slack, delta)


ACCOUNTANTS.register("gdp")(AccountantSpec(gdp, "Gaussian composition (closed form of Balle and Wang 2018)", rank=1))


@lru_cache(maxsize=4096)
def gdp_epsilon(mu_squared: float, slack: Slack, delta: float) -> float:
    """Return the smallest epsilon of mu-GDP with this slack: eps(mu, (delta - p) e^-K+) + K+ + K-.

    The result is rounded up; it is infinite if an argument is NaN or the slack uses up delta.
    """
    if mu_squared == 0.0 and slack == NO_SLACK:
        return 0.0
    inner = (delta - slack.outside) * math.exp(-slack.above)
    if not (inner > 0.0 and mu_squared >= 0.0 and slack.below >= 0.0):
        return math.inf
    mu = math.sqrt(mu_squared)
    epsilon = _epsilon(mu, inner) * (1.0 + 2.0**-50) + EPSILON_ROUNDING if mu > 0.0 else 0.0
    return epsilon + slack.above + slack.below


@lru_cache(maxsize=256)
def gdp_budget(epsilon: float, slack: Slack, delta: float) -> float:
    """Return the largest mu^2 that (epsilon, delta) allows beside this slack, rounded down."""
    if gdp_epsilon(0.0, slack, delta) >= epsilon:
        return 0.0
    inner = (delta - slack.outside) * math.exp(-slack.above)
    room = epsilon - slack.above - slack.below
    mu_squared = square(_first(lambda mu: _log_delta(mu, room) > math.log(inner)))
    step = 2.0**-50
    while gdp_epsilon(mu_squared, slack, delta) > epsilon:
        mu_squared, step = mu_squared * (1.0 - step), 2.0 * step
    return mu_squared


def _epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon of one Gaussian release, to the last bits."""
    if not math.isfinite(mu):
        return math.inf
    if delta >= 1.0 or _log_delta(mu, 0.0) <= math.log(delta):
        return 0.0
    return _first(lambda epsilon: _log_delta(mu, epsilon) <= math.log(delta))


def _log_delta(mu: float, epsilon: float) -> float:
    """Return log(Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)) (Balle and Wang 2018)."""
    from scipy.special import log_ndtr

    first = float(log_ndtr(mu / 2.0 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2.0 - epsilon / mu))
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf


def _first(reached: Callable[[float], bool]) -> float:
    """Return the smallest positive number from which on the predicate holds; infinite if it never does."""
    low, high = 0.0, 1.0
    while not reached(high):
        low, high = high, 2.0 * high
        if math.isinf(high):
            return math.inf
    while True:
        middle = low + (high - low) / 2.0 if high < 1e-3 or low > 0.0 else high / 1024.0
        if not low < middle < high or high - low <= 2.0**-52 * high:
            return high
        low, high = (low, middle) if reached(middle) else (middle, high)


def mu_squared(event: Event) -> float | None:
    """Return mu^2 of a continuous Gaussian event, None for any other."""
    if isinstance(event, Hidden):
        return hidden_factor(event.contraction, event.updates) * square(exposure(event))
    if isinstance(event, Noise) and event.mechanism == "gaussian":
        return square(exposure(event))
    return None


def is_gaussian(event: Event) -> bool:
    """Return whether the event is Gaussian, continuous or discrete."""
    return isinstance(event, Discrete) or mu_squared(event) is not None


def gdp_mu_squared(event: Event) -> float | None:
    """Return a mu^2 such that the event is mu-GDP apart from its slack, or None if none is known.

    An epsilon-private release is mu-GDP with Phi(-mu/2) = 1 / (1 + e^epsilon), and mu <= sqrt(pi/2) epsilon; so Laplace
    noise, coordinate by coordinate, has mu^2 <= (pi/2) (Delta_2 / b)^2.

    >>> gdp_mu_squared(Noise("gaussian", 2.0, math.inf, 1.0))
    0.25
    """
    if isinstance(event, Discrete):
        return square(exposure(event))
    if (exact := mu_squared(event)) is not None:
        return exact
    epsilon = pure_epsilon(event)
    if epsilon is None:
        return None
    by_coordinate = math.inf
    if isinstance(event, Noise) and event.mechanism in LAPLACES:
        by_coordinate = math.pi / 2.0 * square(exposure(event))
    return min(by_coordinate, square(pure_mu(epsilon)))


def pure_mu(epsilon: float) -> float:
    """Return mu = -2 Phi^-1(1 / (1 + e^epsilon)): every epsilon-private release is mu-GDP."""
    from scipy.special import ndtri_exp

    if epsilon < 1e-3 or math.isinf(epsilon):  # Phi^-1 would lose digits
        return math.sqrt(math.pi / 2.0) * epsilon
    return -2.0 * float(ndtri_exp(-float(np.logaddexp(0.0, epsilon))))


def square(ratio: float) -> float:
    """Return ratio^2, infinite where `**` would raise OverflowError."""
    return ratio * ratio
