"""No constraint at all."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.problems.sets import SETS
from tacit.types import Array


@dataclass(frozen=True)
class Whole:
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


SETS.register("all")(lambda size: Whole())
