"""Cells of a table: text values, missing values, numbers, and typed columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.errors import InputError, unknown_name

MISSING = frozenset({"", "na", "nan", "null"})  # in any case


def is_missing(text: str) -> bool:
    """Whether a cell's text stands for no value."""
    return text.strip().lower() in MISSING


class Places(NamedTuple):
    """A column's different texts in the order of their first rows, and each row's place among them."""

    names: tuple[str | None, ...]  # None: missing
    of: NDArray[np.intp]  # [n]


def text_places(cells: Iterable[str | None]) -> Places:
    """Texts without the blanks around them; those that stand for no value become None."""
    found: dict[str | None, int] = {}
    of = np.array([found.setdefault(cell, len(found)) for cell in cells], dtype=np.intp)
    return clean_places(tuple(found), of)


def clean_places(names: Sequence[str | None], of: NDArray[np.intp]) -> Places:
    """The same for texts by their places; what becomes one text becomes one place."""
    found: dict[str | None, int] = {}
    clean = (None if name is None or is_missing(name) else name.strip() for name in names)
    places = np.array([found.setdefault(name, len(found)) for name in clean], dtype=np.intp)
    return Places(tuple(found), places[of])


def is_number(text: str) -> bool:
    """Whether a cell's text is a finite number."""
    return math.isfinite(number_in(text))


def number_places(numbers: NDArray[np.float64]) -> Places:
    """Numbers as texts; whole ones without a decimal point, NaN as None."""
    values, first, of = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return Places(tuple(None if math.isnan(v) else _plain(v) for v in values[order].tolist()), ranks[of])


def numbers_in(cells: tuple[str, ...]) -> NDArray[np.float64] | None:
    """Numbers where every cell is one; None where a cell has to be looked at by itself."""
    text = "".join(cells)
    if "_" in text or not text.isascii():
        return None
    try:
        numbers = np.array([float(cell) for cell in cells])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def number_in(text: str | None) -> float:
    """NaN for a missing value, and infinity for what is not a number: neither can stand in a table."""
    if text is None:
        return math.nan
    if "_" in text or not text.isascii():  # float() takes 1_000 and the digits of every script
        return math.inf
    try:
        value = float(text)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


@dataclass(frozen=True, eq=False)
class Column:
    """One column: numbers, NaN where missing; texts by their places; or the cells of a text file."""

    values: NDArray[np.float64] | Places | tuple[str, ...]

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers already."""
        return isinstance(self.values, np.ndarray)

    @cached_property
    def places(self) -> Places:
        """The values as text; whole numbers without a decimal point."""
        if isinstance(self.values, Places):
            return self.values
        return number_places(self.values) if isinstance(self.values, np.ndarray) else text_places(self.values)

    def texts(self) -> list[str | None]:
        """The values as text, row by row."""
        names, of = self.places
        return [names[place] for place in of.tolist()]

    def numbers(self) -> NDArray[np.float64]:
        """The values as numbers, infinite where a text is none."""
        if isinstance(self.values, np.ndarray):
            return self.values
        parsed = None if isinstance(self.values, Places) else numbers_in(self.values)
        return np.array([number_in(name) for name in self.places.names])[self.places.of] if parsed is None else parsed


class TablePart(NamedTuple):
    """The rows that came from one file, or from one stretch of it."""

    file: str
    agent: str  # the file's name without its ending
    lines: NDArray[np.intp] | None  # [n] where in a text file each row ends
    rows: int
    first: int = 0  # the rows of the file before them
    broken: tuple[int, ...] = ()  # the lines of a text file that are no rows, and were left out


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, from one file or from a folder of files; or some rows of such a table."""

    columns: dict[str, Column]
    parts: tuple[TablePart, ...]
    folder: bool = False  # one file for each agent

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(part.rows for part in self.parts)

    def column(self, name: str) -> Column:
        """A column by name."""
        if name not in self.columns:
            raise unknown_name("column", name, self.columns)
        return self.columns[name]

    def places(self, name: str) -> Places:
        """A column's different texts, and each row's place among them."""
        return self.column(name).places

    def texts(self, name: str) -> list[str | None]:
        """A column's values as text, None where missing."""
        return self.column(name).texts()

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column's values as numbers, NaN where missing."""
        numbers = self.column(name).numbers()
        bad = np.isinf(numbers)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(f"column '{name}': '{self.texts(name)[row]}' {self.where(row)} is not a number")
        return numbers

    def where(self, row: int) -> str:
        """Where a row stands, for a person with the file open."""
        for part in self.parts:
            if row < part.rows:
                place = f"in row {part.first + row + 1}" if part.lines is None else f"on line {part.lines[row]}"
                return f"{place} of {part.file}"
            row -= part.rows
        return "in no file"


class TableFile(NamedTuple):
    """A file before its records are read."""

    name: str
    columns: tuple[str, ...]
    most: int  # rows: not more than these
    chunks: Callable[[Collection[str], int], Iterator[Table]]  # (columns that are wanted, rows at a time) -> the rows


def text_column(cells: Iterable[str | None]) -> Column:
    """A column of texts."""
    return Column(text_places(cells))


def join_tables(tables: Sequence[Table], folder: bool) -> Table:
    """One table below the other; where a column has numbers and texts, text wins."""
    columns = {name: _join([table.columns[name] for table in tables]) for name in tables[0].columns}
    return Table(columns, tuple(part for table in tables for part in table.parts), folder)


def _join(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    if all(column.numeric for column in columns):
        return Column(np.concatenate([column.numbers() for column in columns]))
    return text_column(text for column in columns for text in column.texts())
