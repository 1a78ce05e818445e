"""Losses of a linear model, as functions of its scores s = x^T w.

A loss l(w; x, y) depends on w only through the K scores. The gradient of one record is therefore the rank-one matrix
x r^T with the residual r = dl/ds, and norms of per-record gradients are products of two vector norms.
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
    """A convex loss of the scores.

    Implement this protocol and register the class in `LOSSES` to add a loss; see docs/howto/add-a-loss.md. The three
    bounds (`curvature`, `trace`, `residual_bound`) enter privacy guarantees and must hold for all scores and labels;
    `math.inf` is always safe.

    Examples
    --------
    >>> import numpy as np
    >>> loss: Loss = LOSSES["squared"]()
    >>> scores, y = np.array([[[0.5]]]), np.array([[1.0]])
    >>> loss.value(scores, y).tolist(), loss.residual(scores, y).tolist()
    ([[0.125]], [[[-0.5]]])
    """

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of d^2 l / ds^2; inf if the loss is not smooth."""

    @property
    def trace(self) -> float:
        """The largest trace of d^2 l / ds^2; inf if it is unbounded. Objective perturbation needs it."""

    @property
    def residual_bound(self) -> float:
        """The largest ||dl/ds||_2 over all scores and labels; inf if it is unbounded."""

    @property
    def needs_classes(self) -> bool:
        """Whether the label must be a class."""

    def score_scale(self, outputs: int) -> float:
        """Return the approximate size of a fitted model's scores; the planner allows noise of that size in a score.

        Parameters
        ----------
        outputs
            K, the number of scores of a record.
        """

    def value(self, scores: Array, y: Array) -> Array:
        """Return l for every record and run.

        Parameters
        ----------
        scores
            Scores [n, R, K].
        y
            Labels [n, K].

        Returns
        -------
        Array
            Losses [n, R].
        """

    def residual(self, scores: Array, y: Array) -> Array:
        """Return a (sub)gradient dl/ds for every record and run: scores [n, R, K], y [n, K] -> [n, R, K]."""

    def probabilities(self, scores: Array) -> Array | None:
        """Return class probabilities [..., K] for scores [..., K], or None if the loss has no probability model."""


LOSSES: Registry[Callable[[], Loss]] = Registry("loss", __name__)
"""Losses by name. Register a class without required arguments: `@LOSSES.register("huber")`."""


@LOSSES.register("hinge")
@dataclass(frozen=True)
class Hinge:
    """Crammer-Singer hinge loss, l = max_k (s_k + 1 - y_k) - s_y; subgradient e_k* - y at the first maximiser k*."""

    curvature: float = math.inf
    trace: float = math.inf
    residual_bound: float = math.sqrt(2.0)  # e_k* - y has at most two entries, +1 and -1
    needs_classes: bool = True

    def value(self, scores: Array, y: Array) -> Array:
        """Return the losses; a loss is zero if the true class leads every other class by at least 1."""
        y = y[:, None, :]
        worst = namespace(scores).amax(scores + 1.0 - y, axis=-1)
        value: Array = worst - (scores * y).sum(axis=-1)
        return value

    def residual(self, scores: Array, y: Array) -> Array:
        """Return e_k* - y, which is zero if the true class is the maximiser."""
        y = y[:, None, :]
        worst = (scores + 1.0 - y).argmax(axis=-1)
        unit = namespace(scores).eye(scores.shape[-1], dtype=scores.dtype, device=scores.device)
        residual: Array = unit[worst] - y
        return residual

    def probabilities(self, scores: Array) -> None:
        """Return None: the hinge loss has no probability model."""
        return

    def score_scale(self, outputs: int) -> float:
        """Return 2, a margin of 1 in both directions."""
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
        """Return the losses; they stay finite, because the logarithm is of the normaliser, not of a probability."""
        xp = namespace(scores)
        shifted = scores - xp.amax(scores, axis=-1, keepdims=True)
        value: Array = xp.log(xp.exp(shifted).sum(axis=-1)) - (shifted * y[:, None, :]).sum(axis=-1)
        return value

    def residual(self, scores: Array, y: Array) -> Array:
        """Return h - y (eq. gradient)."""
        return self.probabilities(scores) - y[:, None, :]

    def probabilities(self, scores: Array) -> Array:
        """Return h_k = exp(s_k) / sum_k' exp(s_k'), shifted by the largest score to avoid overflow."""
        xp = namespace(scores)
        h: Array = xp.exp(scores - xp.amax(scores, axis=-1, keepdims=True))
        h /= h.sum(axis=-1, keepdims=True)
        return h

    def score_scale(self, outputs: int) -> float:
        """Return 6, growing with ln K beyond ten classes: a lead of ln K is needed to outweigh K others."""
        return 6.0 * max(1.0, math.log10(outputs))


@LOSSES.register("squared")
@dataclass(frozen=True)
class Squared:
    """Squared loss, l = ||s - y||^2 / 2; dl/ds = s - y."""

    curvature: float = 1.0
    trace: float = math.inf  # K, which is not bounded here
    residual_bound: float = math.inf
    needs_classes: bool = False

    def value(self, scores: Array, y: Array) -> Array:
        """Return half the squared distance between scores and labels."""
        value: Array = ((scores - y[:, None, :]) ** 2).sum(axis=-1) / 2.0
        return value

    def residual(self, scores: Array, y: Array) -> Array:
        """Return s - y."""
        return scores - y[:, None, :]

    def probabilities(self, scores: Array) -> None:
        """Return None: least squares has no probability model."""
        return

    def score_scale(self, outputs: int) -> float:
        """Return 1, because labels are scaled to [0, 1]."""
        return 1.0
