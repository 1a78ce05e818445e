"""The squared loss: least squares on a value, or on one-hot labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.problems.losses import LOSSES
from tacit.types import Array


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
