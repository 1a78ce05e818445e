"""The compiled pass equals the plain one for every loss, bound, layout, precision and instruction set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.algorithms.noisy_gradient import IntegerResiduals
from taciturn.kernels import layout, library
from taciturn.kernels import row_pass as rows
from taciturn.kernels.layout import Dense, Sparse, choose_layout
from taciturn.kernels.threads import threads
from taciturn.objectives import LOSSES
from taciturn.objectives import passes as passes_module
from taciturn.objectives.clipping import NO_CLIPPING, Clipping, GradientClipping, RecordScaling
from taciturn.objectives.passes import COMPILED, PLAIN
from taciturn.types import Array, Shard
from tests.random_problems import LEVELS

pytestmark = pytest.mark.skipif(library.library() is None, reason="Taciturn was installed without a C compiler")

PRECISIONS = {"float32": 3e-5, "float64": 1e-13}
LIMITS = ("none", "l2", "l2 and l1", "records", "whole")


@pytest.fixture(params=LEVELS)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield every instruction set of this processor."""
    monkeypatch.setattr(rows, "level", lambda: request.param)
    monkeypatch.setattr(passes_module, "level", lambda: 4)  # so that even the slowest is not passed over
    yield request.param


def limit(kind: str, runs: int, dtype: str) -> Clipping:
    l2, l1 = np.linspace(0.2, 2.0, runs, dtype=dtype), np.full(runs, math.inf, dtype)
    if kind == "l2":
        return GradientClipping(l2, l1)
    if kind == "l2 and l1":
        return GradientClipping(l2, np.where(np.arange(runs) == 0, 0.3, math.inf).astype(dtype))
    if kind == "records":
        return RecordScaling(0.7)
    if kind == "whole":
        return IntegerResiduals(GradientClipping(l2, l1), np.full(runs, 0.5, dtype), 64.0)
    return NO_CLIPPING


def records(rng: np.random.Generator, n: int, J: int, K: int, density: float, dtype: str) -> Shard:
    x = rng.uniform(-1.0, 1.0, (n, J)) * (rng.uniform(size=(n, J)) < density)
    return Shard(x.astype(dtype), np.eye(K, dtype=dtype)[rng.integers(0, K, n)])


def close(found: Array, expected: Array, tolerance: float) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * (1e-30 + np.abs(expected).max()))


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("dtype", list(PRECISIONS))
@pytest.mark.parametrize("density", [0.15, 1.0])
def test_the_compiled_pass_agrees_with_the_plain_one(
    instructions: int, dtype: str, loss: str, kind: str, density: float
) -> None:
    rng, of = np.random.default_rng(len(kind)), LOSSES[loss]()
    for n, J, R, K in (
        (1, 1, 1, 1),
        (17, 3, 1, 2),
        (65, 20, 1, 10),
        (40, 7, 5, 9),
        (70, 11, 3, 62),
        (9, 33, 2, 16),
        (64, 5, 1, 3),
        (128, 4, 2, 3),
    ):
        shard, z = records(rng, n, J, K, density, dtype), rng.normal(size=(J, R, K)).astype(dtype)
        bound = limit(kind, R, dtype)
        if kind == "whole":  # what is cut must not lie on the edge of a cut in one form and beyond it in the other
            z = np.rint(4.0 * z) / 4.0
        expected, found = PLAIN.sums(of, z, shard, bound), COMPILED.sums(of, z, shard, bound)
        coarse = 1.0 if kind == "whole" else 0.0  # a record on the edge of a cut may fall on either side
        np.testing.assert_allclose(
            found.total, expected.total, rtol=PRECISIONS[dtype], atol=coarse + PRECISIONS[dtype] * n
        )
        np.testing.assert_allclose(
            found.longest, expected.longest, rtol=PRECISIONS[dtype], atol=J * coarse + PRECISIONS[dtype]
        )
        close(COMPILED.losses(of, z, shard), PLAIN.losses(of, z, shard), PRECISIONS[dtype])
        for one, other in zip(COMPILED.losses_and_sums(of, z, shard), PLAIN.losses_and_sums(of, z, shard), strict=True):
            close(one, other, PRECISIONS[dtype])


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("dtype", list(PRECISIONS))
@pytest.mark.parametrize("density", [0.15, 1.0])
def test_the_passes_agree_on_weighted_records(
    instructions: int, dtype: str, loss: str, kind: str, density: float
) -> None:
    """A weight is applied before the bound, in every layout; weights of 1 change no bit."""
    rng, of = np.random.default_rng(len(kind)), LOSSES[loss]()
    for n, J, R, K in ((1, 1, 1, 1), (17, 3, 1, 2), (40, 7, 5, 9), (130, 4, 2, 3)):
        shard, z = records(rng, n, J, K, density, dtype), np.rint(4.0 * rng.normal(size=(J, R, K))) / 4.0
        z, bound, ones = z.astype(dtype), limit(kind, R, dtype), replace(shard, weights=np.ones(n, dtype))
        weighted = replace(shard, weights=rng.integers(0, 5, n).astype(dtype) / 4)
        expected, found = PLAIN.sums(of, z, weighted, bound), COMPILED.sums(of, z, weighted, bound)
        coarse, close_to = (1.0 if kind == "whole" else 0.0), PRECISIONS[dtype]
        np.testing.assert_allclose(found.total, expected.total, rtol=close_to, atol=n * (coarse / 4 + close_to))
        np.testing.assert_allclose(found.longest, expected.longest, rtol=close_to, atol=J * coarse + close_to)
        for one, other in zip(
            COMPILED.losses_and_sums(of, z, weighted), PLAIN.losses_and_sums(of, z, weighted), strict=True
        ):
            close(one, other, PRECISIONS[dtype])
        close(COMPILED.losses(of, z, weighted), PLAIN.losses(of, z, weighted), PRECISIONS[dtype])
        for passes in (PLAIN, COMPILED):
            for same, without in zip(passes.sums(of, z, ones, bound), passes.sums(of, z, shard, bound), strict=True):
                np.testing.assert_array_equal(same, without)
            np.testing.assert_array_equal(passes.losses(of, z, ones), passes.losses(of, z, shard))


@given(
    n=st.integers(1, 70), J=st.integers(1, 40), R=st.integers(1, 6), K=st.integers(1, 20), seed=st.integers(0, 2**32),
    density=st.floats(0.0, 1.0), loss=st.sampled_from(["softmax", "squared"]), size=st.floats(0.0, 1e4),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_the_passes_agree_for_any_shape(
    n: int, J: int, R: int, K: int, seed: int, density: float, loss: str, size: float
) -> None:
    rng, of = np.random.default_rng(seed), LOSSES[loss]()
    shard, z = records(rng, n, J, K, density, "float64"), size * rng.normal(size=(J, R, K))
    expected, found = PLAIN.sums(of, z, shard, NO_CLIPPING), COMPILED.sums(of, z, shard, NO_CLIPPING)
    scale = 1e-10 * n * (1.0 + size)  # scores of 1e4 lose four digits to rounding before the exponential
    np.testing.assert_allclose(found.total, expected.total, atol=scale)
    np.testing.assert_allclose(found.longest, expected.longest, atol=scale * J)


@pytest.mark.parametrize("dtype", list(PRECISIONS))
def test_exponentials_are_right_to_the_last_digits(instructions: int, dtype: str) -> None:
    """One record whose scores are 0 and -s: its residual for class 1, of which it is not, is 1 / (1 + e^s)."""
    s = np.concatenate([np.linspace(0.0, 2.0, 301), np.linspace(2.0, 80.0, 200)]).astype(dtype)
    z = np.stack([np.zeros_like(s), -s], axis=1)[None]  # [1, R, 2]
    shard = Shard(np.ones((1, 1), dtype), np.array([[1.0, 0.0]], dtype))
    found = COMPILED.sums(LOSSES["softmax"](), z, shard, NO_CLIPPING).total[0, :, 1].astype(np.float64)
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp(s.astype(np.float64))), rtol=5.0 * float(np.finfo(dtype).eps))


def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(0)
    shard, z = (
        records(rng, 3 * passes_module.ROWS_PER_RANGE + 5, 6, 3, 0.8, "float32"),
        rng.normal(size=(6, 2, 3)).astype("f"),
    )
    loss, found = LOSSES["softmax"](), []
    for count in (1, 2, 3, 7):
        with threads(count):
            found.append(COMPILED.sums(loss, z, shard, NO_CLIPPING).total)
    assert all(np.array_equal(one, found[0]) for one in found)


def test_runs_do_not_influence_each_other() -> None:
    rng = np.random.default_rng(1)
    shard, z = records(rng, 50, 8, 5, 1.0, "float64"), rng.normal(size=(8, 7, 5))
    loss, bound = LOSSES["softmax"](), limit("l2 and l1", 7, "float64")
    beside = COMPILED.sums(loss, z, shard, bound)
    for r in range(7):
        assert isinstance(bound, GradientClipping)
        alone = COMPILED.sums(loss, z[:, r : r + 1], shard, GradientClipping(bound.l2[r : r + 1], bound.l1[r : r + 1]))
        np.testing.assert_allclose(alone.total[:, 0], beside.total[:, r], rtol=1e-13, atol=1e-15)


def test_one_bound_may_stand_for_all_runs() -> None:
    rng = np.random.default_rng(2)
    shard, z = records(rng, 20, 4, 3, 1.0, "float64"), rng.normal(size=(4, 50, 3))
    one = GradientClipping(np.array([0.3]), np.array([0.4]))
    loss = LOSSES["softmax"]()
    close(COMPILED.sums(loss, z, shard, one).total, PLAIN.sums(loss, z, shard, one).total, 1e-13)


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("shape", [(5, 1, 3), (3, 1, 3), (4, 1, 2), (4, 2, 4)])
def test_parameters_of_another_shape_are_refused(shape: tuple[int, ...], density: float) -> None:
    """Arrays of the wrong shape are refused, because C would read beyond their end."""
    shard = records(np.random.default_rng(5), 20, 4, 3, density, "float64")
    with pytest.raises(ValueError, match=r"w is \("):
        COMPILED.sums(LOSSES["softmax"](), np.zeros(shape), shard, NO_CLIPPING)


def test_weights_of_another_length_are_refused() -> None:
    shard = records(np.random.default_rng(5), 20, 4, 3, 1.0, "float64")
    with pytest.raises(ValueError, match=r"weights are \(1,\) for 20 records"):
        COMPILED.sums(LOSSES["softmax"](), np.zeros((4, 1, 3)), replace(shard, weights=np.ones(1)), NO_CLIPPING)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_stay_so(bad: float) -> None:
    rng = np.random.default_rng(3)
    shard, z = records(rng, 20, 4, 3, 1.0, "float64"), np.full((4, 1, 3), bad)
    assert not np.isfinite(COMPILED.sums(LOSSES["softmax"](), z, shard, NO_CLIPPING).total).any()


def test_a_loss_that_is_not_compiled_uses_the_plain_pass() -> None:
    class Other(type(LOSSES["squared"]())):  # type: ignore[misc]
        def residual(self, scores: Array, y: Array) -> Array:
            return np.asarray(2.0 * super().residual(scores, y))

    rng = np.random.default_rng(4)
    shard, z = records(rng, 20, 4, 3, 1.0, "float64"), rng.normal(size=(4, 1, 3))
    np.testing.assert_array_equal(
        COMPILED.sums(Other(), z, shard, NO_CLIPPING).total, PLAIN.sums(Other(), z, shard, NO_CLIPPING).total
    )


@pytest.mark.parametrize("dtype", list(PRECISIONS))
@pytest.mark.parametrize("values", [1, 255, 256, 257, 5000])
def test_a_sparse_layout_holds_the_same_numbers(values: int, dtype: str) -> None:
    rng = np.random.default_rng(values)
    table = np.unique(rng.uniform(0.1, 1.0, 2 * values).astype(dtype))[:values]
    x = np.zeros((200, 300), dtype)
    places = rng.choice(x.size, max(values, 3000), replace=False)
    x.flat[places] = table[np.arange(len(places)) % values]
    held = choose_layout(x)
    assert isinstance(held, Sparse)
    assert (held.code is None) == (values > layout.CODES)
    entries = held.value if held.code is None else held.value[held.code]
    again = np.zeros_like(x)
    again[np.repeat(np.arange(len(x)), np.diff(held.start)), held.index] = entries
    np.testing.assert_array_equal(again, x)
    assert held.nbytes < x.nbytes / 2


@pytest.mark.parametrize(("shape", "share"), [((20, 30), 0.5), ((2, layout.INDEXED + 1), 0.01)])
def test_dense_or_very_wide_records_stay_as_they_are(shape: tuple[int, int], share: float) -> None:
    x = (np.random.default_rng(0).uniform(size=shape) < share).astype(np.float64)
    held = choose_layout(x)
    assert isinstance(held, Dense)
    assert held.x is x


def test_it_is_what_a_run_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled pass computes every gradient of a study, unless backend numpy is chosen."""
    from taciturn.settings import resolve
    from taciturn.training.setup import prepare

    def refuse(*given: Any, **named: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(passes_module, "run_pass", refuse)
    z = np.zeros((196, 1, 10))
    for backend, compiled in (("auto", True), ("numpy", False)):
        study = prepare(resolve({"backend": backend, "features": "none", "rounds": 1}))
        assert study.settings.backend == backend
        if compiled:
            with pytest.raises(ZeroDivisionError):
                study.problem.gradient(z, study.dataset.train[0])
        else:
            study.problem.gradient(z, study.dataset.train[0])
