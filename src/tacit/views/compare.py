"""Run folders side by side."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tacit.errors import InputError
from tacit.results.folder import RunFolder
from tacit.views.tables import by_label


def folder_names(folders: Sequence[RunFolder]) -> list[str]:
    """What the runs are called: the folders' names, or their paths where two have the same name."""
    names = [folder.path.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder.path) for folder in folders]


def differences(folders: Sequence[RunFolder]) -> dict[str, list[Any]]:
    """The settings in which runs differ, with every run's value; None where an older run has no such setting."""
    configs = [folder.read_config() for folder in folders]
    keys = dict.fromkeys(key for config in configs for key in config)
    values = {key: [config.get(key) for config in configs] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def errors_side_by_side(folders: Sequence[RunFolder]) -> dict[str, list[float | None]]:
    """Mean test error over seeds, by algorithm and epsilon; None where a run has none."""
    predicts_numbers(folders)
    found = [_errors(folder) for folder in folders]
    labels = dict.fromkeys(label for errors in found for label in errors)
    return {label: [errors.get(label) for errors in found] for label in labels}


def predicts_numbers(folders: Sequence[RunFolder]) -> bool:
    """Whether the runs predict numbers rather than classes; all of them must do the same."""
    kinds = {"low" in folder.read_start()["data"]["target"] for folder in folders}
    if len(kinds) > 1:
        raise InputError("some of these runs predict classes and some numbers: their errors cannot be compared")
    return kinds.pop()


def _errors(folder: RunFolder) -> dict[str, float | None]:
    groups = by_label(folder.read_summary()["runs"])
    errors = {label: [entry["test_error"] for entry in group] for label, group in groups.items()}
    return {label: None if None in found else fmean(found) for label, found in errors.items()}
