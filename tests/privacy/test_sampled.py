"""Poisson samples: the cost agrees with dp-accounting and with integrals, and calibration never exceeds the budget."""

from __future__ import annotations

import math
from collections.abc import Callable

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from taciturn.privacy.accountants import Counts, additive_cost, pure, tightest
from taciturn.privacy.accountants.gdp import gdp
from taciturn.privacy.accountants.pld import pld
from taciturn.privacy.accountants.rdp import WHOLE_ORDERS, rdp, sampled_renyi
from taciturn.privacy.accountants.zcdp import zcdp_rho
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.events import Event, Hidden, Noise, Objective, Sampled

DELTA = 1e-6
STEPS = [(0.01, 1.2, 1000), (0.1, 8.0, 300), (0.3, 2.0, 5), (1e-4, 0.6, 10_000)]  # rate, noise multiplier, releases


def theirs(rate: float, multiplier: float) -> dp_accounting.DpEvent:
    return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))


@pytest.mark.parametrize(("rate", "multiplier", "k"), STEPS)
def test_renyi_is_dp_accountings(rate: float, multiplier: float, k: int) -> None:
    """For samples alone, and together with Gaussian releases."""
    sampled, seen = Sampled(0.7 * multiplier, 0.7, rate), Noise("gaussian", 100.0, math.inf, 1.0)
    own = RdpAccountant(WHOLE_ORDERS).compose(theirs(rate, multiplier), k)
    assert rdp({sampled: k}, DELTA) == pytest.approx(own.get_epsilon(DELTA), rel=1e-6)
    own.compose(dp_accounting.GaussianDpEvent(100.0), 20)
    assert rdp({sampled: k, seen: 20}, DELTA) == pytest.approx(own.get_epsilon(DELTA), rel=1e-6)


@pytest.mark.parametrize(("rate", "multiplier", "k"), STEPS)
def test_losses_are_dp_accountings(rate: float, multiplier: float, k: int) -> None:
    """A coarser interval is a bound too, and a close one; it is what makes plans quick."""
    fine = PLDAccountant(value_discretization_interval=1e-4).compose(theirs(rate, multiplier), k)
    bound = tightest({Sampled(multiplier, 1.0, rate): k}, DELTA)
    assert bound.accountant == "pld"
    assert fine.get_epsilon(DELTA) * (1.0 - 1e-3) <= bound.epsilon <= fine.get_epsilon(DELTA) * 1.005
    assert bound.epsilon < (rdp({Sampled(multiplier, 1.0, rate): k}, DELTA) or 0.0)
    fine.compose(dp_accounting.GaussianDpEvent(9.0), 4)
    mixed = pld({Sampled(multiplier, 1.0, rate): k, Noise("gaussian", 9.0, math.inf, 1.0): 4}, DELTA)
    assert mixed == pytest.approx(fine.get_epsilon(DELTA), rel=5e-3)


@pytest.mark.parametrize(("rate", "multiplier"), [(0.05, 1.0), (0.5, 3.0), (0.9, 0.8)])
def test_the_divergence_is_the_integral(rate: float, multiplier: float) -> None:
    """E (1 - q + q N(1, s)/N(0, s))^a, under N(0, s)."""
    orders = np.array([2.0, 5.0, 11.0])

    def moment(order: float) -> float:
        def density(x: float) -> float:
            ratio = 1.0 - rate + rate * math.exp((2.0 * x - 1.0) / (2.0 * multiplier**2))
            return float(stats.norm.pdf(x, scale=multiplier) * ratio**order)

        return float(integrate.quad(density, -15.0 * multiplier, 15.0 * multiplier + order, limit=300)[0])

    exact = [math.log(moment(order)) / (order - 1.0) for order in orders]
    found = sampled_renyi(Sampled(multiplier, 1.0, rate), orders)
    np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_the_ends_of_the_rate() -> None:
    """Rate 1 is the Gaussian mechanism, rate 0 costs nothing, and the cost grows in between."""
    everybody, seen = Sampled(5.0, 1.0, 1.0), Noise("gaussian", 5.0, math.inf, 1.0)
    np.testing.assert_allclose(sampled_renyi(everybody, WHOLE_ORDERS), WHOLE_ORDERS / 50.0, rtol=1e-10)
    assert tightest({everybody: 10}, DELTA).epsilon == pytest.approx(gdp({seen: 10}, DELTA), rel=2e-3)
    assert sampled_renyi(Sampled(5.0, 1.0, 0.0), WHOLE_ORDERS).max() < 1e-12
    rates = [tightest({Sampled(2.0, 1.0, rate): 100}, DELTA).epsilon for rate in (0.001, 0.01, 0.1, 0.5, 1.0)]
    assert rates == sorted(rates) and rates[0] < 0.1 * rates[-1]
    assert sampled_renyi(Sampled(1e6, 1.0, 1e-6), WHOLE_ORDERS).min() > 0.0  # rounding never makes it free
    assert tightest({Sampled(1.0, math.inf, 0.1): 1}, DELTA).epsilon == math.inf


def test_only_accountants_for_samples_add_them_up() -> None:
    counts: Counts = {Sampled(5.0, 1.0, 0.1): 10}
    assert gdp(counts, DELTA) is None and pure(counts, DELTA) is None and additive_cost(counts, zcdp_rho) is None
    assert rdp({Noise("gaussian", 5.0, math.inf, 1.0): 10}, DELTA) is None  # zcdp's, which would say the same
    hidden = Hidden(20.0, 1.0, 3, 0.5)
    assert pld({hidden: 1, **counts}, DELTA) is None
    assert tightest({hidden: 1, **counts}, DELTA).accountant == "rdp"


KINDS: dict[str, Callable[[float], Event]] = {
    "sampled": lambda s: Sampled(s, 1.0, 0.05),
    "objective-gaussian": lambda s: Objective(s, 1.0, 0.001, 3, "objective-gaussian"),
    "objective-l2-laplace": lambda s: Objective(s, 1.0, 0.001, 3, "objective-l2-laplace"),
    "l2-laplace": lambda s: Noise("l2-laplace", s, math.inf, 1.0),
}


@settings(max_examples=16, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.floats(0.2, 8.0), st.sampled_from([1, 20, 100]), st.booleans())
def test_calibrated_noise_spends_the_budget_and_never_more(kind: str, total: float, k: int, beside: bool) -> None:
    """More noise never costs more, whatever is released with it."""

    def events(scale: float) -> Counts:
        more: Counts = {Noise("gaussian", 100.0 * scale, math.inf, 1.0): k} if beside else {}
        return {KINDS[kind](scale): k, **more}

    scale = calibrate(events, total, DELTA)
    assert total * (1.0 - 2e-3) <= tightest(events(scale), DELTA).epsilon <= total
    costs = [tightest(events(factor * scale), DELTA).epsilon for factor in (0.5, 0.8, 1.0, 1.3, 4.0)]
    assert costs == sorted(costs, reverse=True)
