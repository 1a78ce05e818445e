"""Records with weights within [0, 1]: no sensitivity grows, and every way to handle records keeps the weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.algorithms.noisy_gradient import HardenedGradient, fraction_bits
from taciturn.algorithms.subproblem import scale_records
from taciturn.core.arrays import backing_file, to_numpy
from taciturn.data.allocation import ArrayAllocator
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import NO_CLIPPING, Clipping, GradientClipping, RecordScaling, rounding_slack
from taciturn.objectives.passes import COMPILED, PLAIN, Passes
from taciturn.objectives.problem import sampled_gradient
from taciturn.privacy.events import NON_PRIVATE
from taciturn.privacy.mechanisms import Calibrated
from taciturn.training.torch_backend import on_device
from taciturn.types import GRID, Array, Shard, pool

J, K = 5, 3
PASSES: dict[str, Passes] = {"plain": PLAIN, "compiled": COMPILED}

anything = st.integers(0, 10**6)
losses = st.sampled_from(sorted(LOSSES))
passes_of = st.sampled_from(sorted(PASSES))
precisions = st.sampled_from(["float32", "float64"])


def records(rng: np.random.Generator, n: int, loss: str, dtype: str = "float64") -> Shard:
    y = rng.random((n, K)) if loss == "squared" else np.eye(K)[rng.integers(0, K, n)]
    weights = rng.choice([0.0, 1.0, *rng.random(3)], n)
    return Shard(rng.uniform(-1.0, 1.0, (n, J)).astype(dtype), y.astype(dtype), weights.astype(dtype))


def problem_of(loss: str, n: int, passes: Passes = COMPILED) -> Problem:
    return Problem(LOSSES[loss](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), n, 1, passes)


def hardened(l2: float, l1: float) -> HardenedGradient:
    limit, bits = GradientClipping(np.array([l2]), np.array([l1])), fraction_bits(100, l2, 31, 0.0)
    return HardenedGradient(limit, Calibrated("gaussian", (NON_PRIVATE,)), 100, bits)


@settings(max_examples=80, deadline=None)
@given(
    anything, losses, passes_of, precisions,
    st.sampled_from([0.01, 0.3, 30.0]), st.sampled_from([0.02, 1.0, math.inf]), st.sampled_from([0.1, 3.0, 300.0]),
)  # fmt: skip
def test_a_weighted_record_contributes_at_most_the_clip(
    seed: int, loss: str, passes: str, precision: str, l2: float, l1: float, size: float
) -> None:
    rng, slack = np.random.default_rng(seed), rounding_slack(J, K, precision)
    shard, z = records(rng, 8, loss, precision), (size * rng.normal(size=(J, 1, K))).astype(precision)
    limit = GradientClipping(*(np.array([slack * bound], precision) for bound in (l2, l1)))
    for i in range(8):
        alone = PASSES[passes].sums(LOSSES[loss](), z, shard.rows(slice(i, i + 1)), limit).total
        assert np.linalg.norm(alone) <= l2
        assert np.abs(alone).sum() <= l1 * (1.0 + 1e-6)
        if shard.weights is not None and shard.weights[i] == 0.0:
            assert not alone.any()


@settings(max_examples=40, deadline=None)
@given(anything, losses, passes_of, st.sampled_from([0.05, 1.0, 20.0]), st.sampled_from([0.3, math.inf]))
def test_integer_sums_of_weighted_records_are_exact_and_bounded(
    seed: int, loss: str, passes: str, l2: float, l1: float
) -> None:
    rng = np.random.default_rng(seed)
    base, one = records(rng, 30, loss), records(rng, 1, loss)
    problem, release = problem_of(loss, 31, PASSES[passes]), hardened(l2, l1)
    z, bits = 10.0 * rng.normal(size=(J, 1, K)), release.bits
    alone = release.sum(problem, z, one)
    both = release.sum(problem, z, pool([base, one]))
    np.testing.assert_array_equal(both - release.sum(problem, z, base), alone)
    assert np.sqrt((alone.astype(np.float64) ** 2).sum()) <= l2 * GRID * 2.0**bits
    assert np.abs(alone).sum() <= l1 * GRID * 2.0**bits
    ones = replace(base, weights=np.ones(30))
    np.testing.assert_array_equal(release.sum(problem, z, ones), release.sum(problem, z, base.unweighted))


@settings(max_examples=40, deadline=None)
@given(anything, st.sampled_from(["softmax", "hinge"]), st.sampled_from([0.2, 1.0, 5.0]))
def test_a_weighted_record_that_is_scaled_stays_within_its_bound(seed: int, loss: str, bound: float) -> None:
    rng = np.random.default_rng(seed)
    shard, z, of = records(rng, 4, loss), 20.0 * rng.normal(size=(J, 1, K)), LOSSES[loss]()
    for i in range(4):
        alone = COMPILED.sums(of, z, shard.rows(slice(i, i + 1)), RecordScaling(bound)).total
        assert np.linalg.norm(alone) <= of.residual_bound * bound * (1.0 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(anything, losses, passes_of)
def test_whole_ratios_of_weights_are_repeated_records(seed: int, loss: str, passes: str) -> None:
    rng, times = np.random.default_rng(seed), np.random.default_rng(seed).integers(0, 5, 12)
    shard, z, of = records(rng, 12, loss), rng.normal(size=(J, 2, K)), LOSSES[loss]()
    weighted, repeated = replace(shard, weights=times / 4.0), shard.unweighted.rows(np.repeat(np.arange(12), times))
    if not times.any():
        return
    own = PASSES[passes]
    many = own.sums(of, z, repeated, NO_CLIPPING).total
    np.testing.assert_allclose(4.0 * own.sums(of, z, weighted, NO_CLIPPING).total, many, atol=1e-12)
    np.testing.assert_allclose(4.0 * own.losses(of, z, weighted), own.losses(of, z, repeated), atol=1e-11)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("limit", [GradientClipping(np.array([0.3]), np.array([math.inf])), RecordScaling(0.7)])
def test_the_weight_counts_before_the_bound(loss: str, limit: Clipping) -> None:
    """Against gradients that are formed record by record: a record of weight 1/2 is clipped less, not half as short."""
    rng, of = np.random.default_rng(3), LOSSES[loss]()
    shard, z = records(rng, 20, loss), rng.normal(size=(J, 1, K))
    expected: Array = np.zeros((J, K))
    assert shard.weights is not None
    for x, y, m in zip(shard.x, shard.y, shard.weights, strict=True):
        if isinstance(limit, RecordScaling):
            x = x * min(1.0, limit.bound / np.linalg.norm(x))  # noqa: PLW2901
        g = m * np.outer(x, of.residual((x @ z[:, 0])[None, None], y[None])[0, 0])
        if isinstance(limit, GradientClipping):
            g = g * min(1.0, limit.l2[0] / (np.linalg.norm(g) or 1e-9))
        expected += g
    for passes in PASSES.values():
        np.testing.assert_allclose(passes.sums(of, z, shard, limit).total[:, 0], expected, rtol=1e-12, atol=1e-14)


def mapped_to_a_file(shard: Shard, folder: Path) -> Shard:
    held = []
    for values in (shard.x, shard.y, np.asarray(shard.weights)[:, None]):
        array = ArrayAllocator(np.float64, str(folder)).empty(*values.shape)
        array[:] = values
        held.append(array)
    return Shard(held[0], held[1], held[2][:, 0])


def test_records_in_a_file_keep_their_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shard, z, of = records(rng, 300, "softmax"), rng.normal(size=(J, 1, K)), LOSSES["softmax"]()
    monkeypatch.setattr("taciturn.types.row_blocks", lambda n, size: [slice(i, i + 70) for i in range(0, n, 70)])
    there = mapped_to_a_file(shard, tmp_path)
    assert backing_file(there.x) is not None and len(list(there.blocks())) == 5
    for passes in PASSES.values():
        found, expected = (passes.sums(of, z, held, NO_CLIPPING).total for held in (there, shard))
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(passes.losses(of, z, there), passes.losses(of, z, shard))


SAME_ROWS: dict[str, Callable[[Shard], Shard]] = {
    "copy": Shard.copy,
    "with_features": lambda shard: shard.with_features(2.0 * shard.x),
    "on_grid": lambda shard: shard.on_grid,
    "pool": lambda shard: pool([shard.rows(slice(3)), shard.rows(slice(3, None))]),
    "scale_records": lambda shard: scale_records(shard, RecordScaling(0.1)),
}


@pytest.mark.parametrize("way", SAME_ROWS)
def test_records_keep_their_weights(way: str) -> None:
    shard = records(np.random.default_rng(0), 9, "softmax")
    found = SAME_ROWS[way](shard)
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights, np.asarray(shard.weights))
    assert SAME_ROWS[way](shard.unweighted).weights is None


def test_pooled_records_without_weights_have_weight_1() -> None:
    shard = records(np.random.default_rng(0), 4, "softmax")
    found = pool([shard.unweighted, shard]).weights
    np.testing.assert_array_equal(np.asarray(found), [1.0, 1.0, 1.0, 1.0, *np.asarray(shard.weights)])


def test_samples_keep_their_weights() -> None:
    rng = np.random.default_rng(0)
    shard, z, chosen = records(rng, 9, "softmax"), rng.normal(size=(J, 1, K)), np.arange(9)[:, None] % 2 == 0
    problem = problem_of("softmax", 9)
    found = sampled_gradient(problem, z, shard, chosen, 0.5)
    np.testing.assert_allclose(found, 2.0 * problem.gradient(z, shard.rows(chosen[:, 0])).value, atol=1e-14)


@pytest.mark.torch
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_weighted_records_are_summed_the_same_way_with_torch(precision: str) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shard, of = records(rng, 40, "softmax", precision), LOSSES["softmax"]()
    z: Array = rng.normal(size=(J, 1, K)).astype(precision)
    for limit in (GradientClipping(*np.array([[0.3], [math.inf]], precision)), NO_CLIPPING):
        there = to_numpy(PLAIN.sums(of, *on_device((z, shard, limit), "cpu")).total)
        np.testing.assert_allclose(there, PLAIN.sums(of, z, shard, limit).total, rtol=1e-5, atol=1e-5)
    losses_there = to_numpy(PLAIN.losses(of, *on_device((z, shard), "cpu")))
    np.testing.assert_allclose(losses_there, PLAIN.losses(of, z, shard), rtol=1e-5)
