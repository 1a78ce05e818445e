"""The result in two sentences that need no knowledge of the field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from taciturn.reporting.curves import run_label
from taciturn.reporting.tables import by_label, format_error


def result_sentences(summary: Mapping[str, Any]) -> tuple[str, str]:
    """What was trained and how well it does, and what it is compared with."""
    data, groups = summary["data"], by_label(summary["runs"])
    central = summary["privacy"]["central"]
    label, first = _headline(groups, central)
    declared = " (as declared)" if is_declared(data) else ""
    parties = f"{len(data['agents'])} parties with {data['records']:,} records in all{declared}"
    curated = first[0]["algorithm"] in central
    how = "by giving all records to one curator" if curated else "without showing each other a record"
    if first[0]["test_error"] is None:
        return (
            f"{parties} trained one model together in {_rounds(first[0])} {how}.",
            "How well it does on held-out records is for the owner's eyes: it is in the folder local-only."
            if first[0].get("private_test")
            else "There was no test set, so how well it does on new records is not known.",
        )
    seeds = len(first)
    label += f" (mean of {seeds} seeds)" if seeds > 1 else ""
    opening = f"{parties} trained one model together {how}; it {_quality(first)}."
    others = [f"{_average(group)} {_how(group[0], first[0])}" for group in groups.values() if group is not first]
    if not others:
        tested = f"{data['test_records']:,} records that no party trained on"
        return opening, f"This is {label} after {_rounds(first[0])}, on {tested}."
    return opening, f"That is {label}, an error of {_average(first)}; on the same records it is {'; '.join(others)}."


def is_declared(data: Mapping[str, Any]) -> bool:
    """Whether the number of records is the one that was declared, not one that was counted."""
    return "declared" in data and not data["declared"]["published"] and None in data["agents"].values()


def _headline(
    groups: Mapping[str, Sequence[Mapping[str, Any]]], central: Sequence[str]
) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """The setting the first sentence is about: the best one with noise, or the best one where none has any.

    A reference with a curator is not what the parties can do, and stands first only where it stands alone.
    """
    own = {label: group for label, group in groups.items() if group[0]["algorithm"] not in central} or groups
    noisy = {label: group for label, group in own.items() if float(group[0]["epsilon"]) < math.inf} or own
    return min(noisy.items(), key=lambda item: fmean(entry["test_error"] or 0.0 for entry in item[1]))


def _rounds(entry: Mapping[str, Any]) -> str:
    return f"{entry['rounds']} round{'s' * (entry['rounds'] > 1)}"


def _how(entry: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """How a run differs from the first one."""
    if entry["algorithm"] == first["algorithm"] and float(entry["epsilon"]) == math.inf:
        return "without any noise"
    return f"with {run_label(entry['algorithm'], entry['epsilon'])}"


def _average(group: Sequence[Mapping[str, Any]]) -> str:
    return format_error({**group[0], "test_error": fmean(entry["test_error"] for entry in group)})


def _quality(group: Sequence[Mapping[str, Any]]) -> str:
    error = fmean(entry["test_error"] for entry in group)
    if "rmse" in group[0]["quality"]:
        return f"is typically off by {error:.3g} in the label's unit on new records"
    return f"names the right class for {100.0 * (1.0 - error):.1f} of 100 new records"
