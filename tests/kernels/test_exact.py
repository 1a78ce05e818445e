"""Integer sums: a record adds its own term and changes no other's, with any instructions, layout and number of columns.

The numbers sit on the edge of a cut, where the last bit of a rounded norm decides.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from taciturn.algorithms.noisy_gradient import BELOW, HardenedGradient, fraction_bits, on_grid
from taciturn.kernels.layout import Dense, Sparse
from taciturn.kernels.threads import threads
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives import passes as passes_module
from taciturn.objectives.clipping import GradientClipping
from taciturn.objectives.passes import COMPILED, Passes, scores
from taciturn.privacy.events import NON_PRIVATE
from taciturn.privacy.mechanisms import Calibrated
from taciturn.types import GRID, Array, Shard
from tests.random_problems import LEVELS, passes_with

J, BITS, ULPS = 20, 20, 10


@pytest.fixture(params=["numpy", *LEVELS])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Yield numpy's pass and the compiled one with every instruction set of this processor."""
    return passes_with(request.param, monkeypatch)


def tipping(loss: str, classes: int, n: int) -> tuple[Shard, Shard]:
    """Return n records with 30 % nonzero values, which are stored sparse, and one record that makes them dense."""
    rng = np.random.default_rng(classes)
    x = np.zeros((n, J))
    x[:, rng.choice(J, 6, replace=False)] = 1.0
    y = np.eye(classes)[np.full(n, 1)] if loss != "squared" else np.full((n, classes), 0.3)
    return Shard(x, y), Shard(np.ones((1, J)), y[:1])


def edges(loss: str, z: Array, record: Shard) -> Array:
    """Return bounds at which an entry of the record's term is nearly an integer, and bounds a few bits away."""
    whole, step = on_grid(z)
    own = record.on_grid
    r = LOSSES[loss]().residual(scores(whole, own.x) * (step / GRID)[:, None], own.y)[0, 0]
    long = own.norm2[0] / GRID * np.sqrt((r**2).sum())
    term = np.abs(r[np.abs(r) > 1e-4][:8]) / long * 2.0**BITS * BELOW  # of a bound of 1
    at = np.rint(0.1 * term) / term if len(term) else np.array([0.1])
    near = at[:, None] * (1.0 + np.arange(-ULPS, ULPS + 1) * 2.0**-52)
    bounds: Array = near.ravel()
    return bounds


@pytest.mark.parametrize("classes", [3, 20, 62])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_the_record_that_changes_the_layout_changes_no_other_term(passes: Passes, loss: str, classes: int) -> None:
    base, one = tipping(loss, classes, 40)
    both = Shard(np.concatenate([base.x, one.x]), np.concatenate([base.y, one.y]))
    if passes is COMPILED:
        assert isinstance(base.on_grid.layout, Sparse) and isinstance(both.on_grid.layout, Dense)
    for seed in range(3):
        z = np.random.default_rng(seed).normal(size=(J, 1, classes)) * (0.0, 0.3, 3.0)[seed]
        l2 = edges(loss, z, base)
        clip = GradientClipping(l2, np.full(len(l2), math.inf))
        release = HardenedGradient(clip, Calibrated("gaussian", (NON_PRIVATE,) * len(l2)), 100, BITS)
        problem = Problem(LOSSES[loss](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), 41, 2, passes)
        z = np.repeat(z, len(l2), axis=1)
        without, with_, alone = (release.sum(problem, z, each) for each in (base, both, one))
        np.testing.assert_array_equal(with_ - without, alone)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_neither_threads_nor_ranges_nor_order_change_a_term(
    passes: Passes, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result does not depend on the ranges of rows, which depend on the number of rows."""
    rng, n = np.random.default_rng(0), 301
    x = rng.integers(0, GRID, (n, J)) / GRID * (rng.random((n, J)) < 0.35)
    shard = Shard(x, rng.random((n, 20)) if loss == "squared" else np.eye(20)[rng.integers(0, 20, n)])
    release = HardenedGradient(
        GradientClipping(np.ones(1), np.full(1, math.inf)), Calibrated("gaussian", (NON_PRIVATE,)), n, BITS
    )
    problem = Problem(LOSSES[loss](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), n, 2, passes)
    z = rng.normal(size=(J, 1, 20))
    expected = sum(release.sum(problem, z, Shard(shard.x[i : i + 1], shard.y[i : i + 1])) for i in range(n))
    order = rng.permutation(n)
    for step, count in ((8192, 1), (7, 1), (64, 3), (100, 2)):
        monkeypatch.setattr(passes_module, "ROWS_PER_RANGE", step)
        monkeypatch.setattr(passes_module, "MAX_RANGES", 100)
        for held in (shard, Shard(shard.x[order], shard.y[order])):
            with threads(count):
                np.testing.assert_array_equal(release.sum(problem, z, held), expected)


@pytest.mark.parametrize("declared", [1, 20, 10**6])
def test_a_record_more_than_declared_moves_the_sum_by_its_own_term(passes: Passes, declared: int) -> None:
    """Leaving records out at the declared number would let one added record push another one out."""
    rng, clip = np.random.default_rng(4), 2.0**12  # of which float64 adds 32 exactly at the finest grid
    x, y = rng.integers(0, GRID + 1, (40, J)) / GRID, np.eye(3)[rng.integers(0, 3, 40)]
    limit, bits = GradientClipping(np.full(1, clip), np.full(1, math.inf)), fraction_bits(declared, clip, 40, 0.0)
    release = HardenedGradient(limit, Calibrated("gaussian", (NON_PRIVATE,)), declared, bits)
    problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), 40, 2, passes)
    z = rng.normal(size=(J, 1, 3))
    first, rest = Shard(x[:1], y[:1]), Shard(x[1:], y[1:])
    alone = release.sum(problem, z, first)
    assert alone.dtype == np.int64 and alone.any()
    np.testing.assert_array_equal(release.sum(problem, z, Shard(x, y)) - release.sum(problem, z, rest), alone)
    parts = list(release._exact_parts(Shard(x, y)))
    assert sum(len(part.x) for part in parts) == 40 and (len(parts) > 1) == (declared < 40)
