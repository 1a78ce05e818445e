"""Schedules of the penalty rho^t and the proximity eta^t, and the kinds of steps that they enter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from taciturn.core.arrays import broadcast_like, namespace
from taciturn.types import Array

FALLING_ROUNDS = 60  # last rounds, over which a level eta falls

Schedule: TypeAlias = Callable[[int], Array]
"""t -> a number for every run, [R, 1], which broadcasts against [J, R, K]."""


@dataclass(frozen=True, eq=False)
class Constant:
    """The same number in every round, for all runs or for each run.

    Parameters
    ----------
    value : float or sequence of float, [R]
        The number of all runs, or of each run.
    like : Array, [R]
        Gives the number of runs and the precision, here and in every other schedule.

    Examples
    --------
    >>> import numpy as np
    >>> Constant(0.5, np.ones(2))(7).tolist()
    [[0.5], [0.5]]
    """

    value: float | Sequence[float]
    like: Array

    def __call__(self, t: int) -> Array:
        """Return the constant of every run, [R, 1]."""
        return self._values

    @cached_property
    def _values(self) -> Array:
        return broadcast_like(self.value, self.like)[:, None]


@dataclass(frozen=True, eq=False)
class DynamicRho:
    """rho^t = min(cap, c1 growth^floor(t / tc) + c2 / epsilon)  (eq. dynamic_rho)."""

    epsilon: Array  # [R]
    c1: float = 2.0
    c2: float = 5.0
    tc: int = 10000
    growth: float = 1.2
    cap: float = 1e9

    def __call__(self, t: int) -> Array:
        """Return the penalty of every run, [R, 1]."""
        steps = t // self.tc
        grown = self.c1 * self.growth**steps if steps * math.log(self.growth) < 700.0 else math.inf
        rho: Array = namespace(self.epsilon).clip(grown + self.c2 / self.epsilon, None, self.cap)
        return rho[:, None]


@dataclass(frozen=True, eq=False)
class SmoothEta:
    """eta^t = a / (L + sqrt(t) / epsilon)  (theorem 1, f_p L-smooth)."""

    epsilon: Array  # [R]
    smoothness: float  # L
    scale: float = 1.0  # a

    def __call__(self, t: int) -> Array:
        """Return the proximity of every run, [R, 1]."""
        return (self.scale / (self.smoothness + math.sqrt(t) / self.epsilon))[:, None]


@dataclass(frozen=True, eq=False)
class NonsmoothEta:
    """eta^t = a / sqrt(t)  (theorem 2)."""

    like: Array  # [R], whose precision and device the values have
    scale: float = 1.0  # a

    def __call__(self, t: int) -> Array:
        """Return the proximity of every run, [R, 1]."""
        eta: Array = namespace(self.like).full_like(self.like, self.scale / math.sqrt(t))
        return eta[:, None]


def falling_share(rounds: int) -> float:
    """Return s, the share of the rounds over which a level eta falls; 1 if there are few rounds.

    >>> falling_share(300), falling_share(20)
    (0.2, 1.0)
    """
    return min(1.0, FALLING_ROUNDS / rounds)


@dataclass(frozen=True, eq=False)
class LevelEta:
    """eta^t = a min(1, (1 - (t - 1) / T) / s): constant, then falling linearly to nearly 0 over the last 60 rounds.

    For a path of a given length, equal steps collect the least noise (Cauchy-Schwarz); the fall damps oscillations.
    """

    like: Array  # [R], whose precision and device the values have
    rounds: int  # T
    scale: float | Sequence[float] = 1.0  # a, or [R]

    def __call__(self, t: int) -> Array:
        """Return the proximity of every run, [R, 1]."""
        left = 1.0 - (min(t, self.rounds) - 1) / self.rounds
        return self._first * min(1.0, left / falling_share(self.rounds))

    @cached_property
    def _first(self) -> Array:
        return broadcast_like(self.scale, self.like)[:, None]


@dataclass(frozen=True, eq=False)
class StrongEta:
    """eta^t = 2 a / (alpha (t + 2))  (theorem 3, f_p alpha-strongly convex)."""

    like: Array  # [R], whose precision and device the values have
    strong_convexity: float  # alpha
    scale: float = 1.0  # a

    def __call__(self, t: int) -> Array:
        """Return the proximity of every run, [R, 1]."""
        value = 2.0 * self.scale / (self.strong_convexity * (t + 2))
        eta: Array = namespace(self.like).full_like(self.like, value)
        return eta[:, None]


class StepKind:
    """How rho and eta enter a method's step. The planner chooses its rule for both by this type.

    `planning.step_sizes.STEP_RULES` has the rule of every subclass.
    """


class LinearisedStep(StepKind):
    """z moves by g / (rho + 1/eta), as in Algorithm 1."""


class GradientStep(StepKind):
    """z moves by eta g from the common model."""


class MomentumStep(StepKind):
    """Gradient steps with momentum, in coordinates in which a record has norm 1 on average."""


class HiddenSteps(StepKind):
    """Linearised steps with a constant eta, whose cost falls with rho eta."""


class PrimalDualSteps(StepKind):
    """Linearised steps, each followed by a dual step."""


class NoiseFreeStep(StepKind):
    """A step without noise."""


class ExactStep(StepKind):
    """A subproblem that is solved: z moves by g / rho, and eta has no meaning."""


class CentralSolution(ExactStep):
    """The one solution of a curator."""
