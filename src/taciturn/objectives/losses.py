"""Losses of a linear model, as functions of its scores s = x^T w.

A loss l(w; x, y) here depends on w only through the K scores, so the gradient of one record is the rank-one matrix
x r^T with r = dl/ds, its residual; norms of per-record gradients are products of two norms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from taciturn.core.arrays import namespace
from taciturn.core.registry import Registry
from taciturn.types import Array


class Loss(Protocol):
    """A convex loss of the scores."""

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of d^2 l / ds^2 (inf where the loss is not smooth)."""
        ...

    @property
    def trace(self) -> float:
        """The largest trace of d^2 l / ds^2 (inf where there is none); objective perturbation asks for it."""
        ...

    @property
    def residual_bound(self) -> float:
        """The largest ||dl/ds||_2 over all scores and labels (inf where there is none)."""
        ...

    def score_scale(self, outputs: int) -> float:
        """The size of scores that a fitted model has, roughly: the planner allows noise of that size in a score."""
        ...

    @property
    def needs_classes(self) -> bool:
        """Whether the label must be a class."""
        ...

    def value(self, scores: Array, y: Array) -> Array:
        """l for every record and run: scores [n, R, K], y [n, K] -> [n, R]."""
        ...

    def residual(self, scores: Array, y: Array) -> Array:
        """A (sub)gradient dl/ds: scores [n, R, K], y [n, K] -> [n, R, K]."""
        ...

    def probabilities(self, scores: Array) -> Array | None:
        """The model's class probabilities [..., K], where the loss has such a model."""
        ...


LOSSES: Registry[Callable[[], Loss]] = Registry("loss", __name__)


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


@LOSSES.register("squared")
@dataclass(frozen=True)
class Squared:
    """Squared loss, l = ||s - y||^2 / 2; dl/ds = s - y."""

    curvature: float = 1.0
    trace: float = math.inf  # one curvature for each output, of which there is no bound here
    residual_bound: float = math.inf
    needs_classes: bool = False

    def value(self, scores: Array, y: Array) -> Array:
        """Half the squared distance between scores and labels."""
        value: Array = ((scores - y[:, None, :]) ** 2).sum(axis=-1) / 2.0
        return value

    def residual(self, scores: Array, y: Array) -> Array:
        """The difference s - y."""
        return scores - y[:, None, :]

    def probabilities(self, scores: Array) -> None:
        """Least squares fits values, not probabilities."""
        return

    def score_scale(self, outputs: int) -> float:
        """Labels lie in [0, 1]."""
        return 1.0
