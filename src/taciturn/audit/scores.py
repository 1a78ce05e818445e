"""What an adversary sees and knows in a game, and the scores by which it distinguishes the two data sets."""

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
from taciturn.algorithms.gradient_at_model import GradientAtModel
from taciturn.algorithms.gradient_descent import DpSgd
from taciturn.algorithms.noisy_gradient import SummedGradient
from taciturn.audit.games import Game
from taciturn.audit.minimisers import log_density
from taciturn.privacy.discrete import Entropy, SeededEntropy, SystemEntropy
from taciturn.privacy.events import L2_LAPLACE
from taciturn.privacy.noise import SAMPLERS, NoiseSource
from taciturn.training.upload_replay import SilentNoise
from taciturn.types import Array, Shard


class BlockNoise:
    """A noise source that fills blocks [J, R, K] of independent runs from one stream; no two draws are equal.

    Parameters
    ----------
    generator : numpy.random.Generator
        For floating-point noise and samples.
    entropy : Entropy
        For discrete noise.
    """

    def __init__(self, generator: Generator, entropy: Entropy) -> None:
        self._generator, self._entropy = generator, entropy

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Draw scale * standard noise; of l2-laplace a uniform direction times a length from Gamma(J K, scale)."""
        if mechanism == "laplace":
            standard = self._generator.laplace(size=like.shape)
        else:
            standard = self._generator.standard_normal(size=like.shape)
        if mechanism == L2_LAPLACE:
            features, runs, classes = like.shape
            length = self._generator.standard_gamma(features * classes, runs) / np.sqrt((standard**2).sum(axis=(0, 2)))
            standard = length[:, None] * standard
        xi: Array = (scale[:, None] * standard).astype(like.dtype)
        return xi

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Draw exact samples of the one scale that all runs of an audit have."""
        (only,) = np.unique(scale)
        return SAMPLERS[mechanism](float(only), like.size, self._entropy).reshape(like.shape)

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Select every record independently."""
        return self._generator.random((records, like.shape[1])) < rate


def block_noise(seed: int | None) -> BlockNoise:
    """Return noise from a seed, or from the operating system if it is None."""
    return BlockNoise(default_rng(seed), SystemEntropy() if seed is None else SeededEntropy(seed))


class RecordingNoise(SilentNoise):
    """Silence that records the requested scales, for what the adversary computes in advance.

    Its samples have all records: the adversary assumes that the canary is in the sample.
    """

    def __init__(self) -> None:
        self.scales: list[float] = []

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Record the scale, and return zeros."""
        self.scales.append(float(scale[0]))
        return super().continuous(update, mechanism, scale, like)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Record the scale, and return zeros."""
        self.scales.append(float(scale[0]))
        return super().integers(update, mechanism, scale, like)


PILOT, PILOT_SEED = 2000, 2**62 + 1  # releases that the adversary makes in advance, with a seed that no audit has


class Arm(NamedTuple):
    """What the adversary knows about one data set before it sees a release."""

    mean: Array  # [F J, 1, K]  the release without noise
    scale: float  # of the first update's noise, in the same unit for both data sets


class KnownRelease(NamedTuple):
    """What the adversary knows about both data sets."""

    first: Arm
    second: Arm
    towards: Array  # [F J, 1, K]  the direction in which a release differs most


Score: TypeAlias = Callable[[Array, KnownRelease], Array]
"""(releases [F J, R, K], the adversary's knowledge) -> [R]"""


def release(game: Game, arm: int, runs: int, noise: NoiseSource) -> Array:
    """Return what the adversary sees of many independent rounds from the same state: an upload, or a sum of several.

    The other agents behind a sum have no records: the adversary knows those they have, and could subtract their part.
    In a secure sum the colluders' uploads are known too, and subtracted: what is left is the sum over honest agents.

    Parameters
    ----------
    game : Game
        The game.
    arm : int
        0 or 1: which data set.
    runs : int
        R, the number of releases.
    noise : NoiseSource
        The randomness.

    Returns
    -------
    Array, [F J, R, K]
        The F fields of the upload, concatenated.
    """
    w = np.repeat(game.scene.w[:, None, :], runs, axis=1)
    algorithm = for_runs(game.algorithm, runs) if isinstance(game.algorithm, DpSgd | AdmmObjp) else game.algorithm
    shard, agent = game.scene.arms[arm], Agent(w, np.zeros_like(w))
    shards = [shard, *[shard.rows(slice(0))] * (game.honest - 1)]
    total: Array = sum(_sent(algorithm, w, agent, own, noise) for own in shards)  # type: ignore[assignment]
    return total.astype(np.float64)


def _sent(algorithm: Algorithm, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Array:
    """Return what one agent sends: the fields of its upload, or the integers that a secure sum adds."""
    if isinstance(algorithm, GradientAtModel) and isinstance(algorithm.release, SummedGradient):
        return algorithm.local_gradient(1, w, agent, shard, noise).gradient
    return np.concatenate(tuple(algorithm.agent_step(1, w, agent, shard, noise).upload))


def for_runs(algorithm: Algorithm, runs: int) -> Algorithm:
    """Return the algorithm of one run for many runs, by repeating its arrays [1]."""

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
    """Return what the adversary knows about both data sets."""
    first, second = RecordingNoise(), RecordingNoise()
    means = release(game, 0, 1, first), release(game, 1, 1, second)
    towards = _whitened(game, means[0], means[1] - means[0])
    return KnownRelease(Arm(means[0], first.scales[0]), Arm(means[1], second.scales[0]), towards)


def _whitened(game: Game, mean: Array, difference: Array) -> Array:
    """Return the difference of the means; if several fields share their noise, times its inverse covariance."""
    fields = len(difference) // len(game.scene.w)
    if fields == 1:
        return difference
    pilot = (release(game, 0, PILOT, block_noise(PILOT_SEED)) - mean).reshape(fields, -1)
    inverse = np.linalg.pinv(pilot @ pilot.T / pilot.shape[1], rcond=1e-9, hermitian=True)
    towards: Array = (inverse @ difference.reshape(fields, -1)).reshape(difference.shape)
    return towards


def likelihood_laplace(z: Array, known: KnownRelease) -> Array:
    """Return ||z - m0||_1 / b0 - ||z - m1||_1 / b1: the log-likelihood ratio of one update with Laplace noise."""
    return _l1(z, known.first) / known.first.scale - _l1(z, known.second) / known.second.scale


def likelihood_l2_laplace(z: Array, known: KnownRelease) -> Array:
    """Return ||z - m0||_2 / b0 - ||z - m1||_2 / b1: the same for Laplace noise of the Euclidean norm."""
    first, second = known.first, known.second
    return np.sqrt(_l2_squared(z, first)) / first.scale - np.sqrt(_l2_squared(z, second)) / second.scale


def likelihood_gaussian(z: Array, known: KnownRelease) -> Array:
    """Return ||z - m0||_2^2 / b0^2 - ||z - m1||_2^2 / b1^2: the same for Gaussian noise.

    If the canary is in the sample with probability q, the ratio is ln(1 - q + q e^l), which grows with this l.
    """
    first, second = known.first, known.second
    return _l2_squared(z, first) / first.scale**2 - _l2_squared(z, second) / second.scale**2


def projection(z: Array, known: KnownRelease) -> Array:
    """Return <z - m0, towards>, for many updates, whose noise adds up to almost a Gaussian."""
    along: Array = ((z - known.first.mean) * known.towards).sum(axis=(0, 2))
    return along


LIKELIHOODS: Mapping[str, Score] = {
    "gaussian": likelihood_gaussian,
    "laplace": likelihood_laplace,
    "l2-laplace": likelihood_l2_laplace,
}


def scores_for(game: Game) -> Mapping[str, Score]:
    """Return the scores that an attack may use, by name; distances detect a different scale of the noise."""
    algorithm = game.algorithm
    exact = minimiser_likelihood(algorithm, game) if isinstance(algorithm, AdmmObjp) else LIKELIHOODS[game.kind]
    return {
        "likelihood": exact,
        "projection": projection,
        "distance from the first": lambda z, known: _l1(z, known.first),
        "distance from the second": lambda z, known: -_l1(z, known.second),
    }


def minimiser_likelihood(algorithm: AdmmObjp, game: Game) -> Score:
    """Return the log-likelihood ratio of perturbed minimisers, without the noise that hides the solver's error."""

    def likelihood(z: Array, known: KnownRelease) -> Array:
        w, scales = game.scene.w[:, None, :], (known.first.scale, known.second.scale)
        pairs = zip(game.scene.arms, scales, strict=True)
        first, second = (log_density(algorithm, w, shard, scale, z) for shard, scale in pairs)
        return second - first

    return likelihood


def _l1(z: Array, arm: Arm) -> Array:
    distance: Array = np.abs(z - arm.mean).sum(axis=(0, 2))
    return distance


def _l2_squared(z: Array, arm: Arm) -> Array:
    distance: Array = ((z - arm.mean) ** 2).sum(axis=(0, 2))
    return distance
