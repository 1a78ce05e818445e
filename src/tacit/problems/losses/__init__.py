"""Losses of a linear model, as functions of its scores s = x^T w.

A loss l(w; x, y) here depends on w only through the K scores, so the gradient of one record is the rank-one matrix
x r^T with r = dl/ds, its residual; norms of per-record gradients are products of two norms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tacit.registry import Registry
from tacit.types import Array


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
