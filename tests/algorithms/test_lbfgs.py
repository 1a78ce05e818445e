"""L-BFGS."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from taciturn.algorithms.lbfgs import minimise

Vector = NDArray[np.float64]


def logistic(seed: int, rows: int = 200, width: int = 12) -> tuple[NDArray[np.float64], Vector]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width)) * np.logspace(-1, 1, width)
    return x, np.where(rng.random(rows) < 1.0 / (1.0 + np.exp(-x @ rng.standard_normal(width))), 1.0, -1.0)


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_minimum_that_scipy_finds(seed: int) -> None:
    x, y = logistic(seed)

    def objective(w: Vector) -> tuple[float, Vector]:
        margins = y * (x @ w)
        slope = -y / (1.0 + np.exp(margins))
        return float(np.logaddexp(0.0, -margins).sum() + 0.05 * w @ w), x.T @ slope + 0.1 * w

    found = minimise(objective, np.zeros(x.shape[1]), 1e-12, 500)
    known = minimize(objective, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert objective(found)[0] == pytest.approx(known.fun, rel=1e-9)
    np.testing.assert_allclose(found, known.x, atol=1e-3)


def test_the_value_never_rises() -> None:
    scales = np.logspace(0, 2, 20)

    def objective(x: Vector) -> tuple[float, Vector]:
        return float((scales * (x - 1.0) ** 2).sum()), 2.0 * scales * (x - 1.0)

    seen = [objective(minimise(objective, np.zeros(20), 0.0, iterations))[0] for iterations in range(1, 40)]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 1e-6


def test_stays_at_a_minimum_and_stops_without_iterations() -> None:
    def objective(x: Vector) -> tuple[float, Vector]:
        return float(x @ x), 2.0 * x

    assert minimise(objective, np.zeros(3), 1e-9, 10).tolist() == [0.0, 0.0, 0.0]
    assert minimise(objective, np.ones(3), 1e-9, 0).tolist() == [1.0, 1.0, 1.0]


def test_an_objective_that_no_step_lowers_ends_the_search() -> None:
    def objective(x: Vector) -> tuple[float, Vector]:
        return 1.0, np.ones_like(x)  # the gradient is wrong

    assert minimise(objective, np.zeros(2), 1e-9, 10).tolist() == [0.0, 0.0]
