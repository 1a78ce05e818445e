"""No constraint at all."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.problems.sets import SETS
from tacit.types import Array


@dataclass(frozen=True)
class Whole:
    """The whole space R^{J x K}."""

    def project(self, z: Array) -> Array:
        """Every point is in the set."""
        return z


SETS.register("all")(lambda size: Whole())
