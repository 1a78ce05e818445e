"""Comparison of run folders: differing settings, test errors, and whether the test records are the same."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taciturn.errors import InputError
from taciturn.reporting.curves import by_label
from taciturn.reporting.tables import mean_error
from taciturn.runs.folder import RunFolder


def folder_names(folders: Sequence[RunFolder]) -> list[str]:
    """Return the names of the folders, or their paths if two have the same name."""
    names = [folder.path.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder.path) for folder in folders]


def differences(folders: Sequence[RunFolder]) -> dict[str, list[Any]]:
    """Return the settings in which runs differ, with the value of every run; None where a run lacks the setting.

    The key of a private partition is stored apart from the settings. Where all runs have the same one, "auto" is not a
    difference.
    """
    configs = [folder.read_config() for folder in folders]
    keys = dict.fromkeys(key for config in configs for key in config)
    values = {key: [config.get(key) for config in configs] for key in keys}
    if len({_partition_key(folder) for folder in folders}) == 1:
        values.pop("partition_key", None)
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def errors_side_by_side(folders: Sequence[RunFolder]) -> dict[str, list[float | None]]:
    """Return the mean test error over seeds by setting, one value for each run; None where a run has none.

    Raises
    ------
    InputError
        If some runs predict classes and some numbers.
    """
    predicts_numbers(folders)
    found = [_errors(folder) for folder in folders]
    labels = dict.fromkeys(label for errors in found for label in errors)
    return {label: [errors.get(label) for errors in found] for label in labels}


def other_test_records(folders: Sequence[RunFolder]) -> list[str]:
    """Return what makes the test records of the runs differ; empty if all were tested on the same records.

    Runs without a test error are ignored.
    """
    tested = [folder for folder in folders if any(error is not None for error in _errors(folder).values())]
    found = [_test_records(folder) for folder in tested]
    names = dict.fromkeys(name for facts in found for name in facts)
    return [name for name in names if any(facts.get(name) != found[0].get(name) for facts in found)]


def predicts_numbers(folders: Sequence[RunFolder]) -> bool:
    """Return whether the runs predict numbers rather than classes.

    Raises
    ------
    InputError
        If some do and some do not.
    """
    kinds = {folder.read_start().data.target.is_number for folder in folders}
    if len(kinds) > 1:
        raise InputError("some of these runs predict classes and some numbers: their errors cannot be compared")
    return kinds.pop()


def _test_records(folder: RunFolder) -> dict[str, object]:
    """Return what decides which records a run is tested on, and their number."""
    config, start, source = folder.read_config(), folder.read_start(), folder.read_header().source
    described = start.data
    counted: dict[str, object] = {"number of test records": (described.test_records, described.test_classes)}
    if config.get("test"):
        return {"test": _absolute(config["test"]), **counted}
    built_in = source is not None and source.built_in
    drawn: dict[str, object] = {"data": config["data"] if built_in else _absolute(config.get("data", ""))}
    if folder.began_with_frame:
        drawn["data"] = start.records or _absolute(str(folder.path))
    if config.get("test_share") or (source is not None and source.draws_split):
        shares = {name.replace("_", "-"): config.get(name) for name in ("test_share", "train_share", "sample_fraction")}
        drawn |= shares | {"partition-key": _partition_key(folder)}
    return drawn | _schema(folder) | counted


def _partition_key(folder: RunFolder) -> int:
    """Return the key by which records were partitioned and held out."""
    given, kept = folder.read_config().get("partition_key", "auto"), folder.read_key()
    return kept or (0 if given == "auto" else int(given))


def _absolute(path: str) -> str:
    return str(Path(path).resolve())


def _schema(folder: RunFolder) -> dict[str, object]:
    """Return the parts of a schema that define a record: they decide which records are held out; weights do not."""
    if not folder.schema.is_file():
        return {}
    read = tomllib.loads(folder.schema.read_text(encoding="utf-8"))
    read["label"] = {key: value for key, value in read.get("label", {}).items() if key != "weights"}
    return {"schema": [read.get(part) for part in ("scale", "label", "unit", "columns")]}


def _errors(folder: RunFolder) -> dict[str, float | None]:
    return {label: mean_error(group) for label, group in by_label(folder.read_summary().runs).items()}
