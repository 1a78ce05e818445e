"""The classic Gaussian mechanism of the output-perturbation baseline, and the published code's misreading of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tacit.privacy.events import BatchEvent, Draw, nominal_event
from tacit.privacy.noise import NoiseSource
from tacit.types import Array


@dataclass(frozen=True, eq=False)
class GaussianClassic:
    """xi ~ N(0, sigma^2), sigma = Delta sqrt(2 ln(1.25/delta)) / epsilon; (epsilon, delta) a release for epsilon <= 1.

    With `squared` the number sigma^2 is used as the standard deviation, as the published code does.
    """

    epsilon: Array  # [R], inf: no noise
    delta: float
    squared: bool = False

    def std(self, sensitivity: Array) -> Array:
        """The standard deviation of the noise, [R]."""
        sigma = sensitivity * math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon
        return sigma**2 if self.squared else sigma

    def draw(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Draw:
        """Gaussian noise of that standard deviation."""
        return Draw(noise.gaussian(update, self.std(sensitivity), like), self.event)

    @cached_property
    def event(self) -> BatchEvent:
        """The events of one update."""
        name = "gaussian-published" if self.squared else "gaussian-classic"
        return nominal_event(name, self.epsilon, self.delta)
