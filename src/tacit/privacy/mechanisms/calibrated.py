"""Laplace and Gaussian noise of a scale that was calibrated to a total budget beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.privacy.events import CONTINUOUS, BatchEvent, Discrete, Draw, Event, Noise
from tacit.privacy.noise import NoiseSource
from tacit.types import Array

MECHANISMS = CONTINUOUS
MEAN_SIZE = {"gaussian": math.sqrt(2.0 / math.pi), "laplace": 1.0}  # E|xi| / scale


@dataclass(frozen=True, eq=False)
class Calibrated:
    """xi ~ N(0, scale^2) or Lap(0, scale), or their discrete forms; a run without such an event gets none."""

    kind: str  # gaussian or laplace
    events: tuple[Event, ...]  # [R]  Noise, Discrete or NON_PRIVATE
    share: float = 1.0  # of the scale that an agent draws, where those of several add up to the event's

    def draw(self, update: int, like: Array, noise: NoiseSource) -> Draw:
        """Noise in the shape and precision of `like` [J, R, K]."""
        draw = {"gaussian": noise.gaussian, "laplace": noise.laplace}[self.kind]
        return Draw(draw(update, self.scale, like), self.event)

    @cached_property
    def scale(self) -> Array:
        """The scale of what is drawn in every run, 0 without noise, [R]."""
        return self.share * np.array([e.scale if isinstance(e, Noise | Discrete) else 0.0 for e in self.events])

    @cached_property
    def magnitude(self) -> Array:
        """E|xi|, which is public, unlike the mean of the noise that was drawn; [R]."""
        return MEAN_SIZE[self.kind] * self.scale

    @cached_property
    def event(self) -> BatchEvent:
        """The events of one update."""
        return BatchEvent(self.events)
