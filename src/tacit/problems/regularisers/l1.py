"""The sum of absolute values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.arrays import namespace
from tacit.problems.regularisers import REGULARISERS
from tacit.types import Array


@REGULARISERS.register("l1")
@dataclass(frozen=True)
class L1:
    """L1 norm, r(w) = sum_jk |w_jk|; subgradient sign(w), 0 at 0."""

    curvature: float = math.inf
    strong_convexity: float = 0.0

    def value(self, w: Array) -> Array:
        """The sum of absolute values of every run."""
        value: Array = namespace(w).abs(w).sum(axis=(0, 2))
        return value

    def gradient(self, w: Array) -> Array:
        """The sign of every parameter."""
        sign: Array = namespace(w).sign(w)
        return sign
