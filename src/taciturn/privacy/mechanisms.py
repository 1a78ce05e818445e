"""Mechanisms: noise for a given sensitivity, together with the privacy event of the draw."""

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
DEVIATION = {"gaussian": 1.0, "laplace": math.sqrt(2.0)}  # the standard deviation, over the scale


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Noise of fixed scales: xi ~ N(0, scale^2) or Lap(0, scale), or their discrete forms.

    Parameters
    ----------
    kind : str
        "gaussian" or "laplace".
    events : tuple of Event, [R]
        The event of one draw in every run: Noise, Discrete, or NON_PRIVATE for a run without noise.
    share : float, default 1
        The fraction of the scale that one agent draws, where the noise of several agents adds up to the event's.

    Examples
    --------
    >>> Calibrated("gaussian", (Noise("gaussian", 2.0, math.inf, 1.0), NON_PRIVATE)).scale
    array([2., 0.])
    """

    kind: str
    events: tuple[Event, ...]
    share: float = 1.0

    def draw(self, update: int, like: Array, noise: NoiseSource) -> Draw:
        """Draw the noise of local update number `update`, in the shape [J, R, K] and precision of `like`."""
        return Draw(noise.continuous(update, self.kind, self.scale, like), self.event)

    @cached_property
    def scale(self) -> Array:
        """The scale that is drawn in every run, 0 without noise, [R]."""
        return self.share * np.array([e.scale if isinstance(e, Noise | Discrete) else 0.0 for e in self.events])

    @cached_property
    def magnitude(self) -> Array:
        """E|xi| of every run, [R]: public, unlike the mean of the noise that was drawn."""
        return MEAN_SIZE[self.kind] * self.scale

    @cached_property
    def deviation(self) -> Array:
        """The standard deviation of the noise in every run, [R]."""
        return DEVIATION[self.kind] * self.scale

    @cached_property
    def event(self) -> BatchEvent:
        """The events of one update."""
        return BatchEvent(self.events)


@dataclass(frozen=True, eq=False)
class OutputNoise:
    """Noise proportional to the L2 sensitivity Delta of what it is added to.

    Parameters
    ----------
    kind : str
        "gaussian" (standard deviation multiplier * Delta) or "l2-laplace" (density ~ exp(-||xi||_2 / scale) with scale
        multiplier * Delta).
    multiplier : Array, [R]
        The noise multiplier of every run; 0 without noise.
    share : float, default 1
        The fraction of the scale that one agent draws, where the noise of several agents adds up to the event's.

    Examples
    --------
    >>> noise = OutputNoise("gaussian", np.array([4.0]))
    >>> noise.event(np.array([0.5])).runs
    (Noise(mechanism='gaussian', scale=2.0, l1=inf, l2=0.5),)
    """

    kind: str
    multiplier: Array
    share: float = 1.0

    def draw(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Draw:
        """Draw noise and its event.

        Parameters
        ----------
        update : int
            The number of the draw within the round, from 0.
        sensitivity : Array, [R]
            The L2 sensitivity of what the noise is added to.
        like : Array, [J, R, K]
            Gives shape and precision.
        noise : NoiseSource
            The agent's randomness in this round.

        Returns
        -------
        Draw
        """
        return Draw(self.xi(update, sensitivity, like, noise), self.event(sensitivity))

    def xi(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Array:
        """Draw the noise alone, [J, R, K]."""
        return noise.continuous(update, self.kind, as_like(self.share * self.scale(sensitivity), like), like)

    def scale(self, sensitivity: Array) -> Array:
        """Return the scale that is accounted for, of every run, [R]."""
        return to_numpy(self.multiplier) * to_numpy(sensitivity).astype(np.float64)

    def event(self, sensitivity: Array) -> BatchEvent:
        """Return the events of one draw."""
        pairs = zip(self.scale(sensitivity), to_numpy(sensitivity).astype(np.float64), strict=True)
        return BatchEvent(
            tuple(Noise(self.kind, float(s), math.inf, float(d)) if s > 0.0 else NON_PRIVATE for s, d in pairs)
        )

    def magnitude(self, sensitivity: Array, size: int) -> Array:
        """Return E|xi| of one coordinate out of `size`, [R]: public, unlike the noise that was drawn."""
        if self.kind == "gaussian":
            return self.share * MEAN_SIZE["gaussian"] * self.scale(sensitivity)
        part = math.exp(math.lgamma(size / 2.0) - math.lgamma((size + 1.0) / 2.0)) / math.sqrt(math.pi)
        return self.share * size * part * self.scale(sensitivity)  # the mean length times E|u_1|, u a uniform direction


NO_NOISE = OutputNoise("gaussian", np.zeros(1))


@dataclass(frozen=True, eq=False)
class GaussianClassic:
    """xi ~ N(0, sigma^2) with sigma = Delta sqrt(2 ln(1.25/delta)) / epsilon: (epsilon, delta)-DP for epsilon <= 1.

    Parameters
    ----------
    epsilon : Array, [R]
        The nominal budget of one release; inf means no noise.
    delta : float
        The delta of (epsilon, delta).
    squared : bool, default False
        Whether the number sigma^2 is used as the standard deviation, as the published code does.

    Examples
    --------
    >>> GaussianClassic(np.array([1.0]), 1.25 / math.e**2).std(np.array([0.5]))
    array([1.])
    """

    epsilon: Array
    delta: float
    squared: bool = False

    def std(self, sensitivity: Array) -> Array:
        """Return the standard deviation of the noise, [R]."""
        sigma = sensitivity * math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon
        return sigma**2 if self.squared else sigma

    def draw(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Draw:
        """Draw Gaussian noise of standard deviation `std(sensitivity)`, with its nominal event."""
        return Draw(noise.continuous(update, "gaussian", self.std(sensitivity), like), self.event)

    @cached_property
    def event(self) -> BatchEvent:
        """The nominal events of one release."""
        name = "gaussian-published" if self.squared else "gaussian-classic"
        return nominal_event(name, self.epsilon, self.delta)


@dataclass(frozen=True, eq=False)
class LaplaceDataDependent:
    """xi ~ Lap(0, Delta / epsilon) with Delta computed from the agent's own records (eq. Laplace).

    Delta depends on the data, so the scale of the noise reveals something about them: epsilon is nominal, for one local
    update, and there is no end-to-end guarantee.

    Parameters
    ----------
    epsilon : Array, [R]
        The nominal budget of one update; inf means no noise.

    Examples
    --------
    >>> LaplaceDataDependent(np.array([0.1])).event.runs
    (Nominal(mechanism='laplace-data-dependent', epsilon=0.1, delta=0.0),)
    """

    epsilon: Array

    def draw(self, update: int, sensitivity: Array, like: Array, noise: NoiseSource) -> Draw:
        """Draw Laplace noise of scale Delta / epsilon; where Delta is 0 there is no noise, and the event says so."""
        xi = noise.continuous(update, "laplace", sensitivity / self.epsilon, like)
        if (sensitivity > 0).all():
            return Draw(xi, self.event)
        pairs = zip(self.event.runs, sensitivity > 0, strict=True)
        return Draw(xi, BatchEvent(tuple(event if noisy else NON_PRIVATE for event, noisy in pairs)))

    @cached_property
    def event(self) -> BatchEvent:
        """The nominal events of one update."""
        return nominal_event("laplace-data-dependent", self.epsilon)
