"""Run folders side by side."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from taciturn.data import SOURCES
from taciturn.errors import InputError
from taciturn.reporting.tables import by_label
from taciturn.runs.folder import RunFolder


def folder_names(folders: Sequence[RunFolder]) -> list[str]:
    """What the runs are called: the folders' names, or their paths where two have the same name."""
    names = [folder.path.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder.path) for folder in folders]


def differences(folders: Sequence[RunFolder]) -> dict[str, list[Any]]:
    """The settings in which runs differ, with every run's value; None where a run has no such setting.

    A key of private records is not among the settings: where all have the same one, "auto" is no difference.
    """
    configs = [folder.read_config() for folder in folders]
    keys = dict.fromkeys(key for config in configs for key in config)
    values = {key: [config.get(key) for config in configs] for key in keys}
    if len({_partition_key(folder) for folder in folders}) == 1:
        values.pop("partition_key", None)
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def errors_side_by_side(folders: Sequence[RunFolder]) -> dict[str, list[float | None]]:
    """Mean test error over seeds, by algorithm and epsilon; None where a run has none."""
    predicts_numbers(folders)
    found = [_errors(folder) for folder in folders]
    labels = dict.fromkeys(label for errors in found for label in errors)
    return {label: [errors.get(label) for errors in found] for label in labels}


def other_test_records(folders: Sequence[RunFolder]) -> list[str]:
    """Why runs were tested on different records: what decided about them and differs; empty where they were not.

    Runs without a test error are passed over.
    """
    tested = [folder for folder in folders if any(error is not None for error in _errors(folder).values())]
    found = [_test_records(folder) for folder in tested]
    names = dict.fromkeys(name for facts in found for name in facts)
    return [name for name in names if any(facts.get(name) != found[0].get(name) for facts in found)]


def _test_records(folder: RunFolder) -> dict[str, Any]:
    """What decides which records a run is tested on, and how many they were."""
    config, described = folder.read_config(), folder.read_start()["data"]
    data = config.get("data", "")
    counted = {"number of test records": (described.get("test_records"), described.get("test_classes"))}
    if config.get("test"):
        return {"test": _place(config["test"])} | counted
    drawn: dict[str, Any] = {"data": data if data in SOURCES else _place(data)}
    if config.get("test_share") or (data in SOURCES and "train_share" in SOURCES[data].takes):
        shares = {name.replace("_", "-"): config.get(name) for name in ("test_share", "train_share", "sample_fraction")}
        drawn |= shares | {"partition-key": _partition_key(folder)}
    return drawn | _schema(folder) | counted


def _partition_key(folder: RunFolder) -> int:
    """By which records were dealt out and held out."""
    given, kept = folder.read_config().get("partition_key", "auto"), folder.read_key()
    return kept or (0 if given == "auto" else int(given))


def _place(data: str) -> str:
    return str(Path(data).resolve())


def _schema(folder: RunFolder) -> dict[str, Any]:
    """The parts of a schema that say what a record is: which are held out goes by that."""
    if not folder.schema.is_file():
        return {}
    read = tomllib.loads(folder.schema.read_text(encoding="utf-8"))
    return {"schema": [read.get(part) for part in ("scale", "label", "unit", "columns")]}


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
