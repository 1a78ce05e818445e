"""Sources of randomness. A simulation draws from seeds; nothing here may be used where privacy is at stake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator, Philox

from tacit.types import Array


class NoiseSource(Protocol):
    """The randomness of one agent in one round."""

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """Laplace noise of scale [R] for the local update, in the shape [J, R, K] and precision of `like`."""
        ...

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """Gaussian noise of standard deviation [R], in the shape and precision of `like`."""
        ...


@dataclass(frozen=True)
class SeededNoise:
    """Noise keyed by (seed, agent, round, update): the same numbers whatever is batched with them.

    The key goes into a counter-based generator (Philox), so any draw can be made again without the ones before it.
    """

    seeds: tuple[int, ...]  # [R]
    agent: int
    round: int

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """scale * standard Laplace, run by run."""
        return self._draw(update, scale, like, lambda generator, shape: generator.laplace(size=shape))

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """std * standard normal, run by run."""
        return self._draw(update, std, like, lambda generator, shape: generator.standard_normal(size=shape))

    def _draw(
        self, update: int, scale: Array, like: Array, standard: Callable[[Generator, tuple[int, int]], Array]
    ) -> Array:
        features, _, classes = like.shape
        xi = np.zeros_like(like)
        for run, seed in enumerate(self.seeds):
            if scale[run] > 0:
                key = np.array([seed, self.agent], np.uint64)
                generator = Generator(Philox(key=key, counter=[0, 0, update, self.round]))
                xi[:, run] = scale[run] * standard(generator, (features, classes))
        return xi
