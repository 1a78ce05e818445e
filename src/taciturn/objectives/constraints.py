"""Feasible sets W of the parameters, each with its exact projection argmin_{v in W} ||v - z||."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from taciturn.core.arrays import namespace
from taciturn.core.registry import Registry
from taciturn.types import Array


class FeasibleSet(Protocol):
    """A closed convex set that contains 0.

    Implement this protocol and register a function of the set's size in `SETS` to add a set.

    Examples
    --------
    >>> import numpy as np
    >>> ball: FeasibleSet = SETS["l2-ball"](1.0)
    >>> ball.project(np.array([[[3.0, 4.0]]])).tolist()
    [[[0.6000000000000001, 0.8]]]
    """

    def project(self, z: Array) -> Array:
        """Return the nearest point of the set for every run: [J, R, K] -> [J, R, K]."""


SETS: Registry[Callable[[float], FeasibleSet]] = Registry("set", __name__)
"""Constructors by name; the argument is half the side of the box or the ball's radius, and "all" ignores it."""


@dataclass(frozen=True)
class Box:
    """The box {w : low <= w_jk <= high}."""

    low: float
    high: float

    def project(self, z: Array) -> Array:
        """Clip every coordinate."""
        clipped: Array = namespace(z).clip(z, self.low, self.high)
        return clipped


SETS.register("box")(lambda size: Box(-size, size))


@SETS.register("l2-ball")
@dataclass(frozen=True)
class L2Ball:
    """The ball {w : ||w||_2 <= radius}, over all J K parameters of a run."""

    radius: float

    def project(self, z: Array) -> Array:
        """Return z * min(1, radius / ||z||)."""
        xp = namespace(z)
        length = xp.clip(xp.sqrt((z**2).sum(axis=(0, 2), keepdims=True)), xp.finfo(z.dtype).tiny, None)
        scaled: Array = z * xp.clip(self.radius / length, None, 1.0)
        return scaled


@dataclass(frozen=True)
class Unconstrained:
    """The whole space R^{J x K}."""

    def project(self, z: Array) -> Array:
        """Return z."""
        return z


SETS.register("all")(lambda size: Unconstrained())
