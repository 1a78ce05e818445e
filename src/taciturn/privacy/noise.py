"""Sources of randomness: seeded for simulations, the operating system's generator for protection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from taciturn.core.arrays import as_like, to_numpy
from taciturn.errors import InputError
from taciturn.kernels.library import fill_noise
from taciturn.privacy.discrete import Entropy, SeededEntropy, SystemEntropy, discrete_gaussian, discrete_laplace
from taciturn.privacy.events import L2_LAPLACE
from taciturn.types import Array

SEEDED, HARDENED = "seeded", "hardened"
SOURCES = (SEEDED, HARDENED)
FIRST = {"coordinates": 0, "direction": 1 << 62, "length": 2 << 62, "sample": 3 << 62}
"""The first counter value of each use of a seeded generator; no use takes anywhere near 2^62 blocks."""
SAMPLERS = {"discrete-gaussian": discrete_gaussian, "discrete-laplace": discrete_laplace}


class NoiseSource(Protocol):
    """The randomness of one agent in one round.

    Noise has the shape [J, R, K] and the precision of the argument `like`; scales are one number per run, [R], and 0
    means no noise.
    """

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Draw floating-point noise of scale [R] for local update number `update`.

        The mechanism is "gaussian", "laplace", or "l2-laplace" with density ~ exp(-||xi||_2 / scale) over the [J, K] of
        every run.
        """

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Draw discrete noise of scale [R]; `mechanism` is a key of `SAMPLERS`."""

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Draw the Poisson sample of every run, [records, R]: each record independently with probability `rate`."""


@dataclass(frozen=True)
class SeededNoise:
    """Reproducible noise for simulations, keyed by (seed, agent, round, update).

    The key goes into a counter-based generator (Philox): every draw can be repeated without those before it, and is the
    same in every batch. A GPU draws Gaussian noise of its own, with the same distribution. The noise gives no privacy
    against a reader who knows the seed. `streams` separates the runs of one seed: two budgets with the same noise at
    different scales would reveal the gradient. Every use starts the counter at another value of `FIRST`, so that no two
    uses share numbers.

    Parameters
    ----------
    seeds : tuple of int, [R]
        The seed of every run.
    agent, round : int
        Which agent and round.
    streams : tuple of int, [R], optional
        0 for every run by default.

    Examples
    --------
    >>> noise = SeededNoise(seeds=(1,), agent=0, round=1)
    >>> like = np.zeros((2, 1, 3))
    >>> first, again = (noise.continuous(0, "gaussian", np.ones(1), like) for _ in range(2))
    >>> bool((first == again).all())
    True
    """

    seeds: tuple[int, ...]
    agent: int
    round: int
    streams: tuple[int, ...] = ()

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Draw scale * standard noise, run by run.

        For l2-laplace it is a direction uniform on the sphere, times a length from the Gamma(J K, scale) distribution.
        """
        if mechanism != L2_LAPLACE and getattr(like, "is_cuda", False):
            return self._on_device(update, mechanism, scale, like)
        features, _, classes = like.shape

        def coordinates(run: int, b: float, out: Array) -> None:
            fill_noise(out, mechanism, *self._key(run, update, "coordinates"), b)

        def vector(run: int, b: float, out: Array) -> None:
            direction = np.empty((features, classes))
            fill_noise(direction, "gaussian", *self._key(run, update, "direction"), 1.0)
            length = Generator(self._philox(run, update, "length")).standard_gamma(features * classes)
            np.multiply(direction, b * length / np.linalg.norm(direction), out=out, casting="same_kind")

        return self._each(scale, like, vector if mechanism == L2_LAPLACE else coordinates)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Draw exact samples from reproducible words."""

        def entropy(run: int) -> Entropy:
            return SeededEntropy(self.seeds[run], self.agent, self.round, update, self._stream(run))

        return _integers(entropy, mechanism, scale, like)

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Select records by reproducible words below the rate."""

        def words(run: int, count: int) -> NDArray[np.uint64]:
            return self._philox(run, update, "sample").random_raw(count)

        return _poisson_sample(words, rate, records, len(self.seeds))

    def _each(self, scale: Array, like: Array, draw: Callable[[int, float, Array], None]) -> Array:
        """Draw every run in numpy, in place and in the precision of `like`, or in float64 for torch."""
        dtype = like.dtype if isinstance(like, np.ndarray) else np.float64
        scale, xi = to_numpy(scale), np.zeros(tuple(like.shape), dtype)
        for run in range(len(self.seeds)):
            if scale[run] > 0:
                draw(run, float(scale[run]), xi[:, run])
        return as_like(xi, like)

    def _on_device(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Draw where the parameters are: nothing is copied from the host."""
        place = self.agent, self.round, update
        streams = [self._stream(run) for run in range(len(self.seeds))]
        draw = import_module("taciturn.kernels.device_noise").draw
        drawn: Array = draw(mechanism, scale, self.seeds, streams, place, like)
        return drawn

    def _stream(self, run: int) -> int:
        return self.streams[run] if self.streams else 0

    def _key(self, run: int, update: int, use: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return key and counter of one run's draw."""
        key = np.array([self.seeds[run], self.agent], np.uint64)
        return key, np.array([FIRST[use], self._stream(run), update, self.round], np.uint64)

    def _philox(self, run: int, update: int, use: str) -> Philox:
        key, counter = self._key(run, update, use)
        return Philox(key=key, counter=counter)


@dataclass(frozen=True)
class HardenedNoise:
    """Exact discrete noise from the operating system: irreproducible, and without low bits that reveal the input.

    Parameters
    ----------
    entropy : Entropy
        The source of random words.
    """

    entropy: Entropy

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Raise InputError: floating-point noise reveals what it is added to."""
        raise InputError("hardened noise is discrete; a method that needs floating-point noise cannot use it")

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Draw exact samples."""
        return _integers(lambda run: self.entropy, mechanism, scale, like)

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Select records by words of the operating system below the rate: exactly, with probability at most `rate`."""
        return _poisson_sample(lambda run, count: self.entropy.words(count), rate, records, like.shape[1])


SYSTEM_NOISE = HardenedNoise(SystemEntropy())


def _integers(entropy: Callable[[int], Entropy], mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
    features, runs, classes = like.shape
    xi = np.zeros(like.shape, np.int64)
    for run in range(runs):
        if scale[run] > 0:
            drawn = SAMPLERS[mechanism](float(scale[run]), features * classes, entropy(run))
            xi[:, run] = drawn.reshape(features, classes)
    return xi


def _poisson_sample(
    words: Callable[[int, int], NDArray[np.uint64]], rate: float, records: int, runs: int
) -> NDArray[np.bool_]:
    """Select the 64-bit words below floor(rate 2^64): with probability `rate`, rounded down to a multiple of 2^-64."""
    if not 0.0 <= rate <= 1.0:
        raise InputError(f"the sampling rate is {rate}; it must be from 0 to 1")
    below = int(math.ldexp(rate, 64))  # exact: ldexp changes the exponent, int truncates
    sample = np.zeros((records, runs), np.bool_)
    for run in range(runs if below else 0):
        np.less_equal(words(run, records), np.uint64(below - 1), out=sample[:, run])
    return sample
