"""Perturbed objectives: their bounds against exact densities (docs/explanation/objective-perturbation.md)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from taciturn.errors import InputError
from taciturn.privacy.accountants import Counts, additive_cost, pure, tightest
from taciturn.privacy.accountants.gdp import gdp
from taciturn.privacy.accountants.rdp import rdp
from taciturn.privacy.accountants.zcdp import zcdp_rho
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.events import Noise, Objective
from taciturn.privacy.objective_perturbation import gaussian_delta, log_chi_mgf, renyi

Floats = NDArray[np.float64]
DELTA = 1e-6
ORDERS = np.array([1.05, 1.5, 2.0, 3.0, 5.0, 8.0, 15.0, 30.0])
Z = np.linspace(-18.0, 18.0, 12_001)


@pytest.mark.parametrize("k", [1, 2, 3, 10, 60])
def test_the_chi_distributions_moments(k: int) -> None:
    """ln E exp(t X) by numerical integration: never above ours, and equal to ten digits."""
    for t in (0.0, 1e-4, 0.3, 2.0, 30.0):
        peak = (t + math.sqrt(t * t + 4.0 * (k - 1))) / 2.0
        top = t * peak - 0.5 * peak**2 + (k - 1) * math.log(peak or 1.0)

        def part(x: float, t: float = t, top: float = top) -> float:
            return math.exp(t * x - 0.5 * x * x + (k - 1) * math.log(x) - top) if x > 0.0 else float(k == 1)

        whole, _ = integrate.quad(part, max(0.0, peak - 12.0), peak + 12.0, epsabs=0.0, epsrel=1e-11, limit=400)
        exact = top + math.log(whole) - (k / 2.0 - 1.0) * math.log(2.0) - math.lgamma(k / 2.0)
        found = float(log_chi_mgf(np.array([t]), k)[0])
        assert exact - 1e-11 * max(1.0, exact) <= found <= exact + 1e-10 * max(1.0, exact)


class Scene(NamedTuple):
    """The densities of a perturbed minimiser on Z under two neighbours, and the event that bounds them."""

    first: Floats
    second: Floats
    event: Objective


def slanted(slope: float, bound: float, at: float) -> tuple[Floats, Floats]:
    """A record's residual clip(slope (z - at), +-bound), and its derivative: the worst kind of smooth loss."""
    r = slope * (Z - at)
    return np.clip(r, -bound, bound), np.where(np.abs(r) < bound, slope, 0.0)


def scene(rng: np.random.Generator, replace: bool) -> Scene:
    """b is standard normal, the rest of the objective z^2/2; one record is added, or is another."""
    slope, bound = 10.0 ** rng.uniform(-2.5, 0.5), 10.0 ** rng.uniform(-2.0, 0.6)
    far = rng.uniform(0.0, 3.0) * bound / slope  # beyond 1 the residual hardly changes where z is likely
    (r, slopes), (other, others) = slanted(slope, bound, far), slanted(slope, bound, -far)
    one = Z + other * replace, 1.0 + others * replace
    two = Z + r, 1.0 + slopes
    first, second = (stats.norm.logpdf(g) + np.log(h) for g, h in (one, two))
    n = 1 + replace
    return Scene(first, second, Objective(1.0, n * bound, math.log1p(slope), n, "objective-gaussian"))


def divergence(p: Floats, q: Floats) -> Floats:
    """D_a(p || q) on the grid, at every order."""
    e = ORDERS[:, None] * p - (ORDERS[:, None] - 1.0) * q
    top = e.max(axis=1, keepdims=True)
    inside = np.abs(Z[e.argmax(axis=1)]) < 0.97 * Z[-1]
    exact = (np.log(np.exp(e - top).sum(axis=1) * (Z[1] - Z[0])) + top[:, 0]) / (ORDERS - 1.0)
    return np.where(inside, exact, 0.0)


@pytest.mark.parametrize(("replace", "attained"), [(False, 0.97), (True, 0.85)])
def test_exact_divergences_stay_below_the_bound_and_come_near_it(replace: bool, attained: float) -> None:
    rng, nearest = np.random.default_rng(0), 0.0
    for _ in range(200):
        first, second, event = scene(rng, replace)
        bound = renyi(event, ORDERS)
        for p, q in ((first, second), (second, first)):
            share = divergence(p, q) / bound
            assert share.max() <= 1.003  # of the grid, at the kinks
            nearest = max(nearest, float(share.max()))
    assert nearest > attained


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_one_release_keeps_its_delta(replace: bool, mu: float) -> None:
    """The exact delta at the epsilon that is promised, alone and together with a Gaussian release."""
    rng, most = np.random.default_rng(1), 0.0
    for _ in range(60):
        first, second, event = scene(rng, replace)
        beside: Counts = {Noise("gaussian", 1.0, math.inf, mu): 1} if mu else {}
        epsilon = rdp({event: 1, **beside}, 1e-3)
        assert epsilon is not None
        for p, q in ((first, second), (second, first)):
            exact = (np.exp(p) * gaussian_delta(epsilon - (p - q), mu)).sum() * (Z[1] - Z[0])
            assert exact <= 1.01e-3
            most = max(most, float(exact))
    assert most > 2e-4


def test_the_gaussian_mechanisms_delta() -> None:
    """By its integral, also where epsilon is negative; and the limit of no noise to add."""
    x = np.linspace(-12.0, 12.0, 200_001)
    for mu in (0.2, 1.5):
        for epsilon in (-1.0, 0.0, 0.7, 3.0):
            gain = np.maximum(stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x), 0.0)
            found = gaussian_delta(np.array([epsilon]), mu)[0]
            assert found == pytest.approx(gain.sum() * (x[1] - x[0]), rel=1e-4, abs=1e-12)
    np.testing.assert_allclose(gaussian_delta(np.array([-1.0, 0.0, 2.0]), 0.0), [1.0 - math.exp(-1.0), 0.0, 0.0])


def test_two_outputs_on_a_plane() -> None:
    """Softmax of two classes, J = 1: exact densities in two dimensions; the residual turns with z."""
    axis = np.linspace(-9.0, 9.0, 601)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)  # [n, n, K]
    nearest = 0.0
    for size, records in ((0.5, 4.0), (3.0, 10.0), (2.0, 1.0)):
        shares = np.exp(size * z - np.logaddexp(size * z[..., :1], size * z[..., 1:]))
        g = z + size * (shares - np.array([1.0, 0.0])) / records
        curved = size**2 * shares[..., 0] * shares[..., 1] / records
        first = stats.norm.logpdf(z).sum(axis=-1)
        second = stats.norm.logpdf(g).sum(axis=-1) + np.log1p(2.0 * curved)
        most = math.sqrt(2.0) * size / records
        event = Objective(1.0, most, math.log1p(size**2 / records / 2.0), 2, "objective-gaussian")
        for p, q in ((first, second), (second, first)):
            total = np.exp(ORDERS[:5, None, None] * p - (ORDERS[:5, None, None] - 1.0) * q).sum(axis=(1, 2))
            exact = np.log(total * (axis[1] - axis[0]) ** 2) / (ORDERS[:5] - 1.0)
            assert (exact <= renyi(event, ORDERS[:5]) * (1.0 + 1e-6)).all()
            nearest = max(nearest, float((exact / renyi(event, ORDERS[:5])).max()))
    assert nearest > 0.4


def test_a_constant_gradient_is_the_gaussian_mechanism() -> None:
    """Without curvature the minimiser is a Gaussian that moves by Delta: the bounds are that, or a little above."""
    event, seen = Objective(3.0, 1.0, 0.0, 1, "objective-gaussian"), Noise("gaussian", 3.0, math.inf, 1.0)
    for k, most in ((1, 1.05), (10, 1.08)):
        exact, found = gdp({seen: k}, DELTA), rdp({event: k}, DELTA)
        assert exact is not None and found is not None and exact <= found <= most * exact
    alone = rdp({event: 1}, DELTA)
    tail = 1.0 / 18.0 + stats.chi(1).isf(DELTA) / 3.0  # where the loss is more with probability delta
    assert alone is not None and alone < tail


def test_pure_events_by_hand() -> None:
    """b of density exp(-|b|/s): the log ratio of the densities is Delta/s + determinant at most, and reaches it."""
    event, noise = Objective(2.0, 1.0, 0.3, 4, "objective-l2-laplace"), Noise("l2-laplace", 4.0, math.inf, 1.0)
    assert pure({event: 2, noise: 4}, 0.0) == pytest.approx(2.0 * 0.8 + 4.0 * 0.25)
    assert additive_cost({event: 2, noise: 4}, zcdp_rho) == pytest.approx(2.0 * 0.32 + 4.0 * 0.25**2 / 2.0)
    assert pure({Objective(2.0, 1.0, 0.3, 4, "objective-gaussian"): 1}, 0.0) is None
    assert additive_cost({Objective(2.0, 1.0, 0.3, 4, "objective-gaussian"): 1}, zcdp_rho) is None
    slope, bound = 0.4, 0.5
    r, slopes = slanted(slope, bound, 5.0)
    loss = np.abs(Z + r) - np.abs(Z) - np.log1p(slopes)
    far, near = np.abs(loss).max(), bound + math.log1p(slope)
    assert 0.99 * near < far <= near
    assert pure({Objective(1.0, bound, math.log1p(slope), 1, "objective-l2-laplace"): 1}, 0.0) == pytest.approx(near)


def test_the_solvers_tolerance_costs_little() -> None:
    """A second release with each minimiser, of a Delta that noise twenty times as large hides."""
    event = Objective(10.0, 1.0, 0.01, 10, "objective-gaussian")
    care = Noise("gaussian", 20.0 * 10.0 * 1e-6, math.inf, 1e-6)
    for k in (1, 50):
        alone, both = tightest({event: k}, DELTA).epsilon, tightest({event: k, care: k}, DELTA).epsilon
        assert alone <= both <= 1.01 * alone


def test_a_determinant_is_paid_with_any_noise() -> None:
    def events(scale: float) -> Counts:
        return {Objective(scale, 1.0, 0.5, 3, "objective-l2-laplace"): 4}

    assert tightest(events(calibrate(events, 2.5, DELTA)), DELTA).epsilon == pytest.approx(2.5, rel=1e-4)
    with pytest.raises(InputError, match=r"total-epsilon 1 is too small: .* cost epsilon 2 with any noise"):
        calibrate(events, 1.0, DELTA)
    assert tightest({Objective(1.0, math.inf, 0.1, 3, "objective-gaussian"): 1}, DELTA).epsilon == math.inf
