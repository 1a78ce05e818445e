"""How good a model is, for all runs of a batch at once."""

from __future__ import annotations

import numpy as np

from tacit.problems.problem import scores
from tacit.types import Array, Range, Shard, Target


def test_error(w: Array, test: Shard | None, target: Target) -> Array:
    """The share of wrong classes, or the root mean squared error in the label's own unit; w [J, R, K] -> [R]."""
    if test is None:
        return np.full(w.shape[1], np.nan)
    predicted = scores(w, test.x)
    if isinstance(target, Range):
        error: Array = (target.high - target.low) * np.sqrt(((predicted - test.y[:, None, :]) ** 2).mean(axis=(0, 2)))
        return error
    wrong: Array = (predicted.argmax(axis=-1) != test.y.argmax(axis=-1)[:, None]).mean(axis=0)
    return wrong
