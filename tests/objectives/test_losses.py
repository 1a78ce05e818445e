"""Every loss: the residual is the derivative of the value, and the declared bounds hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from taciturn.objectives import LOSSES

NAMES = list(LOSSES)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_residual_is_the_derivative_of_the_value(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    loss, (n, r, k), h = LOSSES[name](), (5, 2, 4), 1e-6
    scores, y = 2 * rng.standard_normal((n, r, k)), np.eye(k)[rng.integers(0, k, n)]
    residual = loss.residual(scores, y)
    for i in range(k):
        step = h * np.eye(k)[i]
        slope = (loss.value(scores + step, y) - loss.value(scores - step, y)) / (2 * h)
        np.testing.assert_allclose(residual[..., i], slope, atol=1e-7)  # a random point is a kink with probability 0


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_residual_is_a_subgradient_everywhere(name: str, seed: int) -> None:
    """l(v) >= l(s) + <r(s), v - s>, at kinks too: scores on a coarse grid meet them often."""
    rng = np.random.default_rng(seed)
    loss, k = LOSSES[name](), 4
    s, v = rng.integers(-2, 3, (2, 6, 3, k)).astype(float)
    y = np.eye(k)[rng.integers(0, k, 6)]
    lower = loss.value(s, y) + (loss.residual(s, y) * (v - s)).sum(-1)
    assert (loss.value(v, y) >= lower - 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_constants_bound_the_residual_and_the_curvature(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    loss, k = LOSSES[name](), 4
    y = np.eye(k)[rng.integers(0, k, 6)]
    s, v = 3 * rng.standard_normal((2, 6, 3, k))
    assert (np.linalg.norm(loss.residual(s, y), axis=-1) <= loss.residual_bound + 1e-12).all()
    if np.isfinite(loss.curvature):
        change = np.linalg.norm(loss.residual(s, y) - loss.residual(v, y), axis=-1)
        assert (change <= loss.curvature * np.linalg.norm(s - v, axis=-1) + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_is_kept(name: str) -> None:
    loss, scores, y = LOSSES[name](), np.ones((2, 3, 4), np.float32), np.eye(4, dtype=np.float32)[:2]
    assert loss.value(scores, y).dtype == loss.residual(scores, y).dtype == np.float32


def test_softmax_stays_finite_and_exact_at_large_scores() -> None:
    loss = LOSSES["softmax"]()
    scores = np.array([[[1e4, 0.0, -1e4]], [[1e4, 0.0, -1e4]]])
    y = np.eye(3)[[0, 2]]
    np.testing.assert_allclose(loss.value(scores, y)[:, 0], [0.0, 2e4])
    np.testing.assert_allclose(loss.value(scores / 1e3, y), -(log_softmax(scores / 1e3, -1) * y[:, None]).sum(-1))
    np.testing.assert_array_equal(loss.residual(scores, y)[1, 0], [1.0, 0.0, -1.0])


def test_hinge_is_crammer_and_singers() -> None:
    """Zero when the true class leads by 1, else the largest violation, by hand."""
    loss = LOSSES["hinge"]()
    scores = np.array([[[2.0, 1.0, 0.0]], [[0.5, 0.0, 2.0]]])
    y = np.eye(3)[[0, 0]]
    np.testing.assert_array_equal(loss.value(scores, y)[:, 0], [0.0, 2.5])
    np.testing.assert_array_equal(loss.residual(scores, y)[:, 0], [[0, 0, 0], [-1, 0, 1]])
