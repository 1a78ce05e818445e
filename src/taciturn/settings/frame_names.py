"""Data frames and schema objects among Python keywords: settings hold a name for each, which the data layer resolves.

Nothing after this sees a frame as the value of a setting, so none can be printed or written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taciturn.data import Schema, read_schema
from taciturn.data.frames import TESTING, TRAINING, is_frame, needed_columns, open_frames
from taciturn.data.memory_names import PREFIX, hold, is_in_memory
from taciturn.data.schema_builder import SchemaBuilder
from taciturn.data.table_io import TableFiles
from taciturn.errors import InputError, kind_of
from taciturn.settings.rules import path

SCHEMA_NAME = f"{PREFIX}schema"
NAMES = {"data": ("frames", "frame"), "test": ("test-frames", "test-frame")}  # of several frames, and of one
USES = {"data": TRAINING, "test": TESTING}


@contextmanager
def frames_named(settings: Mapping[str, object], default_schema: Callable[[], str]) -> Iterator[dict[str, object]]:
    """Yield the settings with a name for each frame and schema object; the names have a meaning within the block only.

    Parameters
    ----------
    settings
        Keywords, as a user gave them.
    default_schema
        Returns the path of the schema where the keywords have none; empty if there is none.

    Raises
    ------
    InputError
        If the schema is not complete, a frame does not fit it, or a value is not a frame.
    """
    named, tables, schemas = dict(settings), dict[str, TableFiles](), dict[str, str]()
    given = named.get("schema", "")
    if isinstance(given, Schema | SchemaBuilder):
        if isinstance(given, SchemaBuilder):
            given.build()  # raises if it is not complete
        named["schema"] = SCHEMA_NAME
        schemas[SCHEMA_NAME] = given.to_toml()
    elif not isinstance(given, str | os.PathLike):
        raise InputError(f"schema is {kind_of(given)}: it must be a path, a Schema or what Schema.from_frame returns")
    for name, use in USES.items():
        frames = named.get(name, "")
        if isinstance(frames, str | os.PathLike):
            continue
        if name == "test" and frames is settings.get("data"):  # one name: loading refuses to publish results on it
            named["test"] = named["data"]
            continue
        described = named.get("schema") or default_schema()
        if not described:
            open_frames(name, frames, {})  # a value of another type is the first mistake to name
            raise InputError(
                f"{name} is {kind_of(frames)}, which needs a schema: a path, or "
                "taciturn.Schema.from_frame(frame).declare(...)"
            )
        with hold({}, schemas):
            schema = read_schema(path("schema", described))
        named[name] = place = f"{PREFIX}{NAMES[name][is_frame(frames)]}"
        tables[place] = open_frames(name, frames, needed_columns(schema, use))
    with hold(tables, schemas):
        yield named


@contextmanager
def frames_again(config: Mapping[str, object], schema: Path, **given: Any) -> Iterator[None]:
    """Give the names in a run's settings their frames again, for the duration of a block.

    Parameters
    ----------
    config
        The settings of the run.
    schema
        The schema, as the run folder stores it.
    **given
        The frames for `data` and `test`, None for none.

    Raises
    ------
    InputError
        If a frame is given for what was a file, or does not fit the schema.
    """
    tables = {}
    for name, frames in given.items():
        if frames is None:
            continue
        place = str(config[name])
        if not is_in_memory(place):
            raise InputError(f"{name} is given, but the run was not started with a data frame as {name}: remove it")
        tables[place] = open_frames(name, frames, needed_columns(read_schema(schema), USES[name]))
    with hold(tables, {}):
        yield
