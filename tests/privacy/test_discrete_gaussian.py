"""The theorem of docs/explanation/discrete-gaussian.md, tested against exact probabilities."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import astuple
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from scipy.stats import norm

from taciturn.algorithms.privacy_costs import IntegerGrid
from taciturn.privacy.accountants import tightest
from taciturn.privacy.accountants.gdp import TAIL, Slack, gdp, slack_of
from taciturn.privacy.accountants.zcdp import zcdp
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.events import Discrete, Event

DIGITS = 160
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")


def erf(z: Decimal) -> Decimal:
    """The series at zero; its largest term, e^(z^2), takes that many digits away."""
    term = total = z
    n = 0
    while abs(term) > Decimal(10) ** -DIGITS:
        n += 1
        term *= -z * z / n
        total += term / (2 * n + 1)
    return 2 * total / PI.sqrt()


@cache
def rounded(x: int, sigma: float) -> Decimal:
    """P(R = x): the continuous Gaussian between x - 1/2 and x + 1/2."""
    s = Decimal(sigma) * Decimal(2).sqrt()
    return (erf((x + Decimal("0.5")) / s) - erf((x - Decimal("0.5")) / s)) / 2


def weight(x: int, sigma: float) -> Decimal:
    return (-(Decimal(x) ** 2) / (2 * Decimal(sigma) ** 2)).exp()


def normaliser(sigma: float) -> Decimal:
    return sum((weight(x, sigma) for x in range(-int(30 * sigma) - 5, int(30 * sigma) + 6)), Decimal(0))


@pytest.mark.parametrize(("s", "shares"), [(0.6, 2), (1.0, 2), (1.0, 3), (1.0, 7), (1.5, 4)])
def test_shares_add_up_to_one_discrete_gaussian(s: float, shares: int) -> None:
    """The statement of docs/explanation/trust.md; for two shares it is not much too large."""
    with localcontext(prec=60):
        reach = int(9 * s * math.sqrt(shares)) + 2
        one = {x: weight(x, s) / normaliser(s) for x in range(-reach, reach + 1)}
        total = one
        for _ in range(shares - 1):
            wide = range(-reach, reach + 1)
            total = {z: sum((p * one.get(z - x, Decimal(0)) for x, p in total.items()), Decimal(0)) for z in wide}
        sigma = s * math.sqrt(shares)
        whole = normaliser(sigma)
        middle = range(-int(3 * sigma), int(3 * sigma) + 1)  # beyond it the sums above are cut off
        worst = max(abs((total[z] * whole / weight(z, sigma)).ln()) for z in middle)
        rates = [math.exp(-2.0 * math.pi**2 * s**2 * k / (k + 1)) for k in range(1, shares)]
        assert max(rates) <= 0.05
        assert float(worst) <= 5.0 * sum(rates)
        assert shares > 2 or float(worst) >= rates[0]


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0, 3.0, 20.0])
def test_the_normaliser(sigma: float) -> None:
    """1 <= Z / (sigma sqrt(2 pi)) <= 1 + 3 exp(-2 pi^2 sigma^2); the factor is 2, and not 1, where it matters."""
    with localcontext(prec=DIGITS):
        excess = normaliser(sigma) / (Decimal(sigma) * (2 * PI).sqrt()) - 1
        smallest = (-2 * (PI * Decimal(sigma)) ** 2).exp()
        if smallest > Decimal(10) ** -90:  # as many digits as pi has here
            assert 2 * smallest <= excess <= 3 * smallest
        else:
            assert abs(excess) < Decimal(10) ** -90


@pytest.mark.parametrize("sigma", [0.4, 1.0, 2.5, 10.0])
@pytest.mark.parametrize("reach", [1.0, 4.0, 8.0])
def test_the_slack_bounds_the_ratio_of_probabilities(sigma: float, reach: float) -> None:
    """-K- <= ln P(N_Z = x) / P(R = x) <= K+ of one coordinate, the upper bound at every x, the lower within B sigma."""
    slack = slack_of(Discrete(sigma, 0.0, sigma, 1), reach)
    with localcontext(prec=DIGITS):
        total = normaliser(sigma)
        inside, outside = int(reach * sigma), int((reach + 3.0) * sigma) + 1
        ratios = [(weight(x, sigma) / total / rounded(x, sigma)).ln() for x in range(outside + 1)]
    assert max(map(float, ratios)) <= slack.above
    assert -float(min(ratios[: inside + 1])) <= slack.below
    if sigma == 10.0:  # the ratio is about (1 - (x / sigma)^2) / (24 sigma^2)
        assert float(ratios[0]) > 0.99 * slack.above
        assert -float(ratios[inside]) > (0.99 - reach**-2) * slack.below
    assert sorted(ratios, reverse=True) == ratios


@cache
def discrete(sigma: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Probabilities of -n..n, where n is out of reach."""
    n = int(14 * sigma) + 2
    with localcontext(prec=50):
        total = normaliser(sigma)
        return np.array([float(weight(x, sigma) / total) for x in range(-n, n + 1)])


@cache
def summed(sigma: float, rounds: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Probabilities of the sum of `rounds` draws."""
    return discrete(sigma) if rounds == 1 else np.convolve(summed(sigma, rounds - 1), discrete(sigma))


def divergence(sigma: float, shift: int, rounds: int, epsilon: float) -> float:
    """The exact delta of so many releases that one unit moves by `shift`: their sum is sufficient."""
    every = summed(sigma, rounds)
    moved = rounds * shift
    p, q = np.concatenate([np.zeros(moved), every]), np.concatenate([every, np.zeros(moved)])
    return float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum())


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(norm.cdf(mu / 2.0 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2.0 - epsilon / mu))


@pytest.mark.parametrize(
    ("sigma", "shift", "rounds"), [(1.0, 1, 1), (2.0, 1, 4), (3.0, 2, 3), (5.0, 1, 12), (8.0, 8, 2)]
)
@pytest.mark.parametrize("reach", [3.0, 5.0, TAIL])
def test_the_theorem_holds_for_exact_probabilities(sigma: float, shift: int, rounds: int, reach: float) -> None:
    """delta_discrete(epsilon + K+ + K-) <= e^K+ delta_continuous(epsilon) + p, at every epsilon."""
    slack = slack_of(Discrete(sigma, float(shift), sigma, 1), reach) * rounds
    mu = math.sqrt(rounds) * shift / sigma
    for epsilon in np.linspace(0.0, 6.0, 25):
        bound = math.exp(slack.above) * gaussian_delta(mu, epsilon) + slack.outside
        assert divergence(sigma, shift, rounds, epsilon + slack.above + slack.below) <= bound


@pytest.mark.parametrize("reach", [3.0, TAIL])
def test_the_theorem_holds_for_an_analyst_who_chooses_the_next_release(reach: float) -> None:
    """After a first output above 0, one that is moved twice as far under twice the noise; else one like the first.

    mu^2 is the same on both paths, and the slack the larger of both.
    """
    first, second = discrete(2.0), discrete(4.0)
    n, m = len(first) // 2, len(second) // 2
    worst = slack_of(Discrete(2.0, 1.0, 2.0, 1), reach)
    slack, mu = worst * 2, math.sqrt(0.5)
    assert slack_of(Discrete(4.0, 2.0, 4.0, 1), reach).below < worst.below

    def joint(moved: bool) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        y = np.arange(-n - 4, n + 5)
        ahead, near = np.roll(np.pad(first, 4), moved), np.roll(np.pad(first, m - n + 4), moved)
        far = np.roll(np.pad(second, 4), 2 * moved)
        return np.stack([p * (far if at > 0 else near) for p, at in zip(ahead, y, strict=True)])

    p, q = joint(True), joint(False)
    assert p.sum() == pytest.approx(1.0) == q.sum()
    for epsilon in np.linspace(0.0, 5.0, 21):
        bound = math.exp(slack.above) * gaussian_delta(mu, epsilon) + slack.outside
        far_apart = np.exp(epsilon + slack.above + slack.below)
        assert max(np.maximum(p - far_apart * q, 0.0).sum(), np.maximum(q - far_apart * p, 0.0).sum()) <= bound


def test_without_slack_the_closed_form_is_exceeded() -> None:
    """So there is something to prove: at whole multiples of sigma^2 the discrete delta is the larger one."""
    pairs = [(divergence(2.0, 1, 4, e), gaussian_delta(1.0, e)) for e in np.linspace(0.0, 4.0, 81)]
    assert max(ours / theirs for ours, theirs in pairs) > 1.001


@pytest.mark.parametrize(("sigma", "rounds"), [(30.0, 3), (100.0, 2)])
def test_several_coordinates_compose_as_more_rounds_do(sigma: float, rounds: int) -> None:
    """Epsilon by the accountant bounds the exact divergence of coordinates and rounds, and zCDP's does too."""
    shift = round(sigma / 5.0)
    counts: dict[Event, int] = {Discrete(sigma, shift * math.sqrt(2.0), sigma, 2): rounds}  # both coordinates move
    for delta in (1e-3, 1e-6):
        for accountant in (gdp, zcdp):
            epsilon = accountant(counts, delta)
            assert epsilon is not None
            assert divergence(sigma, shift, 2 * rounds, epsilon) <= delta
    close = gdp(counts, 1e-6)
    assert close is not None
    assert close == pytest.approx(get_epsilon_gaussian(sigma / (shift * math.sqrt(2 * rounds)), 1e-6), rel=0.02)


def test_the_slack_by_hand() -> None:
    found = slack_of(Discrete(2.0, 1.0, 100.0, 50))
    by_hand = (50 / 240000.0, 50 * 12.5**2 / 240000.0, 100.0 * math.exp(-72.0))
    assert astuple(found) == pytest.approx(by_hand)
    coarse = slack_of(Discrete(2.0, 0.0, 0.5, 50), 1.0)
    assert coarse.below == pytest.approx(50 / 6.0 + 150.0 * math.exp(-(math.pi**2) / 2.0), rel=1e-12)
    assert slack_of(Discrete(2.0, 1.0, 0.2, 50)) == Slack(math.inf, math.inf, 1.0)
    assert slack_of(Discrete(2.0, 1.0, math.nan, 50)) == Slack(math.inf, math.inf, 1.0)
    both = gdp({Discrete(2.0, 1.0, 100.0, 50): 2, Discrete(4.0, 1.0, 100.0, 10): 3}, 1e-6)
    slack = found * 2 + slack_of(Discrete(4.0, 1.0, 100.0, 10)) * 3
    inner = (1e-6 - slack.outside) * math.exp(-slack.above)
    mu = math.sqrt(2 / 4 + 3 / 16)
    assert both == pytest.approx(get_epsilon_gaussian(1.0 / mu, inner) + slack.above + slack.below, rel=1e-10)


def test_a_delta_below_what_is_left_outside_needs_zcdp() -> None:
    counts: dict[Event, int] = {Discrete(20.0, 1.0, 1e9, 8000): 300}
    assert gdp(counts, 1e-26) == math.inf
    assert tightest(counts, 1e-26).accountant == "zcdp" and math.isfinite(tightest(counts, 1e-26).epsilon)
    assert tightest({Discrete(20.0, 1.0, 20.0, 8000): 300}, 1e-6).accountant == "zcdp"  # integers that are too coarse
    assert tightest(counts, 1e-6).accountant == "gdp"


@pytest.mark.parametrize("delta", [1e-6, 1e-9])
@pytest.mark.parametrize("coordinates", [1960, 20_320, 125_984])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_noise_is_that_of_the_closed_form(epsilon: float, coordinates: int, delta: float) -> None:
    """At most 1.0001 of it, with the integers that a hardened run of 60,000 records would take."""
    clip, records = 0.075, 60_000
    grid = IntegerGrid(records, records, clip, coordinates)
    l2 = clip / records

    def events(multiplier: float) -> Counter[Event]:
        return Counter({Discrete(multiplier * l2, l2, grid.sigma(multiplier * l2), coordinates): 300})

    multiplier = calibrate(events, epsilon, delta)
    assert 1.0 <= multiplier / (get_sigma_gaussian(epsilon, delta) * math.sqrt(300.0)) <= 1.0001
    assert tightest(events(multiplier), delta).epsilon <= epsilon


@pytest.mark.parametrize(("sigma", "sensitivity", "count"), [(4.0, 1, 10), (16.0, 5, 8), (40.0, 3, 100)])
def test_the_closed_form_with_its_slack_bounds_privacy_loss_distributions(
    sigma: float, sensitivity: int, count: int
) -> None:
    """One coordinate, whose losses dp-accounting composes numerically; with many integers the two are the same."""
    delta, found = 1e-6, []
    for pessimistic in (False, True):
        one = from_discrete_gaussian_mechanism(
            sigma, sensitivity, pessimistic_estimate=pessimistic, value_discretization_interval=1e-3
        )
        found.append(one.self_compose(count).get_epsilon_for_delta(delta))
    closed = gdp({Discrete(sigma, float(sensitivity), sigma, 1): count}, delta)
    slack = slack_of(Discrete(sigma, float(sensitivity), sigma, 1)) * count
    assert closed is not None and found[0] <= closed
    assert closed <= 1.01 * found[1] + slack.above + slack.below + 1e-3 * count
