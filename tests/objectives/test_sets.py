"""Projections: onto the set, idempotent, non-expansive, nearest; the closed form against a generic solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import NonlinearConstraint, minimize

from taciturn.algorithms.steps import linearised_step
from taciturn.objectives import SETS
from taciturn.types import Array

NAMES = list(SETS)
SEEDS = st.integers(0, 2**32 - 1)
SIZE = 0.8


def inside(name: str, z: Array) -> bool:
    if name == "box":
        return bool((np.abs(z) <= SIZE + 1e-12).all())
    if name == "l2-ball":
        return bool((np.sqrt((z**2).sum(axis=(0, 2))) <= SIZE * (1 + 1e-12)).all())
    return True


def test_every_set_is_known_here() -> None:
    assert NAMES == ["all", "box", "l2-ball"]


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_projection_is_idempotent_non_expansive_and_nearest(name: str, seed: int) -> None:
    project = SETS[name](SIZE).project
    u, v = np.random.default_rng(seed).standard_normal((2, 3, 2, 4))
    p, q = project(u), project(v)
    assert inside(name, p)
    np.testing.assert_allclose(project(p), p, rtol=1e-14, atol=1e-15)
    distance = np.sqrt(((p - q) ** 2).sum(axis=(0, 2)))
    assert (distance <= np.sqrt(((u - v) ** 2).sum(axis=(0, 2))) + 1e-12).all()
    angle = ((u - p) * (q - p)).sum(axis=(0, 2))  # the obtuse angle that marks the nearest point of a convex set
    assert (angle <= 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_zero_and_single_precision_stay_what_they_are(name: str) -> None:
    zero = np.zeros((3, 2, 4), np.float32)
    assert SETS[name](SIZE).project(zero).dtype == np.float32
    np.testing.assert_array_equal(SETS[name](SIZE).project(zero), zero)


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 10**6))
def test_closed_form_solves_the_subproblem(name: str, seed: int) -> None:
    """eq. DPADMM-2-Prox, constrained, by a generic solver."""
    rng = np.random.default_rng(seed)
    w, lam, z, g = rng.standard_normal((4, 3, 1, 2))
    rho, eta = rng.uniform(0.2, 3.0, 2)

    def objective(flat: Array) -> float:
        v = flat.reshape(z.shape)
        proximal = ((v - z) ** 2).sum() / (2 * eta)
        return float((g * v).sum() + proximal + rho / 2 * ((w - v + lam / rho) ** 2).sum())

    bounds = [(-SIZE, SIZE)] * z.size if name == "box" else None
    ball = [NonlinearConstraint(lambda v: v @ v, -np.inf, SIZE**2)] if name == "l2-ball" else []
    solver = minimize(
        objective, np.zeros(z.size), method="SLSQP", bounds=bounds, constraints=ball, options={"ftol": 1e-14}
    )
    step = linearised_step(SETS[name](SIZE), np.array([[rho]]), np.array([[eta]]), w, lam, z, g)
    assert inside(name, step)
    np.testing.assert_allclose(step.ravel(), solver.x, atol=2e-5)
    feasible = SETS[name](SIZE).project(solver.x.reshape(z.shape))  # the solver oversteps its constraint a little
    assert objective(step.ravel()) <= objective(feasible.ravel()) + 1e-12
