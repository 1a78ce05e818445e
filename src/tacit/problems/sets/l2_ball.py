"""Parameters of bounded length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.problems.sets import SETS
from tacit.types import Array


@dataclass(frozen=True)
class L2Ball:
    """The ball {w : ||w||_2 <= radius}, over all J K parameters of a run."""

    radius: float

    def project(self, z: Array) -> Array:
        """z * min(1, radius / ||z||)."""
        length = np.sqrt((z**2).sum(axis=(0, 2), keepdims=True))
        scaled: Array = z * np.minimum(1.0, self.radius / np.maximum(length, np.finfo(z.dtype).tiny))
        return scaled


SETS.register("l2-ball")(L2Ball)
