"""Quality of a model on labelled records: all metrics of one run, and test errors of a batch of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import to_numpy
from taciturn.objectives.losses import Loss
from taciturn.objectives.passes import scores
from taciturn.types import Array, Classes, Range, Shard, Target


def quality_metrics(scores: Array, y: Array, target: Target, loss: Loss) -> dict[str, Any]:
    """Return all metrics that apply to the label, ready for JSON.

    Parameters
    ----------
    scores, y
        Scores and labels of the records, [n, K].
    target
        What the label is.
    loss
        The model's loss, which decides whether there are probabilities.

    Returns
    -------
    dict
        For classes: records, error, log_loss, auroc, recall by class, confusion (rows: true classes). For numbers:
        records, rmse in the label's unit, r2. A metric that is not defined is None.
    """
    if isinstance(target, Range):
        return _regression(scores[:, 0], y[:, 0], target)
    return _classification(scores, y, target, loss)


def _classification(scores: Array, y: Array, target: Classes, loss: Loss) -> dict[str, Any]:
    labels, predicted = y.argmax(axis=1), scores.argmax(axis=1)
    confusion = np.zeros((target.width, target.width), dtype=int)
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
    """Return the probability that a random positive scores above a random negative, counting ties half (Mann-Whitney).

    Parameters
    ----------
    score
        Scores [n].
    positive
        Which records are positive, [n].

    Returns
    -------
    float or None
        None if there are no positives or no negatives.

    Examples
    --------
    >>> auroc(np.array([0.1, 0.4, 0.9]), np.array([False, True, True]))
    1.0
    """
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
    """Return the share of wrong classes, or the root mean squared error in the label's unit, of every run.

    Parameters
    ----------
    w
        Parameters [J, R, K].
    test
        The test records; None gives NaN.
    target
        What the label is.

    Returns
    -------
    Array
        A numpy array [R].
    """
    if test is None:
        return np.full(w.shape[1], np.nan)
    parts = [_error_sum(scores(w, block.x), block, target) for block in test.blocks()]
    figure = to_numpy(sum(parts[1:], start=parts[0])) / len(test.x)
    return (target.high - target.low) * np.sqrt(figure) if isinstance(target, Range) else figure


def _error_sum(predicted: Array, block: Shard, target: Target) -> Array:
    """Return the sum over the records, for every run, of squared errors or mistakes."""
    if isinstance(target, Range):
        squares: Array = ((predicted - block.y[:, None, :]) ** 2).mean(axis=2).sum(axis=0)
        return squares
    return mistakes(predicted, block)


def mistakes(predicted: Array, test: Shard) -> Array:
    """Return how many records each run misclassifies, from scores [n, R, K], in the scores' array library."""
    wrong: Array = (predicted.argmax(axis=-1) != test.y.argmax(axis=-1)[:, None]).sum(axis=0)
    return wrong
