"""The squared Euclidean norm, in the paper's convention."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.problems.regularisers import REGULARISERS
from tacit.types import Array


@REGULARISERS.register("l2")
@dataclass(frozen=True)
class L2:
    """Squared L2 norm, r(w) = sum_jk w_jk^2, without a half; gradient 2 w."""

    curvature: float = 2.0
    strong_convexity: float = 2.0

    def value(self, w: Array) -> Array:
        """The sum of squares of every run."""
        value: Array = (w**2).sum(axis=(0, 2))
        return value

    def gradient(self, w: Array) -> Array:
        """Twice the parameters."""
        return 2.0 * w
