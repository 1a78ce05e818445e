"""How good a model is, for all runs of a batch at once."""

from __future__ import annotations

import numpy as np

from tacit.arrays import to_numpy
from tacit.problems.passes import scores
from tacit.types import Array, Range, Shard, Target


def test_error(w: Array, test: Shard | None, target: Target) -> Array:
    """The share of wrong classes, or the root mean squared error in the label's unit: w [J, R, K] -> [R], in numpy."""
    if test is None:
        return np.full(w.shape[1], np.nan)
    parts = [_figure(scores(w, block.x), block, target) for block in test.blocks()]
    figure = to_numpy(sum(parts[1:], start=parts[0])) / len(test.x)
    return (target.high - target.low) * np.sqrt(figure) if isinstance(target, Range) else figure


def _figure(predicted: Array, block: Shard, target: Target) -> Array:
    """What is added up over the records, of every run: squared errors, or mistakes."""
    if isinstance(target, Range):
        squares: Array = ((predicted - block.y[:, None, :]) ** 2).mean(axis=2).sum(axis=0)
        return squares
    return mistakes(predicted, block)


def mistakes(predicted: Array, test: Shard) -> Array:
    """How many records each run gives a wrong class, from its scores [n, R, K], in their own library."""
    wrong: Array = (predicted.argmax(axis=-1) != test.y.argmax(axis=-1)[:, None]).sum(axis=0)
    return wrong
