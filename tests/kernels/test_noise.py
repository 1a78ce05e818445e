"""Compiled noise equals numpy's, number by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox

from taciturn.kernels import discrete_noise, library
from taciturn.kernels import library as noise_module
from taciturn.kernels.library import KINDS, fill_noise
from taciturn.privacy import discrete
from taciturn.privacy.discrete import SeededEntropy, discrete_gaussian, discrete_laplace
from tests.random_problems import LEVELS

pytestmark = pytest.mark.skipif(library.library() is None, reason="Taciturn was installed without a C compiler")

KEYS = [(1, 2, (0, 0, 0, 1)), (2**62, 7, (0, 2**64 - 1, 9, 20_000)), (5, 0, (2**64 - 3, 2**64 - 1, 0, 0))]


def expected(kind: str, key: np.ndarray, counter: np.ndarray, size: int) -> np.ndarray:
    generator = Generator(Philox(key=key, counter=counter))
    return generator.standard_normal(size) if kind == "gaussian" else generator.laplace(size=size)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", range(len(KEYS)))
def test_it_draws_what_numpy_draws(kind: str, place: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """300,000 numbers include the ziggurat's tails and wedges, and the counter's carry."""
    monkeypatch.setattr(noise_module, "level", lambda: level)
    seed, agent, count = KEYS[place]
    key, counter, out = np.array([seed, agent], np.uint64), np.array(count, np.uint64), np.zeros((300, 1000))
    fill_noise(out, kind, key, counter, 2.0)
    np.testing.assert_allclose(out.ravel(), 2.0 * expected(kind, key, counter, 300_000), rtol=3e-14)
    if kind == "gaussian":
        assert np.abs(out).max() > 2.0 * 3.6541528853610088  # some came from the tail


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1), (255, 1), (16, 16), (257, 3), (10, 100)])
def test_it_is_written_in_place_between_the_others(kind: str, shape: tuple[int, int]) -> None:
    rows, columns = shape
    key, counter = np.array([3, 4], np.uint64), np.zeros(4, np.uint64)
    for dtype in (np.float32, np.float64):
        beside = np.full((rows, 3, columns), 7.0, dtype)
        fill_noise(beside[:, 1], kind, key, counter, 0.5)
        drawn = 0.5 * expected(kind, key, counter, rows * columns).reshape(shape)
        np.testing.assert_allclose(beside[:, 1], drawn, rtol=1e-6 if dtype == np.float32 else 3e-14)
        assert (beside[:, [0, 2]] == 7.0).all()


def test_without_the_library_numpy_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    key, counter = np.array([3, 4], np.uint64), np.zeros(4, np.uint64)
    with_it, without = np.zeros((2, 50, 4))
    fill_noise(with_it, "laplace", key, counter, 1.0)
    monkeypatch.setattr(noise_module, "library", lambda: None)
    fill_noise(without, "laplace", key, counter, 1.0)
    np.testing.assert_allclose(with_it, without, rtol=3e-14)


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [discrete.SMALLEST, 0.3, 17.3, 1e6, 3e8, 1e13, discrete.LARGEST])
@pytest.mark.parametrize("level", LEVELS)
def test_discrete_samples_are_those_of_the_plain_form(
    sampler: Callable[..., Any], scale: float, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit, with every proposal in doubt that the plain form doubts, and so from the same words."""
    size = 3 if scale == discrete.SMALLEST else 200_000
    monkeypatch.setattr(discrete_noise, "level", lambda: level)
    compiled, words = SeededEntropy(8), SeededEntropy(8)
    found = sampler(scale, size, compiled)
    monkeypatch.setattr(discrete_noise, "library", lambda: None)
    np.testing.assert_array_equal(found, sampler(scale, size, words))
    np.testing.assert_array_equal(compiled.words(1), words.words(1))


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_proposals_are_in_doubt(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With margins so wide that a thousandth is in doubt, also next to both ends of the table."""
    monkeypatch.setattr(discrete_noise, "level", lambda: level)
    monkeypatch.setattr(discrete, "ERROR_32", 1e-3)
    words = SeededEntropy(9).words(100_000).copy()
    words[:4], words[4:70] = (0, 1, 2**64 - 2, 2**64 - 1), [(1 << i % 33 + 31) - i // 33 for i in range(66)]
    table = discrete._shared_table()
    compiled = discrete_noise.propose(table, words, 100.0, 1e-3, discrete.CAP - discrete.ERROR)
    assert compiled is not None
    for one, other in zip(compiled, discrete._propose(words, 100.0, 1e-3), strict=True):
        np.testing.assert_array_equal(one, other)
    assert 100 < compiled[1].sum() < 1000
    uniforms = words.view(np.uint32)[: len(words)].copy()
    accepted = discrete_noise.accept(table, uniforms, compiled[0], 100.0, 1e-3, discrete.CAP)
    assert accepted is not None
    for one, other in zip(accepted, discrete._accept(uniforms, compiled[0], 100.0), strict=True):
        np.testing.assert_array_equal(one, other)
    assert 10 < accepted[1].sum() < 1000
