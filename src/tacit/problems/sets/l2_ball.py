"""Parameters of bounded length."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.arrays import namespace
from tacit.problems.sets import SETS
from tacit.types import Array


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
