"""Multiclass logistic regression (appendix "Multiclass Logistic Regression Model")."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.arrays import namespace
from tacit.problems.losses import LOSSES
from tacit.types import Array


@LOSSES.register("softmax")
@dataclass(frozen=True)
class Softmax:
    """Multiclass logistic loss, l = -sum_k y_k ln h_k with h = softmax(s); dl/ds = h - y."""

    curvature: float = 0.5  # diag(h) - h h^T <= I / 2
    trace: float = 1.0  # trace of diag(h) - h h^T is 1 - ||h||^2
    residual_bound: float = math.sqrt(2.0)  # ||h - y||_2 <= sqrt(2) (1 - h_y)
    needs_classes: bool = True

    def value(self, scores: Array, y: Array) -> Array:
        """The logarithm is taken of the normaliser, never of a probability, so it stays finite."""
        xp = namespace(scores)
        shifted = scores - xp.amax(scores, axis=-1, keepdims=True)
        value: Array = xp.log(xp.exp(shifted).sum(axis=-1)) - (shifted * y[:, None, :]).sum(axis=-1)
        return value

    def residual(self, scores: Array, y: Array) -> Array:
        """h - y (eq. gradient)."""
        return self.probabilities(scores) - y[:, None, :]

    def probabilities(self, scores: Array) -> Array:
        """h_k = exp(s_k) / sum_k' exp(s_k'), shifted by the largest score so that nothing overflows."""
        xp = namespace(scores)
        h: Array = xp.exp(scores - xp.amax(scores, axis=-1, keepdims=True))
        h /= h.sum(axis=-1, keepdims=True)
        return h

    def score_scale(self, outputs: int) -> float:
        """6, and in proportion to ln K beyond ten classes: it takes a lead of ln K to outweigh K others."""
        return 6.0 * max(1.0, math.log10(outputs))
