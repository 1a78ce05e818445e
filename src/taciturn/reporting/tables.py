"""Results as rows of text, for the terminal and for pages."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.reporting.curves import run_label

SEED = "seed"
HEADINGS = ("", "run", SEED, "test error", "objective", "residual", "noise", "rounds", "seconds", "sent up")


def rounds_done(entries: Sequence[Mapping[str, Any]]) -> int | None:
    """The fewest rounds of the runs whose number is for the settings to say; None where there is no such run."""
    own = {name for name in ALGORITHMS if ALGORITHMS[name].rounds is not None}
    return min((entry["rounds"] for entry in entries if entry["algorithm"] not in own), default=None)


def format_error(entry: Mapping[str, Any]) -> str:
    """A test error as people read it: percent for classes, the label's unit for numbers."""
    if entry["test_error"] is None:
        return "not public" if entry.get("private_test") else "no test set"
    return format_share(entry["test_error"], "rmse" in entry.get("quality", {}))


def format_share(error: float, regression: bool, sign: str = "") -> str:
    """An error, or a difference of two."""
    return f"{error:{sign}.4g} RMSE" if regression else f"{100.0 * error:{sign}.2f} %"


def format_epsilon(value: float | str | None) -> str:
    """An epsilon as people read it: four digits, the last one rounded upwards."""
    if value is None:
        return "–"
    number = float(value)
    if math.isinf(number) or number <= 0.0:
        return "infinite" if number > 0.0 else "0"
    unit = 10.0 ** min(math.floor(math.log10(number)) - 3, -4)
    unit = max(unit, 1e-300)
    return f"{math.ceil(number / unit - 1e-6) * unit:.12g}"


def format_number(value: float | None, form: str) -> str:
    """A number, or a dash for one that is not public."""
    return "–" if value is None else f"{value:{form}}"


def format_setting(value: Any) -> str:
    """A setting's value as people write it."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(format_setting(item) for item in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_bytes(count: float) -> str:
    """A number of bytes with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str]) -> str:
    """A table for Markdown pages; the columns of these headings are text, the others numbers."""
    rules = ["---" if heading in left else "---:" for heading in headings]
    lines = (headings, rules, *rows)
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |" for cells in lines)


def result_table(
    runs: Sequence[Mapping[str, Any]], shown: Collection[str] = HEADINGS
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings, those of them that are to be shown, and a row for each run; noise without seeds has no such column."""
    there = [i for i, name in enumerate(HEADINGS) if name in shown and (name != SEED or any(SEED in e for e in runs))]
    rows = [tuple(row[i] for i in there) for row in _result_rows(runs)]
    return tuple(HEADINGS[i] for i in there), rows


def _result_rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One row for each run, under HEADINGS."""
    return [
        (
            str(index),
            run_label(entry["algorithm"], entry["epsilon"]),
            str(entry.get(SEED, "–")),
            format_error(entry),
            format_number(entry["train_objective"], ".4f"),
            format_number(entry["consensus_residual"], ".3g"),
            f"{entry['noise']:.3g}",
            str(entry["rounds"]),
            format_number(entry["seconds"], ".1f"),
            format_bytes(entry["bytes_up"]),
        )
        for index, entry in enumerate(runs)
    ]


GROUP_HEADINGS = ("run", "seeds", "test error", "lowest", "highest", "objective", "rounds", "seconds")


def group_rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One row for each setting, with the mean over its seeds, under GROUP_HEADINGS."""
    return [
        (
            label,
            str(len(group)),
            *(format_error({**group[0], "test_error": error}) for error in _spread(group)),
            format_number(_mean(group, "train_objective"), ".4f"),
            str(group[0]["rounds"]),
            format_number(group[0]["seconds"], ".1f"),
        )
        for label, group in by_label(runs).items()
    ]


def by_label(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The runs of each algorithm and epsilon, over their seeds."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for entry in runs:
        groups.setdefault(run_label(entry["algorithm"], entry["epsilon"]), []).append(entry)
    return groups


def has_seeds(runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some setting was run with several seeds."""
    return any(len(group) > 1 for group in by_label(runs).values())


def _mean(group: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [entry[name] for entry in group]
    return None if None in values else fmean(values)


def _spread(group: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None, float | None]:
    errors = [entry["test_error"] for entry in group]
    return (None, None, None) if None in errors else (fmean(errors), min(errors), max(errors))
