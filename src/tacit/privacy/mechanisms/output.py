"""Noise on a result whose sensitivity is known in L2: Gaussian, or Laplace in the Euclidean norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.arrays import as_like, to_numpy
from tacit.privacy.events import NON_PRIVATE, BatchEvent, Draw, Noise
from tacit.privacy.noise import NoiseSource
from tacit.types import Array


@dataclass(frozen=True, eq=False)
class OutputNoise:
    """xi with standard deviation (Gaussian) or scale (density exp(-||xi||_2 / scale)) of multiplier times Delta_2."""

    kind: str  # gaussian or l2-laplace
    multiplier: Array  # [R], 0 for a run without noise
    share: float = 1.0  # of the scale that an agent draws, where those of several add up to the event's

    def draw(self, update: int, moved: Array, like: Array, noise: NoiseSource) -> Draw:
        """Noise for results that one unit moves by `moved` [R], in the shape and precision of `like` [J, R, K]."""
        return Draw(self.xi(update, moved, like, noise), self.event(moved))

    def xi(self, update: int, moved: Array, like: Array, noise: NoiseSource) -> Array:
        """The noise alone."""
        draw = {"gaussian": noise.gaussian, "l2-laplace": noise.l2_laplace}[self.kind]
        return draw(update, as_like(self.share * self.scale(moved), like), like)

    def scale(self, moved: Array) -> Array:
        """What is charged, of every run, [R]."""
        return to_numpy(self.multiplier) * to_numpy(moved).astype(np.float64)

    def event(self, moved: Array) -> BatchEvent:
        """The events of one upload."""
        pairs = zip(self.scale(moved), to_numpy(moved).astype(np.float64), strict=True)
        return BatchEvent(
            tuple(Noise(self.kind, float(s), math.inf, float(d)) if s > 0.0 else NON_PRIVATE for s, d in pairs)
        )

    def magnitude(self, moved: Array, size: int) -> Array:
        """E|xi| of one of `size` numbers, which is public, unlike the noise that was drawn; [R]."""
        if self.kind == "gaussian":
            return self.share * math.sqrt(2.0 / math.pi) * self.scale(moved)
        part = math.exp(math.lgamma(size / 2.0) - math.lgamma((size + 1.0) / 2.0)) / math.sqrt(math.pi)
        return self.share * size * part * self.scale(moved)  # the mean length, times E|u_1| of a uniform direction u


SILENT = OutputNoise("gaussian", np.zeros(1))
