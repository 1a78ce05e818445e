"""The optimum is a minimum, by its certificate and by points of W; lambda* is dual optimal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from taciturn.objectives import Problem
from taciturn.research.theory.optimum import Optimum, optimum
from taciturn.types import Array, Shard
from tests.random_problems import J, K, problem, shards
from tests.research.theory.test_constants import points

SETTINGS = [
    ("softmax", "l2", 0.01, "l2-ball", 0.5),
    ("softmax", "l2", 0.01, "l2-ball", 50.0),
    ("softmax", "l2", 0.001, "box", 0.4),
    ("softmax", "l1", 0.02, "box", 0.4),
    ("softmax", "l1", 0.02, "l2-ball", 0.5),
    ("squared", "l2", 0.1, "box", 0.2),
    ("hinge", "l1", 0.02, "box", 0.5),
    ("hinge", "l2", 0.05, "box", 0.5),
    ("hinge", "l2", 0.0, "box", 0.5),
]


@pytest.mark.parametrize(("loss", "regulariser", "beta", "name", "size"), SETTINGS)
def test_no_point_is_better_and_the_dual_is_optimal(
    loss: str, regulariser: str, beta: float, name: str, size: float
) -> None:
    parts = shards(5)
    one = problem(parts, loss, regulariser, beta, name, size)
    found = optimum(one, parts)
    w = found.w[:, None]
    np.testing.assert_allclose(one.feasible.project(w), w, atol=1e-12)
    assert 0.0 <= found.accuracy < 1e-6
    near = one.feasible.project(w + 0.01 * np.random.default_rng(1).standard_normal((J, 50, K)))
    u = np.concatenate([points(one.feasible, 7, 200), near], axis=1)
    assert (one.total(u, parts) >= found.value - found.accuracy).all()
    # KKT: the duals add up to 0, and w* is every agent's best answer to its own
    np.testing.assert_allclose(found.dual.sum(axis=0), 0.0, atol=1e-9)
    for part, lam in zip(parts, found.dual, strict=True):
        ahead = one.objective(u, part) - one.objective(w, part) - (lam[:, None] * (u - w)).sum(axis=(0, 2))
        assert ahead.min() >= -1e-6
    assert found.dual_norm > 1e-3


def test_a_second_solver_agrees() -> None:
    parts = shards(6)
    one = problem(parts, "softmax", "l2", 0.01, "l2-ball", 0.5)
    found = optimum(one, parts)
    ball: Any = {"type": "ineq", "fun": lambda v: 0.25 - v @ v}
    options: Any = {"ftol": 1e-12, "maxiter": 300}

    def total(v: Array) -> float:
        return float(one.total(v.reshape(J, 1, K), parts)[0])

    other = minimize(total, np.zeros(J * K), method="SLSQP", constraints=ball, options=options)
    assert other.fun == pytest.approx(found.value, abs=1e-7)
    np.testing.assert_allclose(other.x.reshape(J, K), found.w, atol=1e-3)


def by_hand() -> tuple[Problem, list[Shard], Optimum]:
    """Two agents with f_p(z) = (z - y_p)^2 / 4 on [-1, 1], y = 1/2 and 4: w* = 1, slopes 1/4 and -3/2."""
    parts = [Shard(np.ones((1, 1)), np.array([[y]])) for y in (0.5, 4.0)]
    one = problem(parts, "squared", "l2", 0.0, "box", 1.0)
    return one, parts, optimum(one, parts)


def test_a_problem_by_hand() -> None:
    _, _, found = by_hand()
    assert found.w[0, 0] == pytest.approx(1.0)
    assert found.value == pytest.approx((0.25 + 9.0) / 4.0)
    np.testing.assert_allclose(found.dual[:, 0, 0], [0.875, -0.875], atol=1e-9)  # slopes less their mean, -5/8


def test_what_cannot_be_solved_is_refused() -> None:
    parts = shards(1)
    with pytest.raises(ValueError, match="hinge loss in a box"):
        optimum(problem(parts, "hinge", "l2", 0.1, "l2-ball"), parts)
    with pytest.raises(ValueError, match="sets box and l2-ball"):
        optimum(problem(parts), parts)
