"""The noise in curves: what follows from the steps alone, against simulations of the update rule."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from taciturn.algorithms.curve_noise import RELATED, SPILL, Descent, ReleasedColumn, loss_curvature
from taciturn.objectives import LOSSES

RUNS = 4000
CONTRASTS = np.array([[-1.0, 1.0]])
CURVATURE = 0.18 * np.array([[1.0, -1.0], [-1.0, 1.0]])  # of two classes: p (1 - p)
DESCENT = Descent(np.r_[np.full(30, 1.2), np.linspace(1.2, 0.1, 30)], np.linspace(0.3, 0.1, 60), 0.9)
SHARES = (np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.3, 0.4]))


def blocks() -> list[NDArray[np.float64]]:
    """Coordinates of two columns, each 0 on average under its shares."""
    rng = np.random.default_rng(0)
    found = [0.7 * rng.normal(size=(len(share), len(share))) for share in SHARES]
    return [block - share @ block for block, share in zip(found, SHARES, strict=True)]


def last_curves(x: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Simulate the update rule on a quadratic whose records have these coordinates; return the last w, [RUNS, J, 2]."""
    hessian, rng = x.T @ (weights[:, None] * x), np.random.default_rng(1)
    before = now = np.zeros((RUNS, x.shape[1], 2))
    for step, deviation in zip(DESCENT.steps, DESCENT.deviations, strict=True):
        pull = step * np.einsum("ij,rjk,kl->ril", hessian, now, CURVATURE)
        noise = deviation * rng.standard_normal(now.shape)
        before, now = now, now + DESCENT.momentum * (now - before) - pull - noise
    return now


def records(related: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates of all kinds of records, and how frequent they are: two independent columns, or one column twice."""
    first, second = blocks()
    if related:
        return np.hstack([first, first]), SHARES[0]
    rows, columns = np.indices((3, 4)).reshape(2, -1)
    return np.hstack([first[rows], second[columns]]), SHARES[0][rows] * SHARES[1][columns]


def column(i: int) -> ReleasedColumn:
    """A column without any effect, and without noise in its counts."""
    return ReleasedColumn(np.zeros((len(SHARES[i]), 2)), blocks()[i], SHARES[i], ())


def test_the_variance_of_independent_columns_is_exact_for_a_quadratic() -> None:
    w, start = last_curves(*records(related=False)), 0
    for i, block in enumerate(blocks()):
        curve = np.einsum("li,rik->rlk", block, w[:, start : start + len(block)]) @ CONTRASTS[0]
        stated = column(i).variances(DESCENT, CURVATURE, CONTRASTS)[0]
        np.testing.assert_allclose(stated[0], curve.var(axis=0), rtol=0.1)
        errors = column(i).errors(DESCENT, CURVATURE, CONTRASTS)
        np.testing.assert_allclose(errors, RELATED * np.sqrt(stated))
        assert (column(i).errors(DESCENT, 0.0 * CURVATURE, CONTRASTS) > 1.2 * errors).all()
        start += len(block)


def test_columns_that_say_the_same_do_not_vary_more_than_a_random_walk() -> None:
    curve = np.einsum("li,rik->rlk", blocks()[0], last_curves(*records(related=True))[:, :3]) @ CONTRASTS[0]
    walk = column(0).errors(DESCENT, 0.0 * CURVATURE, CONTRASTS)
    assert (curve.std(axis=0) < walk).all()
    np.testing.assert_allclose(column(0).errors(DESCENT, 0.01 * CURVATURE, CONTRASTS), walk)


@pytest.mark.parametrize("rounds", [40, 2000])
def test_unstable_steps_leave_the_random_walk(rounds: int) -> None:
    unstable = Descent(np.full(rounds, 1e6), np.full(rounds, 0.1), 0.9)
    known = column(0)._replace(others=[(block, SHARES[0]) for block in (blocks()[0], 0.9 * blocks()[0])])
    walk = known.errors(unstable, 0.0 * CURVATURE, CONTRASTS)
    assert np.isfinite(walk).all()
    np.testing.assert_array_equal(known.errors(unstable, CURVATURE, CONTRASTS), walk)


def curvature(loss: str, score: float, clip: float, outputs: int = 2) -> NDArray[np.float64]:
    """The curvature of records with norm 1 and a constant score."""
    constant = np.linspace(0.0, score, outputs)
    level = np.zeros((1, outputs))
    return loss_curvature(LOSSES[loss](), [level], [np.ones(1)], [np.array([0.5])], constant, 0.5, clip)


def test_the_curvature_is_that_of_the_loss_without_clipping() -> None:
    p = 1.0 / (1.0 + np.exp(-1.0))
    np.testing.assert_allclose(curvature("softmax", 1.0, 1.5), p * (1.0 - p) * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    np.testing.assert_allclose(curvature("squared", 0.5, 2.0, 1), [[1.0]])


def test_clipped_records_do_not_pull() -> None:
    """Those with the likelier class have the shorter gradient, sqrt 2 (1 - p)."""
    p = 1.0 / (1.0 + np.exp(-1.0))
    free = curvature("softmax", 1.0, 1.5)
    np.testing.assert_allclose(curvature("softmax", 1.0, 0.5), p * free)
    assert not curvature("softmax", 1.0, 0.3).any()
    np.testing.assert_allclose(curvature("squared", 0.5, 0.4, 1), [[0.2]])


def test_a_loss_of_unknown_curvature_does_not_pull() -> None:
    assert not curvature("hinge", 1.0, 1.5).any()


def test_noise_of_the_shares_moves_a_curve() -> None:
    """The curve is 0 on average under the shares that were released with it."""
    curve, block = np.array([[1.0], [0.0], [-2.0]]), np.eye(3)
    others = [(block, np.array([0.5, 0.5, 0.0])), (block, np.array([0.0, 0.5, 0.5]))]
    quiet = DESCENT._replace(deviations=np.zeros(60))
    even = ReleasedColumn(curve, block, np.full(3, 1.0 / 3.0), others)
    errors = even.errors(quiet, np.zeros((1, 1)), np.array([[10.0]]))
    np.testing.assert_allclose(errors, np.full((1, 3), 10.0 * np.sqrt(SPILL * np.var([0.5, -1.0], ddof=1))), 1e-6)


def test_coordinates_move_a_curve_unless_descent_has_converged() -> None:
    """What the records pull to the optimum does not depend on the coordinates."""
    curve, block, shares = np.array([[0.5], [0.5], [-1.0]]), np.eye(3), np.full(3, 1.0 / 3.0)
    others = [(size * block, shares) for size in (0.9, 1.1)]
    quiet = Descent(np.full(1000, 1.0), np.zeros(1000), 0.5)
    parts = [
        ReleasedColumn(curve, block, shares, others).variances(quiet, bend * np.eye(1), np.eye(1))[1] for bend in (0, 1)
    ]
    np.testing.assert_allclose(parts[0][0], np.var([0.81, 1.21], ddof=1) * curve[:, 0] ** 2, 1e-6)
    np.testing.assert_allclose(parts[1], 0.0, atol=1e-12)
