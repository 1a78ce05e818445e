"""The result of a run in two sentences that need no knowledge of the field."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from taciturn.reporting.curves import by_label, run_label
from taciturn.reporting.evaluation_tables import estimate_words, main_estimate
from taciturn.reporting.tables import format_share, mean_error
from taciturn.runs.quality import RegressionQuality
from taciturn.runs.records import RunResult, RunSummary


def result_sentences(summary: RunSummary) -> tuple[str, str]:
    """Return what was trained and how good it is, and what it is compared with.

    Parameters
    ----------
    summary
        The summary of a run; one without the owner's figures gives sentences that may be published.
    """
    data, groups, central = summary.data, by_label(summary.runs), summary.privacy.central
    label, shown = _main_group(groups, central)
    first = shown[0]
    declared = " (as declared)" if data.is_declared else ""
    parties = f"{len(data.agents)} parties with {data.records:,} records in all{declared}"
    how = "without showing each other a record"
    if first.algorithm in central:
        how = "by giving all records to one curator"
    error = mean_error(shown)
    if error is None:
        unknown = "There was no test set, so how well it does on new records is not known."
        if first.private_quality is not None and main_estimate(first.private_quality) is not None:
            records, words = first.private_quality.records.value, estimate_words(first.private_quality)
            unknown = (
                f"Measured with noise on about {records:,.0f} held-out records, its error is {words} ({label}; ± is "
                "the standard error of noise and sampling)."
            )
        elif first.private_test:
            does = "it does" if len(summary.runs) == 1 else "they do"
            unknown = f"How well {does} on held-out records is in the folder local-only, for the owner of the records."
        return f"{parties} trained {_models(summary.runs)} together {_all_rounds(summary.runs, first)} {how}.", unknown
    if len(shown) > 1:
        label += f" (mean of {len(shown)} seeds)"
    subject = "it" if len(summary.runs) == 1 else "on average one"
    if len(groups) > 1:
        subject = "the best with noise" if math.isfinite(first.epsilon) else "the best"
    opening = f"{parties} trained {_models(summary.runs)} together {how}; {subject} {_quality(first, error)}."
    others = [_comparison(group, first) for group in groups.values() if group is not shown]
    if not others:
        tested = f"{data.test_records:,} records that no party trained on"
        return opening, f"This is {label} after {_rounds(first)}, on {tested}."
    shares = f"an error of {_error_words(shown)}; on the same records it is {'; '.join(others)}"
    return opening, f"That is {label}, {shares}."


def _main_group(groups: Mapping[str, Sequence[RunResult]], central: Collection[str]) -> tuple[str, Sequence[RunResult]]:
    """Return the setting of the first sentence: the best with noise, or the best where none has noise.

    A reference with a curator is not what the parties can do, and is chosen only where there is nothing else.
    """
    federated = {label: group for label, group in groups.items() if group[0].algorithm not in central} or groups
    noisy = {label: group for label, group in federated.items() if math.isfinite(group[0].epsilon)} or federated
    return min(noisy.items(), key=lambda item: mean_error(item[1]) or 0.0)


def _models(runs: Sequence[RunResult]) -> str:
    return "one model" if len(runs) == 1 else f"{len(runs)} models"


def _all_rounds(runs: Sequence[RunResult], first: RunResult) -> str:
    """Return how many rounds the models took, with those of other methods where they differ."""
    if len(runs) == 1:
        return f"in {_rounds(first)}"
    others = {entry.algorithm: _rounds(entry) for entry in runs if entry.rounds != first.rounds}
    differing = f" ({', '.join(f'{name} in {rounds}' for name, rounds in others.items())})" if others else ""
    return f"in {_rounds(first)} each{differing}"


def _rounds(entry: RunResult) -> str:
    return f"{entry.rounds} round{'s' * (entry.rounds > 1)}"


def _error_words(group: Sequence[RunResult]) -> str:
    error = mean_error(group)
    return "not known" if error is None else format_share(error, isinstance(group[0].quality, RegressionQuality))


def _comparison(group: Sequence[RunResult], first: RunResult) -> str:
    entry = group[0]
    if entry.algorithm == first.algorithm and math.isinf(entry.epsilon):
        return f"{_error_words(group)} without any noise"
    return f"{_error_words(group)} with {run_label(entry.algorithm, entry.epsilon)}"


def _quality(entry: RunResult, error: float) -> str:
    quality = entry.quality
    if isinstance(quality, RegressionQuality):
        baseline = "" if quality.baseline is None else f" (predicting their mean, by {quality.baseline.rmse:.3g})"
        return f"is typically off by {error:.3g} in the label's unit on new records{baseline}"
    baseline = ""
    if quality is not None and quality.baseline is not None:
        baseline = f" (always predicting the most frequent class, for {100.0 * (1.0 - quality.baseline.error):.1f})"
    return f"predicts the right class for {100.0 * (1.0 - error):.1f} of 100 new records{baseline}"
