"""Noise sources of an audit: one that fills many releases at once, and one that only listens."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from tacit.privacy.entropy import Entropy, SeededEntropy, SystemEntropy
from tacit.privacy.noise import SAMPLERS
from tacit.types import Array


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


class Silence:
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
