"""Reading tables: CSV and Parquet files, and folders with one file per agent, in chunks of rows."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from taciturn.data.dataset_source import DataOptions
from taciturn.data.memory_names import PREFIX, held_table
from taciturn.data.schema import Schema
from taciturn.data.schema_parser import read_schema
from taciturn.data.table_cells import Column, Table, TablePart, clean_factor, factorize, join_tables
from taciturn.errors import InputError, missing_file, missing_header, unknown_column

csv.field_size_limit(2**31 - 1)  # a long text in one record must not end the reading of all
LONGEST = 2**24  # characters of a line: a longer one is broken, so that no record takes all memory
PIECE = 2**20  # bytes read at a time
TEXT = 8  # memory of a text cell relative to a number, roughly
EXACT = 2**53  # float64 is exact for integers up to here
UNKNOWN = "\ufffd"  # replaces a value that Python cannot represent
BUFFER = 2**16  # bytes of each column read at a time; without it, arrow keeps whole row groups


class TableFile(NamedTuple):
    """A file of a table whose records have not been read."""

    name: str
    columns: tuple[str, ...]
    most: int  # an upper bound on the number of rows
    chunks: Callable[[Collection[str], int], Iterator[Table]]  # (columns to read, rows at a time) -> the rows


class TableFiles(NamedTuple):
    """A table whose records have not been read."""

    files: tuple[TableFile, ...]
    folder: bool  # one file per agent

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.files[0].columns

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that the files' names name."""
        return tuple(Path(file.name).stem for file in self.files)

    @property
    def most(self) -> int:
        """An upper bound on the number of rows."""
        return sum(file.most for file in self.files)

    def chunks(self, columns: Collection[str], rows: int) -> Iterator[Table]:
        """Read some columns in chunks of at most `rows` rows; a chunk never spans two files.

        Raises
        ------
        InputError
            If a column does not exist or a file cannot be read.
        """
        for name in columns:
            if name not in self.columns:
                raise unknown_column(name, self.columns)
        for file in self.files:
            yield from file.chunks(columns, rows)


def open_table(path: str | Path, strict: bool = False) -> TableFiles:
    """Open a file, or a folder with one file per agent, without reading records.

    Parameters
    ----------
    path
        A .csv or .parquet file, or a folder of such files.
    strict
        Whether a line that is not a row is an error; otherwise it is left out and its number is recorded.

    Raises
    ------
    InputError
        If there is no table, or its header is invalid.
    """
    if (held := held_table(path)) is not None:
        return held
    place = Path(path).expanduser()
    openers = {".csv": _open_csv, ".parquet": _open_parquet}
    files = tuple(openers[file.suffix.lower()](file, strict) for file in table_files(place))
    for file in files[1:]:
        for one, other in ((files[0], file), (file, files[0])):
            for number, name in enumerate(one.columns, 1):
                if name not in other.columns:
                    raise InputError(
                        f"column {number} of {one.name} is not in {other.name}: the files in {place} must have the "
                        f"same columns{missing_header((*one.columns, *other.columns))}"
                    )
    return TableFiles(files, place.is_dir())


def read_table(path: str | Path) -> Table:
    """Read a whole table into memory; a line that is not a row is an error."""
    table = open_table(path, strict=True)
    return join_tables(list(table.chunks(table.columns, sys.maxsize)), table.folder)


def check_table(path: str) -> None:
    """Raise InputError if there is no table at a path, or none in memory of this name."""
    if held_table(path) is None:
        table_files(path)


def table_files(path: str | Path) -> list[Path]:
    """Return the files of a table: the file itself, or those of a folder in sorted order.

    Raises
    ------
    InputError
        If there is no such file, or two files of a folder have the same stem.
    """
    place = Path(path).expanduser()
    endings = (".csv", ".parquet")
    if not place.is_dir():
        if place.suffix.lower() not in endings:
            raise InputError(f"{place} is not a table: give a .csv or .parquet file, or a folder of such files")
        if not place.is_file():
            raise missing_file("file", place)
        return [place]
    files = sorted(file for file in place.iterdir() if file.suffix.lower() in endings and file.is_file())
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise InputError(f"the folder {place} has no .csv or .parquet file: put one there for each agent")
    stems = [file.stem for file in files]
    for stem in stems:
        if stems.count(stem) > 1:
            raise InputError(f"two files in {place} are named '{stem}': an agent has one file")
    return files


def file_agents(options: DataOptions) -> tuple[str, ...] | None:
    """Return the agents that a folder's file names name, in sorted order; None if the table is one file."""
    if (held := held_table(options.data)) is not None:
        return held.agents if held.folder else None
    files = table_files(options.data)
    return tuple(sorted(file.stem for file in files)) if Path(options.data).expanduser().is_dir() else None


def names_agents(options: DataOptions, schema: Schema) -> bool:
    """Return whether the table names its records' agents, by a column or by its files; else it is partitioned."""
    held = held_table(options.data)
    folder = Path(options.data).expanduser().is_dir() if held is None else held.folder
    return not options.one_owner and (schema.agent is not None or folder)


def table_name(options: DataOptions) -> str:
    """Return the name of a table's data set."""
    return Path(options.data.removeprefix(PREFIX)).resolve().stem


def table_schema(options: DataOptions) -> Schema:
    """Read a table's schema and add the agents' names of the options; also check the options on its test set.

    Raises
    ------
    InputError
        If there is no schema, or both a test table and a share to hold out are given.
    """
    if not options.schema:
        raise InputError(
            f"the table {options.data} needs a schema:"
            f" `taciturn data schema {options.data} --label COLUMN --out FILE` drafts one"
        )
    if options.test and options.test_share:
        raise InputError("test and test-share are both given: a test set comes from one of them")
    schema = read_schema(options.schema)
    if options.one_owner:
        return replace(schema, agent=None, agents=())
    return replace(schema, agents=schema.agents or options.agent_names) if schema.agent else schema


def _open_csv(path: Path, strict: bool) -> TableFile:
    """Open a CSV file of UTF-8 text; blank lines are skipped."""
    cells, _ = next(_rows(path, strict), ([], 0))
    if not cells:
        raise InputError(f"{path} is empty: it must begin with a header line")
    header = tuple(cell.strip() for cell in cells)
    for number, name in enumerate(header, 1):
        if "\ufffd" in name:
            raise InputError(f"{path} is not UTF-8 text (column {number} of the header): save it as UTF-8")
        if not name:
            raise InputError(f"{path}: column {number} has no name in the header")
    _check_distinct(path, header)
    if len(header) == 1 and (sign := next((sign for sign in ";\t|" if sign in header[0]), "")):
        raise InputError(f"{path}: the header is one column with {sign!r} in its name: columns are separated by commas")
    most = 0  # lines below the header, with any line ending; quoted cells and blank lines make the rows fewer
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            most += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
    return TableFile(path.name, header, most, partial(_csv_chunks, path, header, strict))


def _check_distinct(path: Path, names: tuple[str, ...]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(
                f"{path}: columns {names.index(name) + 1} and {number + 1} have the same name{missing_header(names)}"
            )


def _csv_chunks(
    path: Path, header: tuple[str, ...], strict: bool, wanted: Collection[str], rows: int
) -> Iterator[Table]:
    numbered = _rows(path, strict)
    next(numbered)  # the header
    count = 0
    while chunk := list(islice(numbered, max(1, rows // TEXT))):
        count += len(chunk)
        whole = [(row, line) for row, line in chunk if len(row) == len(header)]
        broken = [(row, line) for row, line in chunk if len(row) != len(header)]
        if broken and strict:
            row, line = broken[0]
            raise InputError(f"{path}: line {line} has {len(row)} cells but the header has {len(header)}")
        values = zip(*(row for row, _ in whole), strict=True) if whole else ((),) * len(header)
        columns = {name: Column(cells) for name, cells in zip(header, values, strict=True) if name in wanted}
        lines = np.array([line for _, line in whole], dtype=np.intp)
        part = TablePart(path.name, path.stem, lines, len(whole), broken=tuple(line for _, line in broken))
        yield Table(columns, (part,))
    if strict and not count:
        raise InputError(f"{path} has a header but no records")


def _rows(path: Path, strict: bool) -> Iterator[tuple[list[str], int]]:
    """Yield each row's cells and the line on which it ends.

    If strict, quoted cells may contain line ends. Otherwise every line is a record, so that an unclosed quote in one
    record affects no other; a broken line has no cells.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="", errors="strict" if strict else "replace") as file:
            if not strict:
                yield from _line_by_line(file)
                return
            reader = csv.reader(file, strict=True)
            try:
                yield from ((row, reader.line_num) for row in reader if row)
            except csv.Error as error:
                raise InputError(f"{path}: line {reader.line_num} is not CSV: {error}") from error
    except UnicodeDecodeError as error:
        place = f"{error.reason} at byte {error.start}"
        raise InputError(f"{path} is not UTF-8 text ({place}): save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _line_by_line(file: TextIO) -> Iterator[tuple[list[str], int]]:
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        text = line.rstrip("\r\n")
        if len(line) == LONGEST and text == line:
            while (line := file.readline(LONGEST)) and not line.endswith(("\r", "\n")):
                pass
            yield [], number
        elif text:
            try:
                yield next(csv.reader([text], strict=True)) if '"' in text else text.split(","), number
            except csv.Error:
                yield [], number


def _open_parquet(path: Path, strict: bool) -> TableFile:
    with _parquet_file(path) as file:
        names, count = tuple(name.strip() for name in file.schema_arrow.names), file.metadata.num_rows
    _check_distinct(path, names)
    if strict and not count:
        raise InputError(f"{path} has columns but no records")
    return TableFile(path.name, names, count, partial(_parquet_chunks, path, count))


def _parquet_chunks(path: Path, count: int, wanted: Collection[str], rows: int) -> Iterator[Table]:
    first = 0
    with _parquet_file(path) as file:
        names = [name for name in file.schema_arrow.names if name.strip() in wanted]
        for batch in file.iter_batches(max(1, min(rows, count)), columns=names, use_threads=False):
            part = TablePart(path.name, path.stem, None, batch.num_rows, first)
            yield Table({name.strip(): _arrow_column(batch[name]) for name in batch.schema.names}, (part,))
            first += batch.num_rows


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"reading {path} needs pyarrow: pip install 'taciturn[parquet]'") from error
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _arrow_column(values: Any) -> Column:
    """Convert an arrow column to numbers if float64 represents them exactly, else to text."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_decimal(kind):
        values, kind = values.cast(pa.float64()), pa.float64()
    if pa.types.is_floating(kind) or (pa.types.is_integer(kind) and _is_exact(values)):
        return Column(values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        values = values.cast(pa.string())  # also dates that Python does not support
    try:
        coded = values.dictionary_encode("encode")
    except pa.ArrowNotImplementedError:  # lists and the like
        return Column(factorize(_texts(values)))
    return Column(clean_factor(_texts(coded.dictionary), coded.indices.to_numpy().astype(np.intp)))


def _texts(values: Any) -> list[str | None]:
    """Convert arrow values to texts; UNKNOWN replaces values that Python cannot represent and invalid UTF-8."""
    import pyarrow as pa

    def convert(value: Any) -> Any:
        try:
            return value.as_py()
        except (ValueError, OverflowError):
            return UNKNOWN

    try:
        items = values.to_pylist()
    except (ValueError, OverflowError):
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            raw = values.cast(pa.large_binary()).to_pylist()
            return [None if value is None else value.decode(errors="replace") for value in raw]
        items = [convert(value) for value in values]
    return [None if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in items]


def _is_exact(values: Any) -> bool:
    import pyarrow.compute as pc

    ends = pc.min_max(values).as_py()
    return ends["min"] is None or -EXACT <= ends["min"] <= ends["max"] <= EXACT
