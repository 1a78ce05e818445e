"""The methods converge to the solution of the pooled problem, which an independent solver computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import Bounds, NonlinearConstraint, minimize

from taciturn.objectives import Problem
from taciturn.types import Array, Shard
from tests.random_problems import J, K, build, problem, release_for, run, shards, varying

PARTS = shards(4, (60, 40, 50))


def pooled_optimum(of: Problem, feasible: str, size: float) -> float:
    """Minimise F over the pooled records with scipy, with an independent implementation of the objective."""
    x = np.concatenate([part.x for part in PARTS])
    y = np.concatenate([part.y for part in PARTS])

    def objective(flat: Array) -> float:
        w = flat.reshape(J, K)
        s = x @ w
        return float((np.log(np.exp(s).sum(1)) - (s * y).sum(1)).mean() + of.beta * (w**2).sum())

    limit = [NonlinearConstraint(lambda w: w @ w, -np.inf, size**2)] if feasible == "l2-ball" else []
    bounds = Bounds(-size, size) if feasible == "box" else None
    found = minimize(
        objective, np.zeros(J * K), method="SLSQP", bounds=bounds, constraints=limit,
        options={"ftol": 1e-14, "maxiter": 5000},
    )  # fmt: skip
    return float(found.fun)


@pytest.mark.parametrize(
    ("name", "rounds", "feasible", "size"),
    [
        ("iadmm", 3000, "all", 1.0),
        ("iadmm", 3000, "box", 0.4),
        ("iadmm", 3000, "l2-ball", 0.8),
        ("objpm", 1000, "all", 1.0),
        ("admm", 150, "box", 0.4),
    ],
)
def test_without_noise_the_pooled_optimum_is_reached(name: str, rounds: int, feasible: str, size: float) -> None:
    of = problem(PARTS, feasible=feasible, size=size)
    from taciturn.algorithms import ALGORITHMS, AlgorithmConfig
    from taciturn.algorithms.schedules import Constant

    budget = np.array([math.inf])
    smooth = of.smoothness(PARTS)
    method = ALGORITHMS[name]
    release, updates = release_for(name, budget), method.local_updates or 1
    config = AlgorithmConfig(
        of, budget, Constant(0.1, budget), Constant(1 / smooth, budget), release, local_updates=updates
    )
    done = run(method.build(config), PARTS, (1,), rounds)
    best = pooled_optimum(of, feasible, size)
    assert of.total(done.w, PARTS)[0] == pytest.approx(best, rel=1e-4)
    assert done.residual is not None and done.residual[0] < 1e-3


def test_exact_admm_solves_its_subproblem() -> None:
    """The gradient of eq. ADMM-2 vanishes at the upload."""
    of = problem(PARTS)
    done = run(build("admm", of, [math.inf], rho=0.2, tolerance=1e-10), PARTS, (1,), 1)
    for p, shard in enumerate(PARTS):
        z = done.state.agents[p].z
        gradient = of.gradient(z, shard).value + varying(0.2)(1) * (z - done.w)  # lambda = 0 in round 1
        assert np.abs(gradient).max() < 1e-8


def test_squared_loss_reaches_least_squares() -> None:
    of = problem(PARTS, "squared", beta=1e-3)
    x, y = (np.concatenate([getattr(part, name) for part in PARTS]) for name in ("x", "y"))
    exact = np.linalg.solve(x.T @ x / len(x) + 2e-3 * np.eye(J), x.T @ y / len(x))
    done = run(build("admm", of, [math.inf], rho=0.3), PARTS, (1,), 400)
    np.testing.assert_allclose(done.w[:, 0], exact, atol=1e-4)


@pytest.mark.parametrize(("loss", "regulariser"), [("hinge", "l2"), ("hinge", "l1"), ("softmax", "l1")])
def test_nonsmooth_problems_descend(loss: str, regulariser: str) -> None:
    """Within 3 % of the best value a long subgradient run with averaging finds."""
    of = problem(PARTS, loss, regulariser, beta=0.02)
    done = run(build("iadmm", of, [math.inf], rho=0.1, eta=3.0), PARTS, (1,), 2000)
    assert done.state.averages is not None
    best = _subgradient_optimum(of, PARTS)
    assert of.total(done.state.averages.w_plain, PARTS)[0] <= best * 1.03


def _subgradient_optimum(of: Problem, parts: list[Shard]) -> float:
    w = np.zeros((J, 1, K))
    best = math.inf
    for t in range(1, 6000):
        g = np.sum([of.gradient(w, part).value for part in parts], axis=0)
        w = w - 2.0 / math.sqrt(t) * g
        if t % 20 == 0:
            best = min(best, float(of.total(w, parts)[0]))
    return best
