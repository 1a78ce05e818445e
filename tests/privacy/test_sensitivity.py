"""No two neighbouring data sets change a clipped gradient by more than the stated sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.algorithms.noisy_gradient import BELOW, HardenedGradient, fraction_bits
from taciturn.errors import InputError
from taciturn.kernels import layout
from taciturn.kernels.layout import Dense, Sparse
from taciturn.kernels.library import library
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import Clipping, GradientClipping, RecordScaling, rounding_slack
from taciturn.objectives.passes import COMPILED, PLAIN, Passes
from taciturn.planning.plan import plan_study
from taciturn.privacy.events import NON_PRIVATE
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.sensitivity import ADJACENCIES, gradient_sensitivity
from taciturn.settings import resolve
from taciturn.types import GRID, Shard

J, K = 5, 3


def make_problem(loss: str, records: int) -> Problem:
    return Problem(LOSSES[loss](), REGULARISERS["l2"](), 0.01, SETS["all"](1.0), records, 2)


def make_shard(rng: np.random.Generator, n: int, loss: str, dtype: Any = np.float64, values: int = 0) -> Shard:
    """Records with features in [-1, 1], on a coarse grid where `values` says so."""
    x = rng.uniform(-1.0, 1.0, (n, J))
    x = np.rint(values * x) / values if values else x
    labels = rng.random((n, K)) if loss == "squared" else np.eye(K)[rng.integers(0, K, n)]
    return Shard(x.astype(dtype), labels.astype(dtype))


def joined(a: Shard, b: Shard) -> Shard:
    return Shard(np.concatenate([a.x, b.x]), np.concatenate([a.y, b.y]))


def neighbours(base: Shard, first: Shard, second: Shard, adjacency: str) -> tuple[Shard, Shard]:
    """Two data sets of which `first` is one unit's records, and `second` another's."""
    other = base if adjacency == "add-remove" else joined(base, second)
    return joined(base, first), other


@settings(max_examples=70, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from(sorted(ADJACENCIES)),
    st.sampled_from([0.01, 0.3, 1.0, 30.0]),  # active for all records, for some, for none
    st.sampled_from([0.02, 1.0, math.inf]),
    st.sampled_from([0.1, 3.0, 300.0]),  # size of the parameters: an adversary's are large
    st.sampled_from([1, 3]),  # records of a unit
)
def test_clipped_gradients_move_by_no_more_than_stated(
    seed: int, loss: str, adjacency: str, l2: float, l1: float, size: float, unit: int
) -> None:
    rng = np.random.default_rng(seed)
    base, first, second = (make_shard(rng, n, loss) for n in (4, unit, unit))
    problem = make_problem(loss, 9)
    slack = rounding_slack(J, K, "float64")
    limit = GradientClipping(np.array([slack * l2]), np.array([slack * l1]))
    stated = gradient_sensitivity(l1, l2, problem.records, adjacency, unit)
    z = size * rng.normal(size=(J, 1, K))
    a, b = neighbours(base, first, second, adjacency)
    moved = problem.gradient(z, a, limit).value - problem.gradient(z, b, limit).value
    assert np.sqrt((moved**2).sum()) <= stated.l2 * (1.0 + 1e-9) + 1e-15
    assert np.abs(moved).sum() <= stated.l1 * (1.0 + 1e-9) + 1e-15


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["softmax", "hinge"]),
    st.sampled_from(sorted(ADJACENCIES)),
    st.sampled_from([0.2, 1.0, 5.0]),
)
def test_bounded_records_move_by_no_more_than_their_bound(seed: int, loss: str, adjacency: str, bound: float) -> None:
    rng = np.random.default_rng(seed)
    base, first, second = (make_shard(rng, n, loss) for n in (4, 1, 1))
    problem = make_problem(loss, 9)
    stated = gradient_sensitivity(math.inf, problem.loss.residual_bound * bound, problem.records, adjacency)
    z = 20.0 * rng.normal(size=(J, 1, K))
    a, b = neighbours(base, first, second, adjacency)
    limit = RecordScaling(bound)
    moved = problem.gradient(z, a, limit).value - problem.gradient(z, b, limit).value
    assert np.sqrt((moved**2).sum()) <= stated.l2 * (1.0 + 1e-9)


@pytest.mark.parametrize("adjacency", sorted(ADJACENCIES))
def test_the_sensitivity_is_attained(adjacency: str) -> None:
    """The bound is attained: a misclassified canary is replaced by one with the opposite gradient."""
    x = np.ones((1, J))
    base = Shard(np.zeros((2, J)), np.eye(K)[[0, 1]])
    first, second = Shard(x, np.eye(K)[[0]]), Shard(-x, np.eye(K)[[0]])
    problem, z = make_problem("softmax", 9), np.zeros((J, 1, K))
    limit = GradientClipping(np.array([0.3]), np.array([math.inf]))
    a, b = neighbours(base, first, second, adjacency)
    moved = problem.gradient(z, a, limit).value - problem.gradient(z, b, limit).value
    assert np.sqrt((moved**2).sum()) == pytest.approx(gradient_sensitivity(math.inf, 0.3, 9, adjacency).l2, rel=1e-9)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize(
    "limit", [GradientClipping(np.array([0.3, 2.0]), np.array([0.4, math.inf])), RecordScaling(0.7)]
)
def test_limits_agree_with_records_one_by_one(loss: str, limit: Clipping) -> None:
    """The products of norms against gradients that are really formed, record by record and run by run."""
    rng = np.random.default_rng(3)
    shard, problem, z = make_shard(rng, 6, loss), make_problem(loss, 6), rng.normal(size=(J, 2, K))
    expected = np.zeros_like(z)
    for run in range(2):
        for x, y in zip(shard.x, shard.y, strict=True):
            if isinstance(limit, RecordScaling):
                x = x * min(1.0, limit.bound / np.linalg.norm(x))  # noqa: PLW2901
            g = np.outer(x, problem.loss.residual((x @ z[:, run])[None, None], y[None])[0, 0])
            if isinstance(limit, GradientClipping):
                g = g * min(1.0, limit.l2[run] / (np.linalg.norm(g) or 1e-9), limit.l1[run] / (np.abs(g).sum() or 1e-9))
            expected[:, run] += g / problem.records
    found = problem.gradient(z, shard, limit).value - problem.shrinkage(z)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_an_inactive_clip_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    shard, problem, z = make_shard(rng, 6, "softmax"), make_problem("softmax", 6), rng.normal(size=(J, 1, K))
    wide = GradientClipping(np.array([100.0]), np.array([100.0]))
    np.testing.assert_array_equal(problem.gradient(z, shard, wide).value, problem.gradient(z, shard).value)


def test_a_record_in_single_precision_stays_within_the_bound() -> None:
    rng = np.random.default_rng(1)
    shard, problem = make_shard(rng, 50, "softmax", np.float32), make_problem("softmax", 50)
    z = (50.0 * rng.normal(size=(J, 1, K))).astype(np.float32)
    bound = np.array([0.1 * rounding_slack(J, K, "float32")], np.float32)
    limit, rows = GradientClipping(bound, np.array([math.inf], np.float32)), range(len(shard.x))
    alone = [Shard(shard.x[i : i + 1], shard.y[i : i + 1]) for i in rows]  # a record by itself: its own x r^T
    for passes in (PLAIN, COMPILED):
        parts = [passes.sums(problem.loss, z, record, limit).total for record in alone]
        assert {part.dtype for part in parts} == {np.dtype(np.float64)}
        lengths = np.array([np.linalg.norm(part) for part in parts])
        assert lengths.max() <= 0.1
        assert (lengths > 0.0999).any()


def excess(passes: Passes, n: int, to: Callable[[Any], Any] = np.asarray) -> float:
    """How much further than its bound one of n + 1 records moves their sum, in single precision."""
    rng = np.random.default_rng(0)
    x = np.tile(rng.uniform(0.3, 1.0, (1, J)), (n + 1, 1)).astype(np.float32)
    y = np.eye(K, dtype=np.float32)[np.zeros(n + 1, int)]
    bounds = (np.array([bound], np.float32) for bound in (0.1 * rounding_slack(J, K, "float32"), math.inf))
    limit, z = GradientClipping(*map(to, bounds)), to(rng.normal(size=(J, 1, K)).astype(np.float32))
    loss = LOSSES["softmax"]()
    a, b = (passes.sums(loss, z, Shard(to(x[:m]), to(y[:m])), limit).total for m in (n, n + 1))
    return float(np.linalg.norm((b - a).ravel())) / 0.1 - 1.0


@pytest.mark.parametrize("passes", [PLAIN, COMPILED])
def test_sums_of_many_records_in_single_precision_move_by_no_more_than_one(passes: Passes) -> None:
    """Rounding 60,000 sums in single precision would be off by a thousandth of a record and more."""
    assert -1e-5 < excess(passes, 60_000) <= 0.0


@pytest.mark.torch
def test_sums_in_single_precision_move_by_no_more_than_one_record_on_torch() -> None:
    torch = pytest.importorskip("torch")
    assert -1e-5 < excess(PLAIN, 60_000, torch.as_tensor) <= 0.0


@pytest.mark.skipif(library() is None, reason="Taciturn was installed without a C compiler")
@pytest.mark.parametrize("values", [4, 5000])
def test_in_single_precision_a_record_adds_the_same_in_every_layout(
    values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, though its scores are rounded: which layout there is depends on all records."""
    rng, n = np.random.default_rng(2), 400
    x = rng.integers(1, values + 1, (n, 50)) / values * (rng.random((n, 50)) < 0.2)
    y = np.eye(K, dtype=np.float32)[rng.integers(0, K, n)]
    sparse, dense = (Shard(x.astype(np.float32), y) for _ in range(2))
    assert isinstance(sparse.layout, Sparse) and (sparse.layout.code is None) == (values > 256)
    monkeypatch.setattr(layout, "SPARSE_BELOW", 0.0)
    assert isinstance(dense.layout, Dense)
    limit = GradientClipping(np.array([0.5], np.float32), np.array([math.inf], np.float32))
    z, loss = rng.normal(size=(50, 1, K)).astype(np.float32), LOSSES["softmax"]()
    one, other = (COMPILED.sums(loss, z, held, limit).total for held in (sparse, dense))
    np.testing.assert_array_equal(one, other)


def hardened(l2: float, l1: float = math.inf) -> HardenedGradient:
    limit, bits = GradientClipping(np.array([l2]), np.array([l1])), fraction_bits(100, l2, 31, 0.0)
    return HardenedGradient(limit, Calibrated("gaussian", (NON_PRIVATE,)), 100, bits)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from([0.05, 1.0, 20.0]),
    st.sampled_from([0.3, math.inf]),
)
def test_integer_sums_are_exact_and_bounded(seed: int, loss: str, l2: float, l1: float) -> None:
    """A record adds the same integers whatever the other records and its position are, within the sensitivity."""
    rng = np.random.default_rng(seed)
    base, canary = make_shard(rng, 30, loss), make_shard(rng, 1, loss)
    problem, release = make_problem(loss, 31), hardened(l2, l1)
    z, bits = rng.normal(size=(J, 1, K)) * 10.0, release.bits
    without, with_ = release.sum(problem, z, base), release.sum(problem, z, joined(base, canary))
    alone = release.sum(problem, z, canary)
    np.testing.assert_array_equal(with_ - without, alone)
    sizes = np.abs(alone.astype(np.float64))
    assert np.sqrt((sizes**2).sum()) <= l2 * GRID * 2.0**bits
    assert sizes.sum() <= l1 * GRID * 2.0**bits
    order = rng.permutation(30)
    np.testing.assert_array_equal(release.sum(problem, z, Shard(base.x[order], base.y[order])), without)


def test_integer_sums_are_the_clipped_gradient_to_the_grid() -> None:
    rng = np.random.default_rng(5)
    shard, problem = make_shard(rng, 40, "softmax", values=255), make_problem("softmax", 40)
    z, release = rng.normal(size=(J, 1, K)), hardened(0.5)
    bits = release.bits
    found = release.sum(problem, z, shard) / (GRID * 2.0**bits * problem.records)
    exact = problem.gradient(z, shard, release.clipping).value - problem.shrinkage(z)
    np.testing.assert_allclose(found, exact, atol=2.0**-bits + 1e-9)
    assert 0.999999 < BELOW < 1.0


def test_what_does_not_fit_the_integers_is_refused() -> None:
    declared: dict[str, Any] = {"noise": "hardened", "total_epsilon": math.inf, "records_max": 10**9, "clip": 1e9}
    with pytest.raises(InputError, match="no integers for hardened noise"):
        plan_study(resolve({"data": "mnist14", "rounds": 1} | declared))


def test_an_unknown_adjacency_is_refused() -> None:
    with pytest.raises(InputError, match="no adjacency 'swap'"):
        gradient_sensitivity(1.0, 1.0, 10, "swap")
