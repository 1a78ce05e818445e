"""Noise sources of an audit: one that fills many releases at once, and one that only listens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from taciturn.algorithms import Algorithm
from taciturn.algorithms.admm import AdmmObjp
from taciturn.algorithms.base import Agent
from taciturn.algorithms.gradient_descent import DpSgd
from taciturn.audit.games import Game
from taciturn.audit.minimisers import log_density
from taciturn.privacy.discrete import Entropy, SeededEntropy, SystemEntropy
from taciturn.privacy.noise import SAMPLERS, NoiseSource
from taciturn.types import Array, Shard


class BlockNoise:
    """Independent noise for every run of a block [J, R, K], from one stream; two calls never give the same draw."""

    def __init__(self, generator: Generator, entropy: Entropy) -> None:
        self._generator, self._entropy = generator, entropy

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """scale * standard Laplace."""
        return self._scaled(scale, self._generator.laplace(size=like.shape), like)

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """std * standard normal."""
        return self._scaled(std, self._generator.standard_normal(size=like.shape), like)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Exact samples of the one scale that all runs of an audit have."""
        (only,) = np.unique(scale)
        return SAMPLERS[mechanism](float(only), like.size, self._entropy).reshape(like.shape)

    def l2_laplace(self, update: int, scale: Array, like: Array) -> Array:
        """A uniform direction times a length of the Gamma(J K, scale) distribution."""
        features, runs, classes = like.shape
        towards = self._generator.standard_normal(size=like.shape)
        length = self._generator.standard_gamma(features * classes, runs) / np.sqrt((towards**2).sum(axis=(0, 2)))
        return self._scaled(scale, length[:, None] * towards, like)

    def chosen(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Every record by itself."""
        return self._generator.random((records, like.shape[1])) < rate

    @staticmethod
    def _scaled(scale: Array, standard: Array, like: Array) -> Array:
        xi: Array = (scale[:, None] * standard).astype(like.dtype)
        return xi


def block_noise(seed: int | None) -> BlockNoise:
    """From a seed, or from the operating system."""
    return BlockNoise(default_rng(seed), SystemEntropy() if seed is None else SeededEntropy(seed))


class RecordingNoise:
    """No noise at all, with the scales that were asked for: what the adversary works out in advance."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """Zeros."""
        self.scales.append(float(scale[0]))
        return np.zeros_like(like)

    gaussian = l2_laplace = laplace

    def chosen(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """All records: the adversary takes the one it looks for to be in the sample."""
        return np.ones((records, like.shape[1]), np.bool_)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Zeros."""
        self.scales.append(float(scale[0]))
        return np.zeros(like.shape, np.int64)


PILOT, PILOT_SEED = 2000, 2**62 + 1  # releases that the adversary makes at home, with a seed that no audit has


class Arm(NamedTuple):
    """What the adversary knows of one data set before it sees a release."""

    mean: Array  # [F J, 1, K]  the release without noise
    scale: float  # of the first update's noise, in any unit that is the same for both


class KnownRelease(NamedTuple):
    """What the adversary knows of both."""

    first: Arm
    second: Arm
    towards: Array  # [F J, 1, K]  the direction in which a release tells most


Score: TypeAlias = Callable[[Array, KnownRelease], Array]
"""(releases [F J, R, K], what is known) -> [R]"""


def release(game: Game, arm: int, runs: int, noise: NoiseSource) -> Array:
    """What is seen of `runs` independent rounds from the same state, by the real step: an upload, or a sum of several.

    [F J, R, K], all F fields of the upload one below the other. The records of all agents but the first are known,
    and what they add to a sum is taken off again: as well, they have none.
    """
    w = np.repeat(game.scene.w[:, None, :], runs, axis=1)
    algorithm = for_runs(game.algorithm, runs) if isinstance(game.algorithm, DpSgd | AdmmObjp) else game.algorithm
    shard, agent = game.scene.arms[arm], Agent(w, np.zeros_like(w))
    shards = [shard, *[Shard(shard.x[:0], shard.y[:0])] * (game.honest - 1)]
    uploads = (algorithm.agent_step(1, w, agent, own, noise).upload for own in shards)
    total: Array = sum(np.concatenate(tuple(upload)) for upload in uploads)  # type: ignore[assignment]
    return total


def for_runs(algorithm: Algorithm, runs: int) -> Algorithm:
    """The algorithm of one run for many, where one does not broadcast."""

    def repeated(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return np.repeat(value, runs)
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        parts = {field.name: repeated(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts)

    many: Algorithm = repeated(algorithm)
    return many


def known(game: Game) -> KnownRelease:
    """Both data sets as the adversary knows them."""
    first, second = RecordingNoise(), RecordingNoise()
    means = release(game, 0, 1, first), release(game, 1, 1, second)
    apart = means[1] - means[0]
    return KnownRelease(
        Arm(means[0], first.scales[0]), Arm(means[1], second.scales[0]), _whitened(game, means[0], apart)
    )


def _whitened(game: Game, mean: Array, apart: Array) -> Array:
    """The means' difference; where several fields share their noise, multiplied by its inverse covariance."""
    fields = len(apart) // len(game.scene.w)
    if fields == 1:
        return apart
    pilot = release(game, 0, PILOT, block_noise(PILOT_SEED)) - mean
    own = pilot.reshape(fields, -1)
    inverse = np.linalg.pinv(own @ own.T / own.shape[1], rcond=1e-9, hermitian=True)
    towards: Array = (inverse @ apart.reshape(fields, -1)).reshape(apart.shape)
    return towards


def likelihood_laplace(z: Array, known: KnownRelease) -> Array:
    """||z - m0||_1 / b0 - ||z - m1||_1 / b1: the log-likelihood ratio of one update with Laplace noise."""
    first, second = known.first, known.second
    return _far1(z, first) / first.scale - _far1(z, second) / second.scale


def likelihood_l2_laplace(z: Array, known: KnownRelease) -> Array:
    """||z - m0||_2 / b0 - ||z - m1||_2 / b1: the same for Laplace noise of the Euclidean norm."""
    first, second = known.first, known.second
    return np.sqrt(_far2(z, first)) / first.scale - np.sqrt(_far2(z, second)) / second.scale


def likelihood_gaussian(z: Array, known: KnownRelease) -> Array:
    """||z - m0||_2^2 / b0^2 - ||z - m1||_2^2 / b1^2: the same for Gaussian noise.

    Where the canary is in the sample with probability q, the ratio is ln(1 - q + q e^l), which grows with this l.
    """
    first, second = known.first, known.second
    return _far2(z, first) / first.scale**2 - _far2(z, second) / second.scale**2


def projection(z: Array, known: KnownRelease) -> Array:
    """<z - m0, towards>: for many updates, whose noise adds up to almost a Gaussian."""
    along: Array = ((z - known.first.mean) * known.towards).sum(axis=(0, 2))
    return along


def far_from_first(z: Array, known: KnownRelease) -> Array:
    """||z - m0||_1, which sees the scale of the noise where the data sets differ in that."""
    return _far1(z, known.first)


def far_from_second(z: Array, known: KnownRelease) -> Array:
    """||z - m1||_1, negative: near is the second."""
    return -_far1(z, known.second)


LIKELIHOODS: Mapping[str, Score] = {
    "gaussian": likelihood_gaussian,
    "laplace": likelihood_laplace,
    "l2-laplace": likelihood_l2_laplace,
}


def scores_for(game: Game) -> Mapping[str, Score]:
    """The scores that an attack may be built on, by name."""
    exact = minimiser_likelihood(game.algorithm, game) if isinstance(game.algorithm, AdmmObjp) else None
    return {
        "likelihood": exact or LIKELIHOODS[game.kind],
        "projection": projection,
        "distance from the first": far_from_first,
        "distance from the second": far_from_second,
    }


def minimiser_likelihood(algorithm: AdmmObjp, game: Game) -> Score:
    """The log-likelihood ratio of a perturbed minimiser; the noise that hides the solver's error is not worth it."""

    def likelihood(z: Array, known: KnownRelease) -> Array:
        w, scales = game.scene.w[:, None, :], (known.first.scale, known.second.scale)
        pairs = zip(game.scene.arms, scales, strict=True)
        first, second = (log_density(algorithm, w, shard, scale, z) for shard, scale in pairs)
        return second - first

    return likelihood


def _far1(z: Array, arm: Arm) -> Array:
    far: Array = np.abs(z - arm.mean).sum(axis=(0, 2))
    return far


def _far2(z: Array, arm: Arm) -> Array:
    far: Array = ((z - arm.mean) ** 2).sum(axis=(0, 2))
    return far
