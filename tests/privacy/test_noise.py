"""Seeded noise is keyed, has the right distribution, and has events."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from taciturn.errors import InputError
from taciturn.objectives import LOSSES
from taciturn.privacy.discrete import SeededEntropy
from taciturn.privacy.events import Nominal
from taciturn.privacy.mechanisms import GaussianClassic, LaplaceDataDependent
from taciturn.privacy.noise import SYSTEM_NOISE, HardenedNoise, NoiseSource, SeededNoise
from tests.random_problems import K, problem, shards

LIKE = np.zeros((200, 2, 50))
ONE = np.ones(2)


def test_noise_depends_on_its_key_alone() -> None:
    """Batched or not, whatever was drawn before; and each part of the key matters."""
    together = SeededNoise((5, 6), 2, 3).continuous(4, "laplace", ONE, LIKE)
    alone = SeededNoise((6,), 2, 3).continuous(4, "laplace", ONE[:1], LIKE[:, :1])
    np.testing.assert_array_equal(together[:, 1], alone[:, 0])
    others = [SeededNoise((7,), 2, 3), SeededNoise((6,), 3, 3), SeededNoise((6,), 2, 4)]
    draws = [other.continuous(4, "laplace", ONE[:1], LIKE[:, :1]) for other in others] + [
        SeededNoise((6,), 2, 3).continuous(5, "laplace", ONE[:1], LIKE[:, :1])
    ]
    for draw in draws:
        assert abs(np.corrcoef(draw.ravel(), alone.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize(("kind", "reference"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_distribution_and_scale(kind: str, reference: stats.rv_continuous) -> None:
    scale = np.array([0.5, 3.0])
    draw = SeededNoise((1, 2), 0, 1).continuous(0, kind, scale, LIKE)
    for r in range(2):
        assert stats.kstest(draw[:, r].ravel(), reference(scale=scale[r]).cdf).pvalue > 1e-3


def test_the_key_is_taken_whole() -> None:
    """Streams are 64 bits: two that differ in the last one have nothing in common."""
    one, other = (
        SeededNoise((1,), 0, 1, (2**64 - last,)).continuous(0, "gaussian", np.ones(1), LIKE[:, :1]) for last in (1, 2)
    )
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.1


def test_no_scale_no_noise() -> None:
    draw = SeededNoise((1, 2), 0, 1).continuous(0, "laplace", np.array([0.0, 1.0]), LIKE)
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


def test_large_seeds_give_different_noise() -> None:
    draws = [SeededNoise((2**62 + i,), 0, 1).continuous(0, "laplace", ONE[:1], LIKE[:, :1]) for i in range(2)]
    assert not np.array_equal(draws[0], draws[1])


def test_l2_laplace_has_gamma_lengths_and_no_preferred_direction() -> None:
    """||xi|| ~ Gamma(J K, scale), and the square of a coordinate of its direction ~ Beta(1/2, (J K - 1)/2)."""
    like, scale = np.zeros((2, 2, 3)), np.array([0.5, 4.0])
    draws = np.array([SeededNoise((1, 2), 0, t).continuous(3, "l2-laplace", scale, like) for t in range(1500)])
    lengths = np.sqrt((draws**2).sum(axis=(1, 3)))
    towards = draws / lengths[:, None, :, None]
    for r in range(2):
        assert stats.kstest(lengths[:, r], stats.gamma(6, scale=scale[r]).cdf).pvalue > 1e-3
        assert stats.kstest(towards[:, 1, r, 2] ** 2, stats.beta(0.5, 2.5).cdf).pvalue > 1e-3
        assert np.abs(towards[:, :, r].mean(axis=0)).max() < 4.0 / math.sqrt(6 * 1500)
        assert abs(np.corrcoef(lengths[:, r], towards[:, 0, r, 0])[0, 1]) < 0.1
    assert abs(np.corrcoef(lengths.T)[0, 1]) < 0.1


def test_l2_laplace_depends_on_its_key_alone_and_shares_no_numbers() -> None:
    together = SeededNoise((5, 6), 2, 3).continuous(4, "l2-laplace", np.array([0.0, 2.0]), LIKE)
    alone = SeededNoise((6,), 2, 3).continuous(4, "l2-laplace", 2.0 * ONE[:1], LIKE[:, :1])
    assert not together[:, 0].any()
    np.testing.assert_array_equal(together[:, 1], alone[:, 0])
    single = SeededNoise((6,), 2, 3).continuous(4, "l2-laplace", 2.0 * ONE[:1], LIKE[:, :1].astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, alone, rtol=1e-6)
    others = [SeededNoise((6,), 2, 3, (1,)).continuous(4, "l2-laplace", ONE[:1], LIKE[:, :1])] + [
        SeededNoise((6,), 2, 3).continuous(4, kind, ONE[:1], LIKE[:, :1]) for kind in ("gaussian", "laplace")
    ]
    for other in others:
        assert abs(np.corrcoef(other.ravel(), alone.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("noise", [SeededNoise((1, 2), 0, 1), HardenedNoise(SeededEntropy(1)), SYSTEM_NOISE])
@pytest.mark.parametrize("rate", [0.03, 0.7])
def test_a_sample_has_every_record_by_itself(noise: NoiseSource, rate: float) -> None:
    """Samples have the right rate, and records and runs are independent."""
    sample = noise.poisson_sample(0, rate, 40_000, LIKE)
    assert sample.shape == (40_000, 2) and sample.dtype == np.bool_
    neighbours = 2.0 * rate**3 * (1.0 - rate)  # twice the covariance of two pairs that share a record
    for flags, share, more in (
        (sample, rate, 0.0),
        (sample[:, 0] & sample[:, 1], rate**2, 0.0),
        (sample[1:] & sample[:-1], rate**2, neighbours),
    ):
        assert abs(flags.mean() - share) < 6.0 * math.sqrt((share * (1.0 - share) + more) / flags.size)


def test_a_sample_depends_on_its_key_alone() -> None:
    together = SeededNoise((5, 6), 2, 3).poisson_sample(4, 0.5, 9_999, LIKE)
    alone = SeededNoise((6,), 2, 3).poisson_sample(4, 0.5, 9_999, LIKE[:, :1])
    np.testing.assert_array_equal(together[:, 1:], alone)
    others = [SeededNoise((7,), 2, 3), SeededNoise((6,), 1, 3), SeededNoise((6,), 2, 4), SeededNoise((6,), 2, 3, (1,))]
    drawn: list[NDArray[Any]] = [other.poisson_sample(4, 0.5, 9_999, LIKE[:, :1]) for other in others]
    drawn += [SeededNoise((6,), 2, 3).poisson_sample(5, 0.5, 9_999, LIKE[:, :1])]
    drawn += [
        SeededNoise((6,), 2, 3).continuous(4, kind, ONE[:1], LIKE[:, :1])[:, 0] for kind in ("gaussian", "laplace")
    ]
    for other in drawn:
        there = other.ravel()[:9_999]
        assert abs(np.corrcoef(there, alone.ravel()[: len(there)])[0, 1]) < 0.05


class Words:
    """An entropy of given words."""

    def __init__(self, *words: int) -> None:
        self.given = np.array(words, np.uint64)

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        assert count == len(self.given)
        return self.given


@pytest.mark.parametrize(
    ("rate", "below"),
    [(0.5, 2**63), (1.0, 2**64), (0.1, int(0.1 * 2**64)), (2.0**-64, 1), (1.5 * 2.0**-64, 1), (2.0**-65, 0), (0.0, 0)],
)
def test_the_rate_is_rounded_down(rate: float, below: int) -> None:
    """Exactly the words below floor(rate 2^64) are in the sample."""
    words = sorted({0, max(below - 1, 0), min(below, 2**64 - 1), 2**64 - 1})
    found = HardenedNoise(Words(*words)).poisson_sample(0, rate, len(words), LIKE[:, :1])
    assert found[:, 0].tolist() == [word < below for word in words]


def test_invalid_noise_requests_are_refused() -> None:
    with pytest.raises(InputError, match="hardened noise is discrete"):
        SYSTEM_NOISE.continuous(0, "l2-laplace", ONE, LIKE)
    for rate in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="sampling rate"):
            SYSTEM_NOISE.poisson_sample(0, rate, 3, LIKE)
