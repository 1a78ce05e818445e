"""U_1, U_2 and U_3 hold at every point of W, for every problem."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.objectives import FeasibleSet
from taciturn.research.theory.theorems import constants, extent
from taciturn.types import Array, Shard
from tests.random_problems import J, K, problem, shards

SIZE = 0.7


def points(feasible: FeasibleSet, seed: int, number: int = 30) -> Array:
    """Of W, most of them far out, [J, n, K]."""
    random = np.random.default_rng(seed)
    spread = SIZE * random.choice([0.3, 1.0, 10.0], (1, number, 1))
    return feasible.project(spread * random.standard_normal((J, number, K)))


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
@pytest.mark.parametrize("regulariser", ["l1", "l2"])
@pytest.mark.parametrize("name", ["box", "l2-ball"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), beta=st.floats(0.0, 2.0))
def test_the_constants_hold_over_the_whole_of_w(loss: str, regulariser: str, name: str, seed: int, beta: float) -> None:
    parts = shards(seed)
    one = problem(parts, loss, regulariser, beta, name, SIZE)
    found = constants(one, parts)
    u = points(one.feasible, seed)
    for part in parts:
        gradient, longest = one.gradient(u, part)
        assert np.sqrt((gradient**2).sum(axis=(0, 2))).max() <= found.gradient * (1 + 1e-12)
        assert longest.max() <= found.change * (1 + 1e-12)  # what the paper's noise is scaled by
        shorter = Shard(part.x[1:], part.y[1:])
        change = np.abs(gradient - one.gradient(u, shorter).value).sum(axis=(0, 2))
        assert change.max() <= found.change * (1 + 1e-9)
    apart = np.sqrt(((u[:, :, None] - u[:, None]) ** 2).sum(axis=(0, 3)))
    assert 0.5 * found.diameter < apart.max() <= found.diameter * (1 + 1e-12)
    assert np.sqrt((u**2).sum(axis=(0, 2))).max() <= extent(one.feasible, J * K)[0] * (1 + 1e-12)


def test_without_a_compact_set_there_are_none() -> None:
    parts = shards(1)
    with pytest.raises(ValueError, match="use --set box or l2-ball"):
        constants(problem(parts, feasible="all"), parts)


def test_a_bound_on_the_gradient_is_not_far_off() -> None:
    parts = shards(2)
    one = problem(parts, "softmax", "l2", 0.1, "l2-ball", SIZE)
    largest = max(
        float(np.sqrt((one.gradient(points(one.feasible, 3, 300), part).value ** 2).sum(axis=(0, 2))).max())
        for part in parts
    )
    assert constants(one, parts).gradient < 2.5 * largest
