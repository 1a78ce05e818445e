"""Sources of randomness: seeds for simulations, the operating system for anything that must protect somebody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import as_like, to_numpy
from tacit.errors import InputError
from tacit.kernels.noise import fill
from tacit.privacy.discrete import discrete_gaussian, discrete_laplace
from tacit.privacy.entropy import Entropy, SeededEntropy, SystemEntropy
from tacit.types import Array

SOURCES = ("seeded", "hardened")
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


@dataclass(frozen=True)
class SeededNoise:
    """Noise keyed by (seed, agent, round, update): the same numbers whatever is batched with them, on every device.

    The key goes into a counter-based generator (Philox), so any draw can be made again without the ones before it;
    whoever knows the seed can take the noise off again. `streams` keep runs of one seed apart: two budgets with the
    same noise in different sizes would give the gradient away.
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

    def _stream(self, run: int) -> int:
        return self.streams[run] if self.streams else 0

    def _draw(self, update: int, kind: str, scale: Array, like: Array) -> Array:
        """Drawn in place, in the precision of `like`; torch's are drawn here and handed over."""
        there = isinstance(like, np.ndarray)
        scale, xi = to_numpy(scale), np.zeros(tuple(like.shape), like.dtype if there else np.float64)
        for run, seed in enumerate(self.seeds):
            if scale[run] > 0:
                key = np.array([seed, self.agent], np.uint64)
                counter = np.array([0, self._stream(run), update, self.round], np.uint64)
                fill(xi[:, run], kind, key, counter, float(scale[run]))
        return as_like(xi, like)


@dataclass(frozen=True)
class HardenedNoise:
    """Exact discrete noise from the operating system's generator: nobody can draw it again, and no low bit tells."""

    entropy: Entropy

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """There is none: floating-point noise gives its input away."""
        raise InputError("hardened noise is discrete: a method that asks for floating-point noise cannot use it")

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """There is none: floating-point noise gives its input away."""
        raise InputError("hardened noise is discrete: a method that asks for floating-point noise cannot use it")

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Exact samples."""
        return _integers(lambda run: self.entropy, mechanism, scale, like)


SYSTEM_NOISE = HardenedNoise(SystemEntropy())


def _integers(entropy: Callable[[int], Entropy], mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
    features, runs, classes = like.shape
    xi = np.zeros(like.shape, np.int64)
    for run in range(runs):
        if scale[run] > 0:
            drawn = SAMPLERS[mechanism](float(scale[run]), features * classes, entropy(run))
            xi[:, run] = drawn.reshape(features, classes)
    return xi
