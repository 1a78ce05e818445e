"""Quality of predictions on labelled records: measures of one run, and test errors of a batch of runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import to_numpy
from taciturn.objectives.passes import scores
from taciturn.types import Array, Range, Shard, Target

BINS = 10  # of a reliability diagram


def log_losses(probabilities: Array, labels: NDArray[np.intp]) -> Array:
    """Return -ln h_y of every record, [n], from probabilities h [n, K] and classes y [n].

    A probability of 0 counts as the smallest positive double, so every loss is finite.
    """
    own = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    losses: Array = -np.log(np.maximum(own, np.finfo(np.float64).tiny))
    return losses


def brier_scores(probabilities: Array, labels: NDArray[np.intp]) -> Array:
    """Return the Brier score of every record, [n]: the squared distance of its probabilities [n, K] from its class.

    For two classes it is half of that, (h_1 - y_1)^2, as is usual.

    Examples
    --------
    >>> brier_scores(np.array([[0.8, 0.2], [0.5, 0.5]]), np.array([1, 1])).round(2).tolist()
    [0.64, 0.25]
    """
    classes = probabilities.shape[1]
    squares: Array = ((probabilities - np.eye(classes)[labels]) ** 2).sum(axis=1)
    return squares / 2.0 if classes == 2 else squares


class Reliability(NamedTuple):
    """Predicted and observed shares in M bins of equal width over the predicted probability."""

    records: NDArray[np.intp]  # [M]
    predicted: Array  # [M]  mean probability; NaN in an empty bin
    observed: NDArray[np.intp]  # [M]  records for which it came true
    error: float  # expected calibration error: mean over the records of |predicted - observed share| of their bin
    error_by_chance: float  # what a perfectly calibrated model shows on as many records, about


def reliability(probability: Array, came_true: NDArray[np.bool_], bins: int = BINS) -> Reliability:
    """Compare probabilities with what happened, bin by bin.

    Parameters
    ----------
    probability
        The predicted probability of an event, [n].
    came_true
        Whether it happened, [n].
    bins
        M, the number of bins. A probability on the border of two bins is in the lower one.

    Examples
    --------
    >>> found = reliability(np.array([0.1, 0.9, 0.9, 0.9]), np.array([False, True, True, False]), bins=2)
    >>> found.records.tolist(), round(found.error, 3)
    ([1, 3], 0.2)
    """
    place = np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], probability)
    records = np.bincount(place, minlength=bins)
    sums = np.bincount(place, probability, minlength=bins)
    observed = np.bincount(place[came_true], minlength=bins)
    variances = np.bincount(place, probability * (1.0 - probability), minlength=bins)
    return Reliability(
        records=records,
        predicted=np.divide(sums, records, out=np.full(bins, np.nan), where=records > 0),
        observed=observed,
        error=float(np.abs(sums - observed).sum() / len(place)),
        error_by_chance=float(np.sqrt(2.0 / np.pi * variances).sum() / len(place)),  # E|N(0, v)| = sqrt(2 v / pi)
    )


def confusion_matrix(labels: NDArray[np.intp], predicted: NDArray[np.intp], classes: int) -> NDArray[np.intp]:
    """Return how many records of each true class (rows) were predicted as each class (columns), [K, K]."""
    found: NDArray[np.intp] = np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)
    return found


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
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)  # scipy.stats takes a second to import
    ones = np.bincount(place[positive], minlength=len(counts))  # at each score, in increasing order
    zeros = counts - ones
    pairs = int(ones.sum()) * int(zeros.sum())
    return float((ones * (np.cumsum(zeros) - zeros / 2.0)).sum() / pairs) if pairs else None


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
    return np.sqrt(figure) if isinstance(target, Range) else figure


def _error_sum(predicted: Array, block: Shard, target: Target) -> Array:
    """Return the sum over the records, for every run, of squared errors or mistakes."""
    if isinstance(target, Range):
        errors = target.predicted(predicted) - target.predicted(block.y[:, None, :])
        squares: Array = (errors**2).mean(axis=2).sum(axis=0)
        return squares
    return mistakes(predicted, block)


def mistakes(predicted: Array, test: Shard) -> Array:
    """Return how many records each run misclassifies, from scores [n, R, K], in the scores' array library."""
    wrong: Array = (predicted.argmax(axis=-1) != test.y.argmax(axis=-1)[:, None]).sum(axis=0)
    return wrong
