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
            unknown = "How well it does on held-out records is in the folder local-only, for the owner of the records."
        return f"{parties} trained one model together in {_rounds(first)} {how}.", unknown
    if len(shown) > 1:
        label += f" (mean of {len(shown)} seeds)"
    opening = f"{parties} trained one model together {how}; it {_quality(first, error)}."
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
    if isinstance(entry.quality, RegressionQuality):
        return f"is typically off by {error:.3g} in the label's unit on new records"
    return f"predicts the right class for {100.0 * (1.0 - error):.1f} of 100 new records"
