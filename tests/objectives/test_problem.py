"""The objective and its gradient, for every loss and regulariser."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.objectives import LOSSES, REGULARISERS
from tests.random_problems import J, K, problem, shards


@pytest.mark.parametrize("regulariser", list(REGULARISERS))
@pytest.mark.parametrize("loss", list(LOSSES))
@given(seed=st.integers(0, 2**32 - 1))
def test_gradient_equals_finite_differences(loss: str, regulariser: str, seed: int) -> None:
    parts = shards(seed % 1000)
    of = problem(parts, loss, regulariser, beta=0.3)
    rng = np.random.default_rng(seed)
    z, direction, h = rng.standard_normal((J, 2, K)), rng.standard_normal((J, 1, K)), 1e-6
    slope = (of.objective(z + h * direction, parts[0]) - of.objective(z - h * direction, parts[0])) / (2 * h)
    found = (of.gradient(z, parts[0]).value * direction).sum(axis=(0, 2))
    np.testing.assert_allclose(found, slope, atol=1e-7)


def test_objective_is_the_papers_by_hand() -> None:
    """f_p = (1/I) sum_i l + (beta/P) sum w^2, with I over all agents."""
    parts = shards(3)
    of = problem(parts, beta=0.3)
    w = np.random.default_rng(0).standard_normal((J, 1, K))
    expected = 0.0
    for x, y in zip(parts[1].x, parts[1].y, strict=True):
        e = [math.exp(sum(x[j] * w[j, 0, k] for j in range(J))) for k in range(K)]
        expected -= sum(y[k] * math.log(e[k] / sum(e)) for k in range(K)) / 21
    expected += 0.3 / 3 * sum(w[j, 0, k] ** 2 for j in range(J) for k in range(K))
    assert of.objective(w, parts[1])[0] == pytest.approx(expected, rel=1e-12)
    total = sum(of.objective(w, part)[0] for part in parts)
    assert of.total(w, parts)[0] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("loss", ["softmax", "squared"])
@given(seed=st.integers(0, 2**32 - 1))
def test_smoothness_and_strong_convexity_hold(loss: str, seed: int) -> None:
    parts = shards(seed % 1000)
    of = problem(parts, loss, beta=0.3)
    u, v = np.random.default_rng(seed).standard_normal((2, J, 1, K))
    smoothness = of.smoothness(parts)
    for part in parts:
        change = of.gradient(u, part).value - of.gradient(v, part).value
        distance = np.linalg.norm(u - v)
        assert np.linalg.norm(change) <= smoothness * distance * (1 + 1e-9)
        assert (change * (u - v)).sum() >= of.strong_convexity * distance**2 * (1 - 1e-9)


def test_the_data_is_not_copied_per_run() -> None:
    """Memory of a gradient for many runs grows with the scores, not with runs times the data."""
    import tracemalloc

    part = shards(0, (4000,))[0]
    wide = type(part)(np.tile(part.x, (1, 100)), part.y)  # 4000 x 400 features: 12.8 MB
    of = problem([wide])
    z = np.zeros((400, 8, K))
    of.gradient(z, wide)
    tracemalloc.start()
    of.gradient(z, wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < wide.x.nbytes
