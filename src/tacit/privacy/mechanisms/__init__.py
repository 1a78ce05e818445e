"""Mechanisms: from a sensitivity to noise, together with the event the noise stands for."""

from __future__ import annotations

from typing import Protocol

from tacit.privacy.events import Draw
from tacit.privacy.noise import NoiseSource
from tacit.types import Array


class Mechanism(Protocol):
    """Noise scaled to a sensitivity."""

    def draw(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Draw:
        """Noise for one local update: sensitivity [R], `like` gives shape and precision [J, R, K]."""
        ...
