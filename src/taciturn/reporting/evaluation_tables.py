"""Private evaluations as rows of text and in sentences, for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taciturn.reporting.curves import first_of_labels, run_label
from taciturn.reporting.quality_tables import (
    AUROC,
    CALIBRATION,
    CONFUSION_LIMIT,
    ERROR,
    LOG_LOSS,
    MAE,
    NONE,
    R2,
    RMSE,
    TextTable,
)
from taciturn.runs.private_quality import Estimate, PrivateClassification, PrivateQuality
from taciturn.runs.records import EvaluationRow

REACH = 1.96  # standard errors on either side: 95 %
HEADINGS = ("", "estimate", "± noise", "± sampling", "baseline")
ABOUT = (
    "Measured on records that were held out by a public rule and never train, from sums with noise. The two ± are "
    "standard errors, from the noise and from sampling the records; to combine them, add their squares."
)


def evaluation_table(quality: PrivateQuality) -> TextTable:
    """Return a row for each measure: the estimate, its two standard errors, and the baseline."""
    if isinstance(quality, PrivateClassification):
        measures = [
            (ERROR, quality.error, quality.baseline_error),
            (LOG_LOSS, quality.log_loss, quality.baseline_log_loss),
            (AUROC, quality.auroc, None),
            (CALIBRATION, quality.calibration_error, None),
        ]
    else:
        measures = [(RMSE, quality.rmse, quality.baseline_rmse), (MAE, quality.mae, None), (R2, quality.r2, None)]
    records = quality.records
    rows = [("held-out records", f"{records.value:,.0f}", f"{records.noise:,.0f}", "", "")]
    for measure, found, baseline in measures:
        if found is not None:
            other = "" if baseline is None else measure.write(baseline.value)
            rows.append((measure.words, *_written(found, measure.write), other))
    return TextTable(HEADINGS, rows)


def _written(found: Estimate, write: Callable[[float], str]) -> tuple[str, str, str]:
    sampling = "" if found.sampling is None else write(found.sampling)
    return write(found.value), write(found.noise), sampling


def confusion_table(quality: PrivateQuality, names: Sequence[str]) -> TextTable | None:
    """Return the noisy confusion matrix, with the true classes as rows; None for numbers and for many classes."""
    if not isinstance(quality, PrivateClassification) or quality.confusion is None:
        return None
    if len(names) != len(quality.confusion) or len(names) > CONFUSION_LIMIT:
        return None
    rows = [
        (name, *(f"{count:,.0f}" for count in counts)) for name, counts in zip(names, quality.confusion, strict=True)
    ]
    return TextTable(("true class", *names), rows, diagonal=1)


def reliability_table(quality: PrivateQuality) -> TextTable | None:
    """Return a row for each bin of probabilities with enough records; None if there are none."""
    bins = (quality.reliability or ()) if isinstance(quality, PrivateClassification) else ()
    rows = [
        (
            f"{100 * one.low:.0f} to {100 * one.high:.0f} %",
            f"{one.records:,.0f}",
            f"{100 * one.observed.value:.1f} %",
            f"{100 * one.observed.noise:.1f} %",
            f"{100 * (one.observed.sampling or 0.0):.1f} %",
        )
        for one in bins
        if one.observed is not None
    ]
    return TextTable(("probability", "records", "came true", "± noise", "± sampling"), rows) if rows else None


def main_estimate(quality: PrivateQuality | None) -> Estimate | None:
    """Return the error of a classifier or the RMSE of a regression, if it is known."""
    if quality is None:
        return None
    return quality.error if isinstance(quality, PrivateClassification) else quality.rmse


def evaluation_points(rows: Sequence[EvaluationRow]) -> dict[str, list[tuple[int, Estimate]]]:
    """Return round and main estimate of every evaluation of the first seed of each setting, by its label."""
    first: dict[str, int] = {}
    found: dict[str, list[tuple[int, Estimate]]] = {}
    for row in rows:
        label, estimate = run_label(row.algorithm, row.epsilon), main_estimate(row.quality)
        if first.setdefault(label, row.run) == row.run and estimate is not None:
            found.setdefault(label, []).append((row.round, estimate))
    return found


def last_evaluations(rows: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Return the last evaluation that measured something, of the first seed of each setting."""
    last = {row.run: row for row in rows if row.quality is not None}
    return first_of_labels(last[run] for run in sorted(last))


def estimate_words(quality: PrivateQuality) -> str:
    """Return the main measure with the standard error of noise and sampling together.

    >>> found = Estimate(value=0.05, noise=0.003, sampling=0.004)
    >>> estimate_words(PrivateClassification(records=Estimate(value=1e4, noise=7.0), error=found))
    '5.00 ± 0.50 %'
    """
    found = main_estimate(quality)
    if found is None:
        return NONE
    if isinstance(quality, PrivateClassification):
        return f"{100.0 * found.value:.2f} ± {100.0 * found.error:.2f} %"
    return f"{RMSE.write(found.value)} ± {RMSE.write(found.error)} RMSE"


def evaluation_sentence(row: EvaluationRow) -> str:
    """Return what an evaluation found, in one sentence."""
    place = f"after round {row.round}"
    if row.quality is None:
        return f"The model {place} was not evaluated: the sum of the measures was lost, and no other was paid for."
    records = row.quality.records
    about = f"about {max(0.0, records.value):,.0f} held-out records (± {records.noise:,.0f}) of {row.agents} agents"
    found = main_estimate(row.quality)
    if found is None:
        return f"There are too few held-out records to say how good the model {place} is: {about}."
    what = "error" if isinstance(row.quality, PrivateClassification) else "root mean squared error"
    words = estimate_words(row.quality).removesuffix(" RMSE")
    return f"The {what} of the model {place} is {words} on {about}; ± is the standard error of noise and sampling."
