"""CSV files: a header, then rows of as many cells."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tacit.data.cells import Part, Table, text_column
from tacit.errors import InputError


def read_csv(path: Path) -> Table:
    """The table in a CSV file of UTF-8 text; blank lines are skipped."""
    rows, lines = _read_rows(path)
    if not rows:
        raise InputError(f"{path} is empty: it must begin with a header line")
    header = _check_header(path, rows[0])
    if len(header) == 1 and (sign := next((sign for sign in ";\t|" if sign in header[0]), "")):
        raise InputError(f"{path}: the header is one column with {sign!r} in its name: columns are separated by commas")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise InputError(f"{path}: line {line} has {len(row)} cells but the header has {len(header)}")
    if len(rows) == 1:
        raise InputError(f"{path} has a header but no records")
    cells = list(zip(*rows[1:], strict=True))  # [columns][rows]
    columns = {name: text_column(values) for name, values in zip(header, cells, strict=True)}
    part = Part(path.name, path.stem, np.array(lines[1:], dtype=np.intp), len(rows) - 1)
    return Table(columns, (part,), folder=False)


def _read_rows(path: Path) -> tuple[list[list[str]], list[int]]:
    rows, lines = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for row in reader:
                    if row:
                        rows.append(row)
                        lines.append(reader.line_num)
            except csv.Error as error:
                raise InputError(f"{path}: line {reader.line_num} is not CSV: {error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return rows, lines


def _check_header(path: Path, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    for number, name in enumerate(names, 1):
        if not name:
            raise InputError(f"{path}: column {number} has no name in the header")
        if name in names[: number - 1]:
            raise InputError(f"{path}: two columns are named '{name}'")
    return names
