"""The quality of a model as rows of text, for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from taciturn.runs.json_record import Record
from taciturn.runs.quality import (
    ClassificationQuality,
    ClassificationScores,
    Quality,
    RegressionScores,
)

CONFUSION_LIMIT = 20  # classes; a larger confusion matrix is not shown
LEVEL_WORDS = "95 % interval"
NONE = "–"


class TextTable(NamedTuple):
    """Headings, and rows with a cell for each; the first column holds text, the others numbers."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    diagonal: int | None = None  # the column of the first row's cell on the diagonal of a confusion matrix


class _Measure(NamedTuple):
    name: str  # of the field
    words: str
    write: Callable[[float], str]


def _percent(value: float) -> str:
    return f"{100.0 * value:.2f} %"


def _tenth(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _decimal(value: float) -> str:
    return f"{value:.3f}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


ERROR = _Measure("error", "error", _percent)
LOG_LOSS = _Measure("log_loss", "log loss", _decimal)
BRIER = _Measure("brier", "Brier score", _decimal)
CALIBRATION = _Measure("calibration_error", "calibration error", _percent)
AUROC = _Measure("auroc", "AUROC", _decimal)
PRECISION, RECALL = _Measure("precision", "precision", _tenth), _Measure("recall", "recall", _tenth)
SPECIFICITY = _Measure("specificity", "specificity", _tenth)
F1 = _Measure("f1", "F1", _decimal)
RMSE, MAE = _Measure("rmse", "RMSE", _digits), _Measure("mae", "MAE", _digits)
R2 = _Measure("r2", "R²", _decimal)


def _measures(quality: Quality) -> tuple[_Measure, ...]:
    if not isinstance(quality, ClassificationQuality):
        return RMSE, MAE, R2
    whose = quality.positive or "mean of classes"
    of_class = (one._replace(words=f"{one.words}, {whose}") for one in (PRECISION, RECALL, F1))
    return ERROR, LOG_LOSS, BRIER, CALIBRATION, AUROC, *of_class


def _value(scores: Record, measure: _Measure) -> str:
    value: float | None = getattr(scores, measure.name)
    return NONE if value is None else measure.write(value)


def _interval(scores: ClassificationScores | RegressionScores, measure: _Measure) -> str:
    found = (scores.intervals or {}).get(measure.name)
    if found is None:
        return ""
    low, high = map(measure.write, found)
    return f"{low.removesuffix(' %')} to {high}"


def quality_table(quality: Quality) -> TextTable:
    """Return a row for each measure: the model, its interval, and the baseline on the same records."""
    rows = []
    for measure in _measures(quality):
        value = _value(quality, measure)
        if value != NONE:
            other = "" if quality.baseline is None else _value(quality.baseline, measure)
            rows.append((measure.words, value, _interval(quality, measure), other))
    return TextTable(("", "model", LEVEL_WORDS, "baseline"), rows)


def baseline_words(quality: Quality) -> str:
    """Return what the baseline and the calibration error mean, in a sentence or two."""
    if not isinstance(quality, ClassificationQuality):
        return "The baseline predicts the mean label of the same records for each of them."
    words = "The baseline predicts the class frequencies of the same records for each of them."
    if quality.calibration_by_chance is not None:
        chance = _percent(quality.calibration_by_chance)
        words += f" A perfectly calibrated model would show a calibration error of about {chance} on these records."
    return words


def class_table(quality: ClassificationQuality) -> TextTable:
    """Return a row for each true class: precision, recall, F1 and, for few classes, the confusion matrix."""
    classes = quality.classes or {}
    names = tuple(classes) if len(classes) <= CONFUSION_LIMIT else ()
    rows = []
    for (name, scores), counts in zip(classes.items(), quality.confusion, strict=False):
        cells = (_value(scores, measure) for measure in (PRECISION, RECALL, F1))
        rows.append((name, *cells, *(f"{count:,}" for count in (counts if names else ()))))
    headings = ("true class", "precision", "recall", "F1")
    return TextTable((*headings, *names), rows, diagonal=len(headings) if names else None)


def threshold_table(quality: ClassificationQuality) -> TextTable:
    """Return a row for each threshold on the probability of the positive class; none without probabilities."""
    rows = [
        (f"{row.threshold:g}", f"{row.flagged:,}", *(_value(row, m) for m in (PRECISION, RECALL, SPECIFICITY, F1)))
        for row in quality.thresholds or ()
    ]
    return TextTable(("threshold", "flagged", "precision", "recall", "specificity", "F1"), rows)


def reliability_table(quality: ClassificationQuality) -> TextTable:
    """Return a row for each bin of probabilities that has records; none without probabilities."""
    rows = [
        (
            f"{100 * row.low:.0f} to {100 * row.high:.0f} %",
            f"{row.records:,}",
            _tenth(row.predicted or 0.0),
            _tenth(row.observed or 0.0),
            f"{100 * row.interval[0]:.1f} to {_tenth(row.interval[1])}",
        )
        for row in quality.reliability or ()
        if row.interval is not None
    ]
    return TextTable(("probability", "records", "predicted", "observed", LEVEL_WORDS), rows)


def party_table(quality: Quality) -> TextTable:
    """Return a row for each party with records; none if nothing says whose the records are."""
    parties: Mapping[str, ClassificationScores | RegressionScores] = quality.parties or {}
    first, *others = (
        (ERROR, LOG_LOSS, BRIER, AUROC, F1) if isinstance(quality, ClassificationQuality) else (RMSE, MAE, R2)
    )
    rows = [
        (name, f"{own.records:,}", _value(own, first), _interval(own, first), *(_value(own, one) for one in others))
        for name, own in parties.items()
    ]
    words = tuple(one.words.removesuffix(" score") for one in others)
    return TextTable(("party", "records", first.words, LEVEL_WORDS, *words), rows)


def drawn_probability(quality: ClassificationQuality) -> str:
    """Return which probability a reliability diagram is about."""
    return f"probability of {quality.positive}" if quality.positive else "probability of the predicted class"


def shown_tables(quality: Quality) -> Sequence[tuple[str, TextTable]]:
    """Return the tables that have rows, in the order in which they are shown, with a line on each."""
    tables = [(f"{quality.records:,} records", quality_table(quality))]
    if isinstance(quality, ClassificationQuality):
        chosen = "" if quality.threshold is None else f", which is predicted from {quality.threshold:g}"
        about = "Rows are true classes; the last columns count what was predicted."
        tables += [
            (about if len(quality.confusion) <= CONFUSION_LIMIT else "Rows are true classes.", class_table(quality)),
            (f"Thresholds on the probability of {quality.positive}{chosen}", threshold_table(quality)),
            (f"Reliability: {drawn_probability(quality)}, and how often it came true", reliability_table(quality)),
        ]
    tables.append(("Each party's records", party_table(quality)))
    return [(words, table) for words, table in tables if table.rows]
