"""Hidden local updates: the formula, the cases that attain it, its conditions (docs/explanation/hidden-state.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import NonlinearConstraint, minimize

from taciturn.algorithms.hidden_updates import LastIterate, check_eta, largest_eta
from taciturn.algorithms.noisy_gradient import CertifiedGradient
from taciturn.algorithms.schedules import Constant
from taciturn.algorithms.steps import linearised_step
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import RecordScaling
from taciturn.privacy.accountants import tightest
from taciturn.privacy.events import NON_PRIVATE, Hidden, Noise
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.noise import SeededNoise
from taciturn.privacy.sensitivity import contraction, hidden_factor
from taciturn.types import Array
from tests.random_problems import problem, shards


@pytest.mark.parametrize("c", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("updates", [1, 2, 5, 10])
def test_the_factor_is_the_smallest_sum_of_shifts(c: float, updates: int) -> None:
    """min sum_e u_e^2 with d_{e+1} = c d_e + 1 - u_e, d_1 = d_{E+1} = 0: solved by a general optimiser."""
    weights = c ** np.arange(updates - 1, -1, -1.0)
    met = NonlinearConstraint(lambda u: (weights * (1.0 - u)).sum(), 0.0, 0.0)

    def total(u: Array) -> float:
        return float((u**2).sum())

    found = minimize(total, np.ones(updates), method="SLSQP", constraints=[met], options={"ftol": 1e-14})
    assert hidden_factor(c, updates) == pytest.approx(found.fun, rel=1e-6)
    assert hidden_factor(c, updates) * (1 + 1e-12) >= 1.0
    assert hidden_factor(c, updates) <= min(updates, (1 + c) / (1 - c)) * (1 + 1e-9)


def test_one_update_costs_one_and_no_contraction_costs_all() -> None:
    assert hidden_factor(0.7, 1) == pytest.approx(1.0)
    assert hidden_factor(1.0, 25) == pytest.approx(25.0)
    assert hidden_factor(1.0 - 1e-12, 25) == pytest.approx(25.0)
    assert hidden_factor(0.99, 20_000) == pytest.approx(1.99 / 0.01)
    assert hidden_factor(1.0, 20_000) == pytest.approx(20_000.0)


@pytest.mark.parametrize("updates", [1, 3, 10])
def test_a_linear_gradient_attains_the_bound(updates: int) -> None:
    """With f' = const the last iterate is a Gaussian whose shift and spread are known: its mu is the formula's."""
    rho, eta, sigma, delta = 0.8, 1.3, 0.5, 0.2
    whole = SETS["all"](1.0)
    zero = np.zeros((1, 1, 1))

    def last(g: float, noise: list[float]) -> float:
        z: Array = zero
        for xi in noise:
            z = linearised_step(whole, np.array([[rho]]), np.array([[eta]]), zero, zero, z, np.full_like(zero, g + xi))
        return float(z[0, 0, 0])

    still = [0.0] * updates
    shift = abs(last(delta, still) - last(0.0, still))
    unit = [[1.0 if i == e else 0.0 for i in range(updates)] for e in range(updates)]
    spread = math.sqrt(sum((sigma * last(0.0, noise)) ** 2 for noise in unit))
    mu = math.sqrt(hidden_factor(contraction(rho, eta), updates)) * delta / sigma
    assert shift / spread == pytest.approx(mu, rel=1e-12)


def test_ten_hidden_updates_cost_less_than_ten_seen_ones() -> None:
    hidden, seen = Hidden(10.0, 1.0, 10, 0.5), Noise("gaussian", 10.0, math.inf, 1.0)
    one, ten = tightest({seen: 1}, 1e-6).epsilon, tightest({seen: 10}, 1e-6).epsilon
    assert one < tightest({hidden: 1}, 1e-6).epsilon < 2.1 * one < ten


def test_bounded_records_contract() -> None:
    """Two iterates come closer by c whatever the data, when eta L <= 2 with the public L."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        parts = shards(int(rng.integers(10**6)), (8,))
        of, bound = problem(parts, beta=0.0), float(rng.uniform(0.2, 1.5))
        eta = 2.0 / of.public_smoothness(bound, 8)
        rho = float(rng.uniform(0.01, 2.0))
        a, b = rng.normal(size=(2, 4, 1, 3)) * 10.0 ** rng.uniform(-1, 2)
        w = rng.normal(size=a.shape)
        r, e = np.array([[rho]]), np.array([[eta]])
        steps = [
            linearised_step(of.feasible, r, e, w, w, z, of.gradient(z, parts[0], RecordScaling(bound)).value)
            for z in (a, b)
        ]
        before, after = np.linalg.norm(a - b), np.linalg.norm(steps[0] - steps[1])
        assert after <= contraction(rho, eta) * before * (1.0 + 1e-9)


def test_a_clipped_gradient_can_expand() -> None:
    """The counterexample: the clipped residual's Jacobian has a direction v with v^T J v < 0."""
    loss, y, clip = LOSSES["softmax"](), np.array([[1.0, 0.0, 0.0]]), 0.5

    def clipped(s: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        r = loss.residual(s[None, None], y)[0, 0]
        return np.asarray(r * min(1.0, clip / np.linalg.norm(r)))

    rng, worst, where = np.random.default_rng(1), 0.0, (np.zeros(3), np.zeros(3))
    for _ in range(2000):
        s = rng.normal(size=3) * 2.0
        jacobian = np.column_stack([(clipped(s + h) - clipped(s - h)) / 2e-6 for h in 1e-6 * np.eye(3)])
        values, vectors = np.linalg.eigh((jacobian + jacobian.T) / 2.0)
        if values[0] < worst:
            worst, where = values[0], (s, vectors[:, 0])
    assert worst < -1e-3
    s, v = where
    a, b = s + 1e-4 * v, s - 1e-4 * v
    for eta in (0.01, 0.1, 1.0):
        assert np.linalg.norm(a - eta * clipped(a) - (b - eta * clipped(b))) > np.linalg.norm(a - b) * (1.0 + 1e-6)


def test_the_step_sends_its_last_iterate_and_names_its_event() -> None:
    parts = shards(0)
    of, budget = problem(parts), np.array([1.0, math.inf])
    release = CertifiedGradient(
        RecordScaling(1.0), Calibrated("gaussian", (Noise("gaussian", 0.3, math.inf, 0.1), NON_PRIVATE))
    )
    method = LastIterate(of, Constant(0.5, budget), Constant(2.0, budget), release, 4)
    zero = np.zeros((4, 2, 3))
    from taciturn.algorithms.base import Agent

    step = method.agent_step(1, zero, Agent(zero, zero), parts[0], SeededNoise((1, 2), 0, 1))
    np.testing.assert_array_equal(step.upload.z, step.agent.z)
    assert len(step.events) == 1
    assert step.events[0].runs[0] == Hidden(0.3, 0.1, 4, contraction(0.5, 2.0))
    assert step.events[0].runs[1].mechanism == "none"
    assert method.iterates_sent == 1


def of_loss(loss: str, regulariser: str = "l2") -> Problem:
    return Problem(LOSSES[loss](), REGULARISERS[regulariser](), 0.1, SETS["all"](1.0), 100, 2)


def test_conditions_that_fail_are_refused() -> None:
    assert largest_eta("hidden", of_loss("softmax"), 1.0, 100) == pytest.approx(2.0 / 0.6)
    with pytest.raises(InputError, match="smooth loss"):
        largest_eta("hidden", of_loss("hinge"), 1.0, 50)
    with pytest.raises(InputError, match="smooth loss"):
        largest_eta("hidden", of_loss("softmax", "l1"), 1.0, 50)
    with pytest.raises(InputError, match="bounded gradient"):
        largest_eta("hidden", of_loss("squared"), 1.0, 50)
    check_eta("hidden", 2.0, 2.0)
    with pytest.raises(InputError, match=r"eta L <= 2.*at most 3.33"):
        check_eta("hidden", 8.0, 10.0 / 3.0)
