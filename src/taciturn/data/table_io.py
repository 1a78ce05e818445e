"""Reading tables: which files a table has, CSV and Parquet files, and folders with one file per agent."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from taciturn.data.dataset_source import DataOptions
from taciturn.data.schema import Schema, read_schema
from taciturn.data.table_cells import Column, Table, TableFile, TablePart, clean_places, join_tables, text_column
from taciturn.errors import InputError, missing_file, unknown_name

ENDINGS = (".csv", ".parquet")


def table_files(path: str | Path) -> list[Path]:
    """The files of a table: the file itself, or those of a folder in sorted order, one for each agent."""
    place = Path(path).expanduser()
    if place.is_dir():
        return _folder_files(place)
    if place.suffix.lower() not in ENDINGS:
        raise InputError(f"{place} is not a table: give a .csv or .parquet file, or a folder of such files")
    if not place.is_file():
        raise missing_file("file", place)
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
            f" `taciturn data schema {options.data} --label COLUMN --out FILE` drafts one"
        )
    if options.test and options.test_share:
        raise InputError("test and test-share are both given: a test set comes from one of them")
    schema = read_schema(options.schema)
    if options.one_owner:
        return replace(schema, agent=None, agents=())
    return replace(schema, agents=schema.agents or options.agent_names) if schema.agent else schema


csv.field_size_limit(2**31 - 1)  # a long text in one record must not end the reading of all
LONGEST = 2**24  # characters of a line: one beyond it is broken, so that no record takes all memory
PIECE = 2**20
TEXT = 8  # times the memory that a number takes, roughly


def open_csv(path: Path, strict: bool) -> TableFile:
    """A CSV file of UTF-8 text; blank lines are skipped."""
    cells, _ = next(_rows(path, strict), ([], 0))
    if not cells:
        raise InputError(f"{path} is empty: it must begin with a header line")
    header = _check_header(path, cells)
    if len(header) == 1 and (sign := next((sign for sign in ";\t|" if sign in header[0]), "")):
        raise InputError(f"{path}: the header is one column with {sign!r} in its name: columns are separated by commas")
    return TableFile(path.name, header, _most_rows(path), partial(_chunks, path, header, strict))


def _chunks(path: Path, header: tuple[str, ...], strict: bool, wanted: Collection[str], rows: int) -> Iterator[Table]:
    numbered = _rows(path, strict)
    next(numbered)  # the header
    count = 0
    while chunk := list(islice(numbered, max(1, rows // TEXT))):
        count += len(chunk)
        broken = tuple(line for row, line in chunk if len(row) != len(header))
        if broken and strict:
            cells = next(len(row) for row, line in chunk if line == broken[0])
            raise InputError(f"{path}: line {broken[0]} has {cells} cells but the header has {len(header)}")
        whole = [(row, line) for row, line in chunk if len(row) == len(header)]
        values = zip(*(row for row, _ in whole), strict=True) if whole else ((),) * len(header)
        columns = {name: Column(cells) for name, cells in zip(header, values, strict=True) if name in wanted}
        lines = np.array([line for _, line in whole], dtype=np.intp)
        yield Table(columns, (TablePart(path.name, path.stem, lines, len(whole), broken=broken),))
    if strict and not count:
        raise InputError(f"{path} has a header but no records")


def _rows(path: Path, strict: bool) -> Iterator[tuple[list[str], int]]:
    """Each row's cells, and the line it ends on; not strict: a line is a record, without cells where it is broken."""
    try:
        with path.open(encoding="utf-8-sig", newline="", errors="strict" if strict else "replace") as file:
            yield from _quoted(path, file) if strict else _line_by_line(file)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _quoted(path: Path, file: TextIO) -> Iterator[tuple[list[str], int]]:
    """Rows whose quoted cells may hold line ends."""
    reader = csv.reader(file, strict=True)
    try:
        for row in reader:
            if row:
                yield row, reader.line_num
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num} is not CSV: {error}") from None


def _line_by_line(file: TextIO) -> Iterator[tuple[list[str], int]]:
    """Every line by itself, so that a quote that is not closed in one record swallows no other."""
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


def _most_rows(path: Path) -> int:
    """The lines below the header, of whatever ending: quoted cells and blank lines make the rows fewer."""
    ends = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            ends += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
    return ends


def _check_header(path: Path, cells: list[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    for number, name in enumerate(names, 1):
        if "\ufffd" in name:
            raise InputError(f"{path} is not UTF-8 text (column {number} of the header): save it as UTF-8")
        if not name:
            raise InputError(f"{path}: column {number} has no name in the header")
        if name in names[: number - 1]:
            raise InputError(f"{path}: two columns are named '{name}'")
    return names


EXACT = 2**53  # beyond it, float64 cannot tell whole numbers apart
UNKNOWN = "\ufffd"  # in the place of a value that Python cannot hold
BUFFER = 2**16  # bytes of each column that are read at a time; without one, arrow keeps whole row groups


def open_parquet(path: Path, strict: bool) -> TableFile:
    """A Parquet file."""
    with _open(path) as file:
        names, count = tuple(name.strip() for name in file.schema_arrow.names), file.metadata.num_rows
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f"{path}: two columns are named '{name}'")
    if strict and not count:
        raise InputError(f"{path} has columns but no records")
    return TableFile(path.name, names, count, partial(_chunks_read_parquet, path, count))


def _chunks_read_parquet(path: Path, count: int, wanted: Collection[str], rows: int) -> Iterator[Table]:
    first = 0
    with _open(path) as file:
        names = [name for name in file.schema_arrow.names if name.strip() in wanted]
        for batch in file.iter_batches(max(1, min(rows, count)), columns=names, use_threads=False):
            part = TablePart(path.name, path.stem, None, batch.num_rows, first)
            yield Table({name.strip(): _column(batch[name]) for name in batch.schema.names}, (part,))
            first += batch.num_rows


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"reading {path} needs pyarrow: pip install pyarrow") from None
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _column(values: Any) -> Column:
    """Numbers where float64 holds them exactly, text otherwise."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_decimal(kind):
        values, kind = values.cast(pa.float64()), pa.float64()
    if pa.types.is_floating(kind) or (pa.types.is_integer(kind) and _exact(values)):
        return Column(values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        values = values.cast(pa.string())  # dates that Python does not know, too
    try:
        coded = values.dictionary_encode("encode")
    except pa.ArrowNotImplementedError:  # lists and the like
        return text_column([_text(value) for value in _values(values)])
    names = [_text(value) for value in _values(coded.dictionary)]
    return Column(clean_places(names, coded.indices.to_numpy().astype(np.intp)))


def _values(found: Any) -> list[Any]:
    """As Python's values; a mark in the place of what Python cannot hold, and of bytes that are not UTF-8."""
    import pyarrow as pa

    try:
        return list(found.to_pylist())
    except (ValueError, OverflowError):
        pass
    if pa.types.is_string(found.type) or pa.types.is_large_string(found.type):
        raw = found.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in raw]
    return [_value(one) for one in found]


def _value(one: Any) -> Any:
    try:
        return one.as_py()
    except (ValueError, OverflowError):
        return UNKNOWN


def _exact(values: Any) -> bool:
    import pyarrow.compute as pc

    ends = pc.min_max(values).as_py()
    return ends["min"] is None or -EXACT <= ends["min"] <= ends["max"] <= EXACT


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


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
                raise unknown_name("column", name, self.columns)
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
