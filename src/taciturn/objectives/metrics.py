"""Quality of a model on labelled records: the full account of one run, and test errors of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import to_numpy
from taciturn.objectives.losses import Loss
from taciturn.objectives.passes import scores
from taciturn.types import Array, Classes, Range, Shard, Target


def quality_metrics(scores: Array, y: Array, target: Target, loss: Loss) -> dict[str, Any]:
    """Every measure that fits the label: scores [n, K], y [n, K]."""
    if isinstance(target, Range):
        return _regression(scores[:, 0], y[:, 0], target)
    return _classification(scores, y, target, loss)


def _classification(scores: Array, y: Array, target: Classes, loss: Loss) -> dict[str, Any]:
    labels, predicted = y.argmax(axis=1), scores.argmax(axis=1)
    confusion = np.zeros((target.width, target.width), dtype=int)  # rows: true, columns: predicted
    np.add.at(confusion, (labels, predicted), 1)
    counts = confusion.sum(axis=1)
    recall = np.divide(np.diag(confusion), counts, out=np.full(target.width, np.nan), where=counts > 0)
    has_probabilities = loss.probabilities(scores[:1]) is not None
    return {
        "records": len(labels),
        "error": float((predicted != labels).mean()),
        "log_loss": float(loss.value(scores[:, None], y).mean()) if has_probabilities else None,
        "auroc": auroc(scores[:, 1] - scores[:, 0], labels == 1) if target.width == 2 else None,
        "recall": dict(zip(target.names, recall.tolist(), strict=True)),
        "confusion": confusion.tolist(),
    }


def auroc(score: Array, positive: NDArray[np.bool_]) -> float | None:
    """The chance that a random positive scores above a random negative, ties counted half (Mann-Whitney)."""
    from scipy.stats import rankdata

    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    return float((rankdata(score)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _regression(predicted: Array, y: Array, target: Range) -> dict[str, Any]:
    squared = float(((predicted - y) ** 2).mean())
    spread = float(y.var())
    return {
        "records": len(y),
        "rmse": (target.high - target.low) * squared**0.5,
        "r2": 1.0 - squared / spread if spread > 0 else None,
    }


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
