"""Tables from files: one CSV or Parquet file, or a folder of them with one file for each agent."""

from __future__ import annotations

from pathlib import Path

from tacit.data.cells import Table, join_columns
from tacit.data.paths import table_files
from tacit.data.read_csv import read_csv
from tacit.data.read_parquet import read_parquet
from tacit.errors import InputError

READERS = {".csv": read_csv, ".parquet": read_parquet}


def read_table(path: str | Path) -> Table:
    """The table in a file or in a folder of files."""
    place = Path(path).expanduser()
    tables = [READERS[file.suffix.lower()](file) for file in table_files(place)]
    if not place.is_dir():
        return tables[0]
    _check_same(place, tables)
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
