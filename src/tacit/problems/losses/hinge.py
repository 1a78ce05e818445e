"""The multiclass hinge loss of Crammer and Singer (2001)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.arrays import namespace
from tacit.problems.losses import LOSSES
from tacit.types import Array


@LOSSES.register("hinge")
@dataclass(frozen=True)
class Hinge:
    """Crammer-Singer hinge, l = max_k (s_k + 1 - y_k) - s_y; subgradient e_k* - y at the first maximiser k*."""

    curvature: float = math.inf
    trace: float = math.inf
    residual_bound: float = math.sqrt(2.0)  # e_k* - y has at most two entries, +1 and -1
    needs_classes: bool = True

    def value(self, scores: Array, y: Array) -> Array:
        """Zero exactly when the true class leads every other one by at least 1."""
        y = y[:, None, :]
        worst = namespace(scores).amax(scores + 1.0 - y, axis=-1)
        value: Array = worst - (scores * y).sum(axis=-1)
        return value

    def residual(self, scores: Array, y: Array) -> Array:
        """e_k* - y: zero where the true class is itself the maximiser."""
        y = y[:, None, :]
        worst = (scores + 1.0 - y).argmax(axis=-1)
        unit = namespace(scores).eye(scores.shape[-1], dtype=scores.dtype, device=scores.device)
        residual: Array = unit[worst] - y
        return residual

    def probabilities(self, scores: Array) -> None:
        """The hinge loss fits a decision, not probabilities."""
        return

    def score_scale(self, outputs: int) -> float:
        """A margin of 1 either way."""
        return 2.0
