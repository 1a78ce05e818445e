"""A study from its run folder: the same settings and the same records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from taciturn.core.storage import text_hash
from taciturn.data import fingerprint
from taciturn.errors import InputError
from taciturn.planning.study import Study
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import StartRecord
from taciturn.settings import resolve
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.training.setup import prepare


class Begun(NamedTuple):
    """What an interrupted run continues with."""

    config: Mapping[str, object]
    records: str  # digest
    key: int | None  # of the partition of private records
    reservation: str  # empty: none


def check_config(folder: RunFolder, start: StartRecord) -> None:
    """Raise InputError if the settings in a run folder are not those it began with."""
    if text_hash(folder.config.read_text(encoding="utf-8")) != start.config:
        raise InputError(f"{folder.config} was changed after the run began: start a new run with it instead")


def rebuilt(folder: RunFolder, begun: Begun, group: ProcessGroup) -> Study:
    """Return the study as it began.

    Raises
    ------
    InputError
        If the records are not those it began with.
    """
    settings = resolve(begun.config)
    if settings.schema and folder.schema.is_file():  # another machine may see the table's own schema only
        settings = replace(settings, schema=str(folder.schema))
    study = prepare(settings, group, begun.key)
    if fingerprint(study.dataset) != begun.records:
        raise InputError(f"the records of {settings.data} are not those the run began with: start a new run")
    return study


def rebuild_study(folder: RunFolder) -> Study:
    """Return the study of a run folder as it began, from the same settings and records.

    Raises
    ------
    InputError
        If the settings or the records were changed, or the records are not on this machine.
    """
    start = folder.read_start()
    if start.records is None:
        raise InputError(
            f"the records of {folder.path} are not here: they are at the sites of a federation, or its local-only "
            "folder is missing"
        )
    check_config(folder, start)
    begun = Begun(folder.read_config(), start.records, folder.read_key(), start.reservation or "")
    return rebuilt(folder, begun, SINGLE_PROCESS)
