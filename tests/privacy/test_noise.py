"""Seeded noise: keyed, of the right distribution, and accounted for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tacit.privacy.events import Nominal
from tacit.privacy.mechanisms.gaussian_classic import GaussianClassic
from tacit.privacy.mechanisms.laplace_data_dependent import LaplaceDataDependent
from tacit.privacy.noise import SeededNoise
from tacit.problems import LOSSES
from tests.random_problems import K, problem, shards

LIKE = np.zeros((200, 2, 50))
ONE = np.ones(2)


def test_noise_depends_on_its_key_alone() -> None:
    """Batched or not, whatever was drawn before; and each part of the key matters."""
    together = SeededNoise((5, 6), 2, 3).laplace(4, ONE, LIKE)
    alone = SeededNoise((6,), 2, 3).laplace(4, ONE[:1], LIKE[:, :1])
    np.testing.assert_array_equal(together[:, 1], alone[:, 0])
    others = [SeededNoise((7,), 2, 3), SeededNoise((6,), 3, 3), SeededNoise((6,), 2, 4)]
    draws = [other.laplace(4, ONE[:1], LIKE[:, :1]) for other in others] + [
        SeededNoise((6,), 2, 3).laplace(5, ONE[:1], LIKE[:, :1])
    ]
    for draw in draws:
        assert abs(np.corrcoef(draw.ravel(), alone.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize(("kind", "reference"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_distribution_and_scale(kind: str, reference: stats.rv_continuous) -> None:
    scale = np.array([0.5, 3.0])
    draw = getattr(SeededNoise((1, 2), 0, 1), kind)(0, scale, LIKE)
    for r in range(2):
        assert stats.kstest(draw[:, r].ravel(), reference(scale=scale[r]).cdf).pvalue > 1e-3


def test_the_key_is_taken_whole() -> None:
    """Streams are 64 bits: two that differ in the last one have nothing in common."""
    one, other = (SeededNoise((1,), 0, 1, (2**64 - last,)).gaussian(0, np.ones(1), LIKE[:, :1]) for last in (1, 2))
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.1


def test_no_scale_no_noise() -> None:
    draw = SeededNoise((1, 2), 0, 1).laplace(0, np.array([0.0, 1.0]), LIKE)
    assert not draw[:, 0].any()
    assert draw[:, 1].all()


@pytest.mark.parametrize("loss", list(LOSSES))
def test_data_dependent_sensitivity_is_the_largest_record(loss: str) -> None:
    """max_i ||x_i r_i^T||_1 / I, with every per-record gradient written out."""
    parts = shards(3)
    of = problem(parts, loss)
    z = np.random.default_rng(0).standard_normal((4, 2, K))
    found = of.gradient(z, parts[0]).longest
    residual = of.loss.residual(np.einsum("nj,jrk->nrk", parts[0].x, z), parts[0].y)
    for r in range(2):
        records = [np.abs(np.outer(x, e)).sum() for x, e in zip(parts[0].x, residual[:, r], strict=True)]
        assert found[r] == pytest.approx(max(records) / of.records, rel=1e-12)


def test_laplace_scale_is_delta_over_epsilon() -> None:
    draw = LaplaceDataDependent(np.array([0.5, np.inf])).draw(0, np.array([2.0, 2.0]), LIKE, SeededNoise((1, 2), 0, 1))
    assert np.abs(draw.xi[:, 0]).mean() == pytest.approx(4.0, rel=0.05)  # the mean |Lap(b)| is b
    assert not draw.xi[:, 1].any()
    assert [e.epsilon for e in draw.event.runs if isinstance(e, Nominal)] == [0.5, math.inf]
    assert [event.mechanism for event in draw.event.runs] == ["laplace-data-dependent", "none"]


def test_gaussian_levels_are_kept_apart() -> None:
    epsilon, sensitivity = np.array([0.5, 0.5]), np.array([0.1, 0.1])
    sigma = 0.1 * math.sqrt(2 * math.log(1.25 / 1e-6)) / 0.5
    for squared, std in ((False, sigma), (True, sigma**2)):
        mechanism = GaussianClassic(epsilon, 1e-6, squared)
        np.testing.assert_allclose(mechanism.std(sensitivity), std, rtol=1e-14)
        draw = mechanism.draw(0, sensitivity, LIKE, SeededNoise((1, 2), 0, 1))
        assert draw.xi.std() == pytest.approx(std, rel=0.05)
        assert draw.event.runs[0].mechanism == ("gaussian-published" if squared else "gaussian-classic")


def test_no_sensitivity_no_noise_and_no_claim() -> None:
    mechanism = LaplaceDataDependent(np.array([0.5, 0.5], np.float32))
    draw = mechanism.draw(0, np.array([0.0, 1.0], np.float32), LIKE, SeededNoise((1, 2), 0, 1))
    assert not draw.xi[:, 0].any()
    assert [event.mechanism for event in draw.event.runs] == ["none", "laplace-data-dependent"]


def test_budgets_are_recorded_as_they_were_given() -> None:
    draw = LaplaceDataDependent(np.array([0.05, 0.1], np.float32)).draw(0, ONE, LIKE, SeededNoise((1, 2), 0, 1))
    assert [e.epsilon for e in draw.event.runs if isinstance(e, Nominal)] == [0.05, 0.1]


def test_large_seeds_are_told_apart() -> None:
    draws = [SeededNoise((2**62 + i,), 0, 1).laplace(0, ONE[:1], LIKE[:, :1]) for i in range(2)]
    assert not np.array_equal(draws[0], draws[1])
