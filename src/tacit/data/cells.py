"""A table once it is read: columns of numbers or of text, and where each row came from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.texts import Places, number_in, number_places, numbers_in, text_places
from tacit.errors import InputError, no_such


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


class Part(NamedTuple):
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
    parts: tuple[Part, ...]
    folder: bool = False  # one file for each agent

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(part.rows for part in self.parts)

    def column(self, name: str) -> Column:
        """A column by name."""
        if name not in self.columns:
            raise no_such("column", name, self.columns)
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
