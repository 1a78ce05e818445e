"""Feasible sets W of the parameters, each with its exact projection argmin_{v in W} ||v - z||."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from taciturn.core.arrays import namespace
from taciturn.core.registry import Registry
from taciturn.types import Array


class FeasibleSet(Protocol):
    """A closed convex set that holds 0."""

    def project(self, z: Array) -> Array:
        """The nearest point of the set, run by run: [J, R, K] -> [J, R, K]."""
        ...

    def diameter(self, parameters: int) -> float:
        """The largest ||u - v||_2 of two points with so many parameters, J K (inf where there is none)."""
        ...

    def reach(self, parameters: int) -> float:
        """The largest ||u||_2 of a point with so many parameters."""
        ...


SETS: Registry[Callable[[float], FeasibleSet]] = Registry("set", __name__)
"""By name, a set of a given size: half the side of the box, the radius of the ball; the whole space ignores it."""


@dataclass(frozen=True)
class Box:
    """The box {w : low <= w_jk <= high}."""

    low: float
    high: float

    def project(self, z: Array) -> Array:
        """Clip every coordinate."""
        clipped: Array = namespace(z).clip(z, self.low, self.high)
        return clipped

    def diameter(self, parameters: int) -> float:
        """From corner to corner."""
        return (self.high - self.low) * math.sqrt(parameters)

    def reach(self, parameters: int) -> float:
        """The corner farthest from 0."""
        return max(abs(self.low), abs(self.high)) * math.sqrt(parameters)


SETS.register("box")(lambda size: Box(-size, size))


@dataclass(frozen=True)
class L2Ball:
    """The ball {w : ||w||_2 <= radius}, over all J K parameters of a run."""

    radius: float

    def project(self, z: Array) -> Array:
        """z * min(1, radius / ||z||)."""
        xp = namespace(z)
        length = xp.clip(xp.sqrt((z**2).sum(axis=(0, 2), keepdims=True)), xp.finfo(z.dtype).tiny, None)
        scaled: Array = z * xp.clip(self.radius / length, None, 1.0)
        return scaled

    def diameter(self, parameters: int) -> float:
        """Twice the radius."""
        return 2.0 * self.radius

    def reach(self, parameters: int) -> float:
        """The radius."""
        return self.radius


SETS.register("l2-ball")(L2Ball)


@dataclass(frozen=True)
class Unconstrained:
    """The whole space R^{J x K}."""

    def project(self, z: Array) -> Array:
        """Every point is in the set."""
        return z

    def diameter(self, parameters: int) -> float:
        """There is none."""
        return math.inf

    def reach(self, parameters: int) -> float:
        """There is none."""
        return math.inf


SETS.register("all")(lambda size: Unconstrained())
