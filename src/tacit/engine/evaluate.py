"""How good a model is, for all runs of a batch at once."""

from __future__ import annotations

import numpy as np

from tacit.arrays import namespace, to_numpy
from tacit.problems.problem import scores
from tacit.types import Array, Range, Shard, Target


def test_error(w: Array, test: Shard | None, target: Target) -> Array:
    """The share of wrong classes, or the root mean squared error in the label's unit: w [J, R, K] -> [R], in numpy."""
    if test is None:
        return np.full(w.shape[1], np.nan)
    predicted = scores(w, test.x)
    if isinstance(target, Range):
        rmse: Array = namespace(w).sqrt(((predicted - test.y[:, None, :]) ** 2).mean(axis=(0, 2)))
        return (target.high - target.low) * to_numpy(rmse)
    return to_numpy(mistakes(predicted, test)) / len(test.x)


def mistakes(predicted: Array, test: Shard) -> Array:
    """How many records each run gives a wrong class, from its scores [n, R, K], in their own library."""
    wrong: Array = (predicted.argmax(axis=-1) != test.y.argmax(axis=-1)[:, None]).sum(axis=0)
    return wrong
