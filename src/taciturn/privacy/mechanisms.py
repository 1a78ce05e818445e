"""Mechanisms: from a sensitivity to noise, together with the event the noise stands for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taciturn.core.arrays import as_like, to_numpy
from taciturn.privacy.events import CONTINUOUS, NON_PRIVATE, BatchEvent, Discrete, Draw, Event, Noise, nominal_event
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array

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


@dataclass(frozen=True, eq=False)
class LaplaceDataDependent:
    """xi ~ Lap(0, Delta / epsilon) with Delta from the agent's own records (eq. Laplace).

    Delta itself depends on the data, so the scale of the noise tells of them: epsilon is nominal, per local update,
    and there is no end-to-end guarantee.
    """

    epsilon: Array  # [R], inf: no noise

    def draw(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Draw:
        """Laplace noise of scale Delta / epsilon; where Delta is 0 nothing is added, and the event says so."""
        xi = noise.laplace(update, sensitivity / self.epsilon, like)
        if (sensitivity > 0).all():
            return Draw(xi, self.event)
        noisy = zip(self.event.runs, sensitivity > 0, strict=True)
        return Draw(xi, BatchEvent(tuple(event if any_noise else NON_PRIVATE for event, any_noise in noisy)))

    @cached_property
    def event(self) -> BatchEvent:
        """The events of one update."""
        return nominal_event("laplace-data-dependent", self.epsilon)
