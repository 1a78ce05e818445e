"""What is known of a table from its options, its file names and its schema: no record is read here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tacit.data.base import DataOptions
from tacit.data.schema import Schema, read_schema
from tacit.errors import InputError, absent

ENDINGS = (".csv", ".parquet")


def table_files(path: str | Path) -> list[Path]:
    """The files of a table: the file itself, or those of a folder in sorted order, one for each agent."""
    place = Path(path).expanduser()
    if place.is_dir():
        return _folder_files(place)
    if place.suffix.lower() not in ENDINGS:
        raise InputError(f"{place} is not a table: give a .csv or .parquet file, or a folder of such files")
    if not place.is_file():
        raise absent("file", place)
    return [place]


def _folder_files(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in ENDINGS and file.is_file())
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise InputError(f"the folder {folder} has no .csv or .parquet file: put one there for each agent")
    stems = [file.stem for file in files]
    for stem in stems:
        if stems.count(stem) > 1:
            raise InputError(f"two files in {folder} are named '{stem}': an agent has one file")
    return files


def file_agents(options: DataOptions) -> tuple[str, ...] | None:
    """The agents that a folder's file names name, in sorted order; None where the table is one file."""
    files = table_files(options.data)
    return tuple(sorted(file.stem for file in files)) if Path(options.data).expanduser().is_dir() else None


def names_agents(options: DataOptions, schema: Schema) -> bool:
    """Whether the table says whose its records are, by a column or by its files; else they are dealt out."""
    return not options.one_owner and (schema.agent is not None or Path(options.data).expanduser().is_dir())


def table_name(options: DataOptions) -> str:
    """What a table's data set is called."""
    return Path(options.data).resolve().stem


def table_schema(options: DataOptions) -> Schema:
    """The schema that a table needs, with the agents' names where the options have them.

    The options that concern its test set are checked too.
    """
    if not options.schema:
        raise InputError(
            f"the table {options.data} needs a schema:"
            f" `tacit data schema {options.data} --label COLUMN --out FILE` drafts one"
        )
    if options.test and options.test_share:
        raise InputError("test and test-share are both given: a test set comes from one of them")
    schema = read_schema(options.schema)
    if options.one_owner:
        return replace(schema, agent=None, agents=())
    return replace(schema, agents=schema.agents or options.agent_names) if schema.agent else schema
