"""Quality of a model on labelled records: typed results, and `measure_quality`, which makes them.

Every set of measures comes with 95 % intervals (`taciturn.objectives.confidence` says how they are computed) and beside
a baseline: the model that always predicts the class frequencies, or the mean label, of the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.errors import InputError, shown, unknown_name
from taciturn.objectives.confidence import (
    Bounds,
    auroc_bounds,
    average_bounds,
    f1_bounds,
    mean_bounds,
    r2_bounds,
    root_mean_bounds,
    share_bounds,
)
from taciturn.objectives.losses import Loss
from taciturn.objectives.metrics import Reliability, auroc, brier_scores, confusion_matrix, log_losses, reliability
from taciturn.runs.json_record import Record
from taciturn.types import Array, Classes, Range, Target

DIGITS = 12  # behind the point, of an error of calibration that is computed from sums
THRESHOLDS = tuple(i / 10 for i in range(1, 10))
Parties: TypeAlias = Mapping[str, NDArray[np.intp]]  # the rows of each party by its name
Index: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class ClassificationScores(Record):
    """The measures of a classifier on one set of records. A measure that is not defined there is None.

    `precision`, `recall`, `f1` are those of the positive class; with more than two classes they, and `auroc`, are means
    over the classes that have records. `intervals` holds the ends of the 95 % intervals by the measure's name.
    """

    records: int
    error: float  # share of wrong classes
    log_loss: float | None  # None, as the next two: the loss has no probabilities
    brier: float | None = None  # two classes: mean (h - y)^2 of the positive class; more: summed over classes
    calibration_error: float | None = None  # expected calibration error, ten bins of equal width
    auroc: float | None  # None: all records are of one class
    precision: float | None = None  # of what was predicted to be the class, the share that is; None: never predicted
    recall: float | None = None  # of the class, the share that was predicted to be; None: no such record
    f1: float | None = None  # harmonic mean of the two
    intervals: Mapping[str, tuple[float, ...]] | None = None


@dataclass(frozen=True, kw_only=True)
class ClassScores(Record):
    """How well one class is distinguished from the others."""

    records: int
    precision: float | None
    recall: float | None
    f1: float | None
    intervals: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class ThresholdScores(Record):
    """What happens if the positive class is predicted wherever its probability reaches a threshold."""

    threshold: float
    flagged: int  # records predicted to be positive
    precision: float | None
    recall: float | None
    specificity: float | None  # recall of the other class
    f1: float | None


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin(Record):
    """The records whose predicted probability is in (low, high], and what happened to them."""

    low: float
    high: float
    records: int
    predicted: float | None  # mean probability; None, as the next two: no records
    observed: float | None  # share for which it came true
    interval: tuple[float, ...] | None  # of the observed share


@dataclass(frozen=True, kw_only=True)
class ClassificationQuality(ClassificationScores):
    """Quality of a classifier on labelled records."""

    confusion: tuple[tuple[int, ...], ...]  # rows: true class, columns: predicted class
    positive: str | None = None  # the positive class, with two classes
    threshold: float | None = None  # from which the positive class is predicted; None: the likelier class is
    classes: Mapping[str, ClassScores] | None = None
    thresholds: tuple[ThresholdScores, ...] | None = None  # with two classes and probabilities
    calibration_by_chance: float | None = None  # calibration error of a perfectly calibrated model on as many records
    reliability: tuple[ReliabilityBin, ...] | None = None  # of the positive or, with several, the predicted class
    baseline: ClassificationScores | None = None
    parties: Mapping[str, ClassificationScores] | None = None


@dataclass(frozen=True, kw_only=True)
class RegressionScores(Record):
    """The measures of a regression on one set of records, in the label's unit."""

    records: int
    rmse: float  # root mean squared error
    mae: float | None = None  # mean absolute error
    r2: float | None  # None: all labels are equal
    intervals: Mapping[str, tuple[float, ...]] | None = None


@dataclass(frozen=True, kw_only=True)
class RegressionQuality(RegressionScores):
    """Quality of a regression on labelled records."""

    baseline: RegressionScores | None = None
    parties: Mapping[str, RegressionScores] | None = None


Quality: TypeAlias = ClassificationQuality | RegressionQuality


def measure_quality(
    scores: Array,
    y: Array,
    target: Target,
    loss: Loss,
    *,
    parties: Parties | None = None,
    threshold: float | None = None,
    positive: str | int | None = None,
) -> Quality:
    """Return the quality of predictions.

    Parameters
    ----------
    scores, y
        Scores and labels of the records, [n, K], with n at least 1.
    target
        What the label is.
    loss
        The model's loss, which decides whether there are probabilities.
    parties
        The rows of each party, to measure each of them too.
    threshold
        Predict the positive class where its probability is at least this; None: predict the likeliest class.
    positive
        The positive class of two, by name or as a frame has it (1, True); None: the second.

    Raises
    ------
    InputError
        If a threshold or a positive class is given that the model cannot have.
    """
    scores, y = np.asarray(scores, np.float64), np.asarray(y, np.float64)
    parties = {name: rows for name, rows in (parties or {}).items() if len(rows)}
    if isinstance(target, Range):
        if threshold is not None or positive is not None:
            raise InputError("the label is a number: a threshold and a positive class are for classes; remove them")
        return _regression(scores[:, 0], y[:, 0], target, parties)
    index = _positive(target, positive)
    probabilities = loss.probabilities(scores)
    found = _Predictions(y.argmax(axis=1), scores.argmax(axis=1), probabilities, scores)
    if threshold is not None:
        if not isinstance(threshold, int | float | np.number) or not 0.0 <= threshold <= 1.0:
            raise InputError(f"threshold is {shown(threshold)}: it must be a number from 0 to 1")
        if probabilities is None or target.width != 2:
            raise InputError(
                f"threshold is {threshold:g}, but it needs two classes and a loss with probabilities (softmax)"
            )
        found = found._replace(predicted=np.where(probabilities[:, index] >= threshold, index, 1 - index))
    return _classification(found, target, index, threshold, parties)


def _positive(target: Classes, given: str | int | None) -> int:
    """Return the position of a class, which may be given as a frame has it: 1 for "1", True for "true"."""
    if given is None:
        return 1
    if not isinstance(given, str | int | np.integer | np.bool_):
        raise InputError(f"the positive class is {shown(given)}: it must be one of {', '.join(target.names)}")
    name = str(given)
    if target.width != 2:
        raise InputError(f"the positive class is {shown(name)}, but there are {target.width} classes: it needs two")
    own = {n.lower(): n for n in target.names}.get(name.lower(), name) if isinstance(given, bool | np.bool_) else name
    if own not in target.names:
        raise unknown_name("class", own, target.names)
    return target.names.index(own)


class _Predictions(NamedTuple):
    """The predictions of a classifier for n records."""

    labels: Index  # [n]
    predicted: Index  # [n]
    probabilities: Array | None  # [n, K]
    scores: Array  # [n, K]

    def take(self, rows: Index) -> _Predictions:
        own = None if self.probabilities is None else self.probabilities[rows]
        return _Predictions(self.labels[rows], self.predicted[rows], own, self.scores[rows])

    def baseline(self) -> _Predictions:
        """Return what the class frequencies of the same records predict for each of them."""
        shares = np.bincount(self.labels, minlength=self.scores.shape[1]) / len(self.labels)
        same = np.broadcast_to(shares, self.scores.shape)
        return _Predictions(self.labels, same.argmax(axis=1), None if self.probabilities is None else same, same)

    def reliability(self, positive: int) -> Reliability | None:
        """Compare the probability of the positive class or, of several, the predicted class, with what is true."""
        if self.probabilities is None:
            return None
        if self.scores.shape[1] == 2:
            return reliability(self.probabilities[:, positive], self.labels == positive)
        likeliest = self.probabilities.argmax(axis=1)
        return reliability(self.probabilities.max(axis=1), self.labels == likeliest)

    def ranking(self, k: int) -> Array:
        """Return what ranks the records by class k: more exact than a probability near 0 or 1, with two classes."""
        if self.scores.shape[1] == 2:
            return self.scores[:, k] - self.scores[:, 1 - k]
        return (self.scores if self.probabilities is None else self.probabilities)[:, k]


def _classification(
    found: _Predictions, target: Classes, positive: int, threshold: float | None, parties: Parties
) -> ClassificationQuality:
    confusion = confusion_matrix(found.labels, found.predicted, target.width)
    bins, two = found.reliability(positive), target.width == 2
    return ClassificationQuality(
        **vars(_scores(found, positive)),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        positive=target.names[positive] if two else None,
        threshold=threshold,
        classes={name: _class_scores(confusion, k) for k, name in enumerate(target.names)},
        thresholds=_thresholds(found, positive, threshold) if two else None,
        calibration_by_chance=None if bins is None else bins.error_by_chance,
        reliability=None if bins is None else tuple(_bins(bins)),
        baseline=_scores(found.baseline(), positive),
        parties={name: _scores(found.take(rows), positive) for name, rows in parties.items()} or None,
    )


def _scores(found: _Predictions, positive: int) -> ClassificationScores:
    """Return the measures of one set of records."""
    n, width = found.scores.shape
    confusion = confusion_matrix(found.labels, found.predicted, width)
    wrong, counts = n - int(np.trace(confusion)), confusion.sum(axis=1)
    shown = [positive] if width == 2 else np.flatnonzero(counts).tolist()
    classes = [_class_scores(confusion, k) for k in shown]
    area, area_bounds = _mean_auroc(found, shown)
    chances, bins = found.probabilities, found.reliability(positive)
    losses, briers = (None, None) if chances is None else (f(chances, found.labels) for f in (log_losses, brier_scores))
    averages = {name: _mean_over(classes, name) for name in ("precision", "recall", "f1")}
    return ClassificationScores(
        records=n,
        error=wrong / n,
        log_loss=None if losses is None else float(losses.mean()),
        brier=None if briers is None else float(briers.mean()),
        calibration_error=None if bins is None else round(bins.error, DIGITS),
        auroc=area,
        **{name: value for name, (value, _) in averages.items()},
        intervals=_known(
            error=share_bounds(wrong, n),
            log_loss=None if losses is None else mean_bounds(losses),
            brier=None if briers is None else mean_bounds(briers, most=1.0 if width == 2 else 2.0),
            auroc=area_bounds,
            **{name: bounds for name, (_, bounds) in averages.items()},
        ),
    )


def _known(**bounds: Bounds | None) -> dict[str, tuple[float, ...]]:
    return {name: tuple(found) for name, found in bounds.items() if found is not None}


def _mean_auroc(found: _Predictions, classes: Sequence[int]) -> tuple[float | None, Bounds | None]:
    """Return the mean of the classes' AUROC against the rest, and that of their intervals."""
    areas, bounds = [], []
    for k in classes:
        own = found.labels == k
        area = auroc(found.ranking(k), own)
        if area is not None:
            positives = int(own.sum())
            areas.append(area)
            bounds.append(auroc_bounds(area, positives, len(own) - positives))
    return (fmean(areas), average_bounds(areas, bounds, independent=False)) if areas else (None, None)


def _mean_over(classes: Sequence[ClassScores], name: str) -> tuple[float | None, Bounds | None]:
    """Return the mean of a measure over classes, and its interval; of several, one never predicted counts as 0."""
    found: list[float | None] = [getattr(one, name) for one in classes]
    if found == [None]:
        return None, None
    values = [value or 0.0 for value in found]
    bounds = [Bounds(*one.intervals.get(name, (0.0, 1.0))) for one in classes]
    return fmean(values), average_bounds(values, bounds, independent=name != "f1")


def _class_scores(confusion: NDArray[np.intp], k: int) -> ClassScores:
    """Return the measures of class k against the rest."""
    hits, own, said = int(confusion[k, k]), int(confusion[k].sum()), int(confusion[:, k].sum())
    return ClassScores(
        records=own,
        precision=_share(hits, said),
        recall=_share(hits, own),
        f1=_share(2 * hits, own + said),
        intervals=_known(
            precision=share_bounds(hits, said),
            recall=share_bounds(hits, own),
            f1=f1_bounds(hits, own + said - 2 * hits),
        ),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _thresholds(found: _Predictions, positive: int, chosen: float | None) -> tuple[ThresholdScores, ...] | None:
    if found.probabilities is None:
        return None
    chance, own = found.probabilities[:, positive], found.labels == positive
    values = sorted({*THRESHOLDS, *([] if chosen is None else [chosen])})
    return tuple(_at_threshold(value, chance >= value, own) for value in values)


def _at_threshold(threshold: float, flagged: NDArray[np.bool_], own: NDArray[np.bool_]) -> ThresholdScores:
    hits, said, positives = (int(rows.sum()) for rows in (flagged & own, flagged, own))
    others = len(own) - positives
    return ThresholdScores(
        threshold=threshold,
        flagged=said,
        precision=_share(hits, said),
        recall=_share(hits, positives),
        specificity=_share(others - (said - hits), others),
        f1=_share(2 * hits, said + positives),
    )


def _bins(found: Reliability) -> Iterable[ReliabilityBin]:
    edges = [m / len(found.records) for m in range(len(found.records) + 1)]  # 0.3 is 0.3, as in no sum of steps
    for m, (records, observed) in enumerate(zip(found.records.tolist(), found.observed.tolist(), strict=True)):
        bounds = share_bounds(observed, records)
        yield ReliabilityBin(
            low=edges[m],
            high=edges[m + 1],
            records=records,
            predicted=float(found.predicted[m]) if records else None,
            observed=_share(observed, records),
            interval=None if bounds is None else tuple(bounds),
        )


def _regression(predicted: Array, y: Array, target: Range, parties: Parties) -> RegressionQuality:
    labels = target.predicted(y)
    errors = target.predicted(predicted) - labels
    return RegressionQuality(
        **vars(_number_scores(errors, labels)),
        baseline=_number_scores(labels.mean() - labels, labels),
        parties={name: _number_scores(errors[rows], labels[rows]) for name, rows in parties.items()} or None,
    )


def _number_scores(errors: Array, labels: Array) -> RegressionScores:
    squares, sizes, deviations = errors**2, np.abs(errors), (labels - labels.mean()) ** 2
    varied = bool(np.ptp(labels) > 0.0)
    return RegressionScores(
        records=len(errors),
        rmse=float(np.sqrt(squares.mean())),
        mae=float(sizes.mean()),
        r2=float(1.0 - squares.mean() / deviations.mean()) if varied else None,
        intervals=_known(
            rmse=root_mean_bounds(squares),
            mae=mean_bounds(sizes),
            r2=r2_bounds(squares, deviations) if varied else None,
        ),
    )
