"""CSV files: a header, then rows of as many cells.

Where a table is loaded to train on, a line that is no such row is left out and counted: whether a run begins must not
depend on one record. The file as a whole is refused where it cannot be read or has no header.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from tacit.data.cells import Column, Part, Table, TableFile
from tacit.errors import InputError

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
        yield Table(columns, (Part(path.name, path.stem, lines, len(whole), broken=broken),))
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
