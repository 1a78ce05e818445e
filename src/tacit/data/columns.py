"""Tables in files: one CSV or Parquet file, or a folder of them with one file for each agent."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from tacit.data.cells import Table, TableFile, join_tables
from tacit.data.paths import table_files
from tacit.data.read_csv import open_csv
from tacit.data.read_parquet import open_parquet
from tacit.errors import InputError, no_such

READERS = {".csv": open_csv, ".parquet": open_parquet}


class TableFiles(NamedTuple):
    """A table before its records are read."""

    files: tuple[TableFile, ...]
    folder: bool  # one file for each agent

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.files[0].columns

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents of a folder's files."""
        return tuple(Path(file.name).stem for file in self.files)

    @property
    def most(self) -> int:
        """A number of rows that it does not exceed."""
        return sum(file.most for file in self.files)

    def chunks(self, wanted: Collection[str], rows: int) -> Iterator[Table]:
        """Some of the columns, so many rows at a time; none of them is of two files."""
        for name in wanted:
            if name not in self.columns:
                raise no_such("column", name, self.columns)
        for file in self.files:
            yield from file.chunks(wanted, rows)


def open_table(path: str | Path, strict: bool = False) -> TableFiles:
    """The table in a file or in a folder of files; of the records nothing is read.

    `strict`: a line that is no row of the table is an error; else it is left out, and its number is kept.
    """
    place = Path(path).expanduser()
    files = tuple(READERS[file.suffix.lower()](file, strict) for file in table_files(place))
    if place.is_dir():
        _check_same(place, files)
    return TableFiles(files, place.is_dir())


def read_table(path: str | Path) -> Table:
    """All of a table, in memory; a line that is no row of it is an error."""
    table = open_table(path, strict=True)
    return join_tables(list(table.chunks(table.columns, sys.maxsize)), table.folder)


def _check_same(folder: Path, files: tuple[TableFile, ...]) -> None:
    first = files[0]
    for file in files[1:]:
        for one, other in ((first, file), (file, first)):
            for name in one.columns:
                if name not in other.columns:
                    raise InputError(
                        f"column '{name}' is in {one.name} but not in {other.name}:"
                        f" the files in {folder} must have the same columns"
                    )
