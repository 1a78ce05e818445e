"""Every parameter between two bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.arrays import namespace
from tacit.problems.sets import SETS
from tacit.types import Array


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
