"""Penalties rho^t and proximities eta^t as values: call one with t and it gives a number for every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from taciturn.core.arrays import broadcast_like, namespace
from taciturn.types import Array

FALLS = 60  # last rounds, over which a level eta falls

Schedule: TypeAlias = Callable[[int], Array]
"""t -> [R, 1], ready to stand before [J, R, K]."""


@dataclass(frozen=True, eq=False)
class Constant:
    """The same number in every round, for all runs or for each its own."""

    value: float | Sequence[float]  # or [R]
    epsilon: Array  # [R]

    def __call__(self, t: int) -> Array:
        """The constant, for every run."""
        return self._values

    @cached_property
    def _values(self) -> Array:
        return broadcast_like(self.value, self.epsilon)[:, None]


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
        """The penalty of every run."""
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
        """The proximity of every run."""
        return (self.scale / (self.smoothness + math.sqrt(t) / self.epsilon))[:, None]


@dataclass(frozen=True, eq=False)
class NonsmoothEta:
    """eta^t = a / sqrt(t)  (theorem 2)."""

    epsilon: Array  # [R]
    scale: float = 1.0  # a

    def __call__(self, t: int) -> Array:
        """The proximity of every run."""
        eta: Array = namespace(self.epsilon).full_like(self.epsilon, self.scale / math.sqrt(t))
        return eta[:, None]


def falling_share(rounds: int) -> float:
    """s: the share of the rounds over which a level eta falls; where there are few rounds and steps are long, all."""
    return min(1.0, FALLS / rounds)


@dataclass(frozen=True, eq=False)
class LevelEta:
    """eta^t = a min(1, (1 - (t - 1) / T) / s): a, and over the last 60 rounds, a share s of all, down to nearly 0.

    For a path of a given length steps that are all alike collect the least noise (Cauchy and Schwarz); the fall at the
    end calms what swings.
    """

    epsilon: Array  # [R]
    rounds: int  # T
    scale: float | Sequence[float] = 1.0  # a, or [R]

    def __call__(self, t: int) -> Array:
        """The proximity of every run."""
        left = 1.0 - (min(t, self.rounds) - 1) / self.rounds
        return self._first * min(1.0, left / falling_share(self.rounds))

    @cached_property
    def _first(self) -> Array:
        return broadcast_like(self.scale, self.epsilon)[:, None]


@dataclass(frozen=True, eq=False)
class StrongEta:
    """eta^t = 2 a / (alpha (t + 2))  (theorem 3, f_p alpha-strongly convex)."""

    epsilon: Array  # [R]
    strong_convexity: float  # alpha
    scale: float = 1.0  # a

    def __call__(self, t: int) -> Array:
        """The proximity of every run."""
        eta = 2.0 * self.scale / (self.strong_convexity * (t + 2))
        found: Array = namespace(self.epsilon).full_like(self.epsilon, eta)
        return found[:, None]


@dataclass(frozen=True, eq=False)
class Beside:
    """Schedules of several groups of runs, side by side."""

    groups: tuple[Schedule, ...]  # each for its own runs

    def __call__(self, t: int) -> Array:
        """The numbers of all runs, group after group."""
        parts = [group(t) for group in self.groups]
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concatenate(parts)
