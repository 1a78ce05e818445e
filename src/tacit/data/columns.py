"""Tables from files: one CSV or Parquet file, or a folder of them with one file for each agent."""

from __future__ import annotations

from pathlib import Path

from tacit.data.cells import Table, join_columns
from tacit.data.read_csv import read_csv
from tacit.data.read_parquet import read_parquet
from tacit.errors import InputError

READERS = {".csv": read_csv, ".parquet": read_parquet}


def read_table(path: str | Path) -> Table:
    """The table in a file or in a folder of files."""
    place = Path(path).expanduser()
    if place.is_dir():
        return _read_folder(place)
    reader = READERS.get(place.suffix.lower())
    if reader is None:
        raise InputError(f"{place} is not a table: give a .csv or .parquet file, or a folder of such files")
    if not place.is_file():
        raise InputError(f"there is no file {place}")
    return reader(place)


def _read_folder(folder: Path) -> Table:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in READERS and file.is_file())
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise InputError(f"the folder {folder} has no .csv or .parquet file: put one there for each agent")
    stems = [file.stem for file in files]
    for stem in stems:
        if stems.count(stem) > 1:
            raise InputError(f"two files in {folder} are named '{stem}': an agent has one file")
    tables = [read_table(file) for file in files]
    _check_same(folder, tables)
    columns = {name: join_columns([table.columns[name] for table in tables]) for name in tables[0].columns}
    return Table(columns, tuple(part for table in tables for part in table.parts), folder=True)


def _check_same(folder: Path, tables: list[Table]) -> None:
    first = tables[0]
    for table in tables[1:]:
        for one, other in ((first, table), (table, first)):
            for name in one.columns:
                if name not in other.columns:
                    raise InputError(
                        f"column '{name}' is in {one.parts[0].file} but not in {other.parts[0].file}:"
                        f" the files in {folder} must have the same columns"
                    )
