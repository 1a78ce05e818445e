"""Two run folders side by side."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tacit.errors import InputError
from tacit.results.folder import RunFolder
from tacit.views.curves import run_label


def differences(a: RunFolder, b: RunFolder) -> list[tuple[str, Any, Any]]:
    """The settings in which two runs differ."""
    first, second = a.read_config(), b.read_config()
    keys = list(dict.fromkeys([*first, *second]))
    return [(key, first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)]


def errors_side_by_side(a: RunFolder, b: RunFolder) -> list[tuple[str, float | None, float | None]]:
    """Mean test error over seeds, by algorithm and epsilon; None where one of them has no such run."""
    predicts_numbers([a, b])
    first, second = _errors(a), _errors(b)
    return [(label, first.get(label), second.get(label)) for label in dict.fromkeys([*first, *second])]


def predicts_numbers(folders: Sequence[RunFolder]) -> bool:
    """Whether the runs predict numbers rather than classes; all of them must do the same."""
    kinds = {"low" in folder.read_start()["data"]["target"] for folder in folders}
    if len(kinds) > 1:
        raise InputError("some of these runs predict classes and some numbers: their errors cannot be compared")
    return kinds.pop()


def _errors(folder: RunFolder) -> dict[str, float | None]:
    found: dict[str, list[float]] = {}
    for entry in folder.read_summary()["runs"]:
        values = found.setdefault(run_label(entry["algorithm"], entry["epsilon"]), [])
        if entry["test_error"] is not None:
            values.append(entry["test_error"])
    return {label: fmean(values) if values else None for label, values in found.items()}
