"""Feasible sets W of the parameters, each with its exact projection argmin_{v in W} ||v - z||."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tacit.registry import Registry
from tacit.types import Array


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
