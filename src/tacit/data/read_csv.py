"""CSV files: a header, then rows of as many cells."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from tacit.data.cells import Column, Part, Table, TableFile
from tacit.errors import InputError

PIECE = 2**20
TEXT = 8  # times the memory that a number takes, roughly


def open_csv(path: Path) -> TableFile:
    """A CSV file of UTF-8 text; blank lines are skipped."""
    cells, _ = next(_rows(path), ([], 0))
    if not cells:
        raise InputError(f"{path} is empty: it must begin with a header line")
    header = _check_header(path, cells)
    if len(header) == 1 and (sign := next((sign for sign in ";\t|" if sign in header[0]), "")):
        raise InputError(f"{path}: the header is one column with {sign!r} in its name: columns are separated by commas")
    return TableFile(path.name, header, _most_rows(path), partial(_chunks, path, header))


def _chunks(path: Path, header: tuple[str, ...], wanted: Collection[str], rows: int) -> Iterator[Table]:
    numbered = _rows(path)
    next(numbered)  # the header
    count = 0
    while chunk := list(islice(numbered, max(1, rows // TEXT))):
        for row, line in chunk:
            if len(row) != len(header):
                raise InputError(f"{path}: line {line} has {len(row)} cells but the header has {len(header)}")
        cells = zip(header, zip(*(row for row, _ in chunk), strict=True), strict=True)
        columns = {name: Column(values) for name, values in cells if name in wanted}
        lines = np.array([line for _, line in chunk], dtype=np.intp)
        yield Table(columns, (Part(path.name, path.stem, lines, len(chunk)),))
        count += len(chunk)
    if not count:
        raise InputError(f"{path} has a header but no records")


def _rows(path: Path) -> Iterator[tuple[list[str], int]]:
    """Each row's cells, and the line it ends on."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for row in reader:
                    if row:
                        yield row, reader.line_num
            except csv.Error as error:
                raise InputError(f"{path}: line {reader.line_num} is not CSV: {error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


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
        if not name:
            raise InputError(f"{path}: column {number} has no name in the header")
        if name in names[: number - 1]:
            raise InputError(f"{path}: two columns are named '{name}'")
    return names
