"""Sources of randomness: seeds for simulations, the operating system for anything that must protect somebody."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from taciturn.core.arrays import as_like, to_numpy
from taciturn.errors import InputError
from taciturn.kernels.library import fill_noise
from taciturn.privacy.discrete import Entropy, SeededEntropy, SystemEntropy, discrete_gaussian, discrete_laplace
from taciturn.types import Array

SEEDED, HARDENED = "seeded", "hardened"
SOURCES = (SEEDED, HARDENED)
FIRST = {"coordinates": 0, "direction": 1 << 62, "length": 2 << 62, "chosen": 3 << 62}
"""Where the counter of a seeded draw begins; none takes anywhere near 2^62 blocks."""
DISCRETE_ONLY = "hardened noise is discrete: a method that asks for floating-point noise cannot use it"
SAMPLERS = {"discrete-gaussian": discrete_gaussian, "discrete-laplace": discrete_laplace}


class NoiseSource(Protocol):
    """The randomness of one agent in one round."""

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """Laplace noise of scale [R] for the local update, in the shape [J, R, K] and precision of `like`."""
        ...

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """Gaussian noise of standard deviation [R], in the shape and precision of `like`."""
        ...

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Discrete noise (a key of SAMPLERS) of scale [R] in the shape of `like`."""
        ...

    def l2_laplace(self, update: int, scale: Array, like: Array) -> Array:
        """Noise of density ~ exp(-||xi||_2 / scale) over the [J, K] of every run, in the precision of `like`."""
        ...

    def chosen(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """The Poisson sample of every run of `like`, [records, R]: each record by itself, with probability `rate`."""
        ...


@dataclass(frozen=True)
class SeededNoise:
    """Noise keyed by (seed, agent, round, update): the same numbers whatever is batched with them, on every device.

    The key goes into a counter-based generator (Philox), so any draw can be made again without the ones before it;
    whoever knows the seed can take the noise off again. `streams` keep runs of one seed apart: two budgets with the
    same noise in different sizes would give the gradient away. The counter's lowest word, which counts the numbers
    drawn, begins at another of FIRST for every use, so that no use meets another's numbers.
    """

    seeds: tuple[int, ...]  # [R]
    agent: int
    round: int
    streams: tuple[int, ...] = ()  # [R], 0 where there are none

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """scale * standard Laplace, run by run."""
        return self._draw(update, "laplace", scale, like)

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """std * standard normal, run by run."""
        return self._draw(update, "gaussian", std, like)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Exact samples from reproducible words."""
        return _integers(
            lambda run: SeededEntropy(self.seeds[run], self.agent, self.round, update, self._stream(run)),
            mechanism,
            scale,
            like,
        )

    def l2_laplace(self, update: int, scale: Array, like: Array) -> Array:
        """A direction uniform on the sphere, times a length of the Gamma(J K, scale) distribution, run by run."""
        features, _, classes = like.shape

        def draw(run: int, b: float, out: Array) -> None:
            towards = np.empty((features, classes))
            fill_noise(towards, "gaussian", *self._key(run, update, "direction"), 1.0)
            length = Generator(self._philox(run, update, "length")).standard_gamma(features * classes)
            np.multiply(towards, b * length / np.linalg.norm(towards), out=out, casting="same_kind")

        return self._each(scale, like, draw)

    def chosen(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Reproducible words below the rate."""
        return _chosen(
            lambda run, count: self._philox(run, update, "chosen").random_raw(count), rate, records, len(self.seeds)
        )

    def _draw(self, update: int, kind: str, scale: Array, like: Array) -> Array:
        return self._each(
            scale, like, lambda run, b, out: fill_noise(out, kind, *self._key(run, update, "coordinates"), b)
        )

    def _each(self, scale: Array, like: Array, draw: Callable[[int, float, Array], None]) -> Array:
        """Drawn in place, in the precision of `like`; torch's are drawn here and handed over."""
        there = isinstance(like, np.ndarray)
        scale, xi = to_numpy(scale), np.zeros(tuple(like.shape), like.dtype if there else np.float64)
        for run in range(len(self.seeds)):
            if scale[run] > 0:
                draw(run, float(scale[run]), xi[:, run])
        return as_like(xi, like)

    def _stream(self, run: int) -> int:
        return self.streams[run] if self.streams else 0

    def _key(self, run: int, update: int, use: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Key and counter of one run's draw."""
        key = np.array([self.seeds[run], self.agent], np.uint64)
        return key, np.array([FIRST[use], self._stream(run), update, self.round], np.uint64)

    def _philox(self, run: int, update: int, use: str) -> Philox:
        key, counter = self._key(run, update, use)
        return Philox(key=key, counter=counter)


@dataclass(frozen=True)
class HardenedNoise:
    """Exact discrete noise from the operating system's generator: nobody can draw it again, and no low bit tells."""

    entropy: Entropy

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """There is none: floating-point noise gives its input away."""
        raise InputError(DISCRETE_ONLY)

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """There is none: floating-point noise gives its input away."""
        raise InputError(DISCRETE_ONLY)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Exact samples."""
        return _integers(lambda run: self.entropy, mechanism, scale, like)

    def l2_laplace(self, update: int, scale: Array, like: Array) -> Array:
        """There is none: floating-point noise gives its input away."""
        raise InputError(DISCRETE_ONLY)

    def chosen(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Words of the operating system below the rate: exact, at most `rate`, and nobody can draw them again."""
        return _chosen(lambda run, count: self.entropy.words(count), rate, records, like.shape[1])


SYSTEM_NOISE = HardenedNoise(SystemEntropy())


def _integers(entropy: Callable[[int], Entropy], mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
    features, runs, classes = like.shape
    xi = np.zeros(like.shape, np.int64)
    for run in range(runs):
        if scale[run] > 0:
            drawn = SAMPLERS[mechanism](float(scale[run]), features * classes, entropy(run))
            xi[:, run] = drawn.reshape(features, classes)
    return xi


def _chosen(words: Callable[[int, int], NDArray[np.uint64]], rate: float, records: int, runs: int) -> NDArray[np.bool_]:
    """Of each run's 64-bit words those below floor(rate 2^64): with probability `rate`, rounded down to 2^-64."""
    if not 0.0 <= rate <= 1.0:
        raise InputError(f"the sampling rate is {rate}: it must be a number from 0 to 1")
    below = int(math.ldexp(rate, 64))  # exact: ldexp moves the exponent, int cuts
    sample = np.zeros((records, runs), np.bool_)
    for run in range(runs if below else 0):
        np.less_equal(words(run, records), np.uint64(below - 1), out=sample[:, run])
    return sample
