"""Results as rows of text, for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.views.curves import run_label

HEADINGS = ("run", "seed", "test error", "objective", "residual", "noise", "rounds", "seconds", "sent up")


def format_error(entry: Mapping[str, Any]) -> str:
    """A test error as people read it: percent for classes, the label's unit for numbers."""
    error = entry["test_error"]
    if error is None:
        return "no test set"
    return f"{error:.4g}" if "rmse" in entry.get("quality", {}) else f"{100.0 * error:.2f} %"


def format_bytes(count: float) -> str:
    """A number of bytes with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def result_rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One row for each run, under HEADINGS."""
    return [
        (
            run_label(entry["algorithm"], entry["epsilon"]),
            str(entry["seed"]),
            format_error(entry),
            f"{entry['train_objective']:.4f}",
            f"{entry['consensus_residual']:.3g}",
            f"{entry['noise']:.3g}",
            str(entry["rounds"]),
            f"{entry['seconds']:.1f}",
            format_bytes(entry["bytes_up"]),
        )
        for entry in runs
    ]
