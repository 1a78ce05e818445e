"""Cells of a table: missing values, numbers, typed columns, and tables in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.errors import InputError, unknown_column

MISSING = frozenset({"", "na", "nan", "null"})  # in any case


def is_missing(text: str) -> bool:
    """Return whether a cell's text stands for a missing value.

    Examples
    --------
    >>> is_missing(" NaN "), is_missing("0")
    (True, False)
    """
    return text.strip().lower() in MISSING


class Factorized(NamedTuple):
    """A column's distinct texts in the order of their first rows, and each row's position among them."""

    names: tuple[str | None, ...]  # None: missing
    codes: NDArray[np.intp]  # [n]


def factorize(cells: Iterable[str | None]) -> Factorized:
    """Factorize texts, without surrounding blanks; texts that stand for a missing value become None.

    Examples
    --------
    >>> factorize(["b", " b", "NA", "a"])
    Factorized(names=('b', None, 'a'), codes=array([0, 0, 1, 2]))
    """
    found: dict[str | None, int] = {}
    codes = np.array([found.setdefault(cell, len(found)) for cell in cells], dtype=np.intp)
    return clean_factor(tuple(found), codes)


def clean_factor(names: Sequence[str | None], codes: NDArray[np.intp]) -> Factorized:
    """Clean factorized texts as `factorize` does; texts that become equal get one position."""
    found: dict[str | None, int] = {}
    clean = (None if name is None or is_missing(name) else name.strip() for name in names)
    positions = np.array([found.setdefault(name, len(found)) for name in clean], dtype=np.intp)
    return Factorized(tuple(found), positions[codes])


def _factorize_numbers(numbers: NDArray[np.float64]) -> Factorized:
    """Factorize numbers as texts: integers without a decimal point, NaN as None."""
    values, first, codes = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    texts = (None if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in values[order].tolist())
    return Factorized(tuple(texts), ranks[codes])


def parse_number(text: str | None) -> float:
    """Return a cell's number: NaN for a missing value, and infinity for text that is not a finite number."""
    if text is None:
        return math.nan
    if "_" in text or not text.isascii():  # float() accepts 1_000 and the digits of every script
        return math.inf
    try:
        value = float(text)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf


def whole_number(text: str) -> int | None:
    """Return the whole number that a text stands for, or None.

    Examples
    --------
    >>> whole_number("1.0"), whole_number("01"), whole_number("1.5")
    (1, 1, None)
    """
    value = parse_number(text)
    return int(value) if math.isfinite(value) and value.is_integer() else None


def unit_name(text: str) -> str:
    """Return the name of the unit that a cell's text stands for: 7, 7.0 and 07 are one unit.

    Two numbers that are different have different names, also those that a floating-point number cannot tell apart.

    Examples
    --------
    >>> unit_name("7.0"), unit_name("007"), unit_name("p7"), unit_name("7.5")
    ('7', '7', 'p7', '7.5')
    >>> unit_name("9007199254740993.0")
    '9007199254740993'
    """
    text = text.strip()
    if not math.isfinite(parse_number(text)):
        return text
    number = Decimal(text)
    whole = number.to_integral_value()
    return str(int(whole)) if whole == number else text


def _parse_numbers(cells: tuple[str, ...]) -> NDArray[np.float64] | None:
    """Parse cells quickly if all of them are finite numbers; otherwise return None."""
    text = "".join(cells)
    if "_" in text or not text.isascii():
        return None
    try:
        numbers = np.array([float(cell) for cell in cells])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


@dataclass(frozen=True, eq=False)
class Column:
    """One column: numbers with NaN for missing values, factorized texts, or the raw cells of a text file."""

    values: NDArray[np.float64] | Factorized | tuple[str, ...]

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers already."""
        return isinstance(self.values, np.ndarray)

    @cached_property
    def factorized(self) -> Factorized:
        """The values as factorized texts; integers without a decimal point."""
        if isinstance(self.values, Factorized):
            return self.values
        return _factorize_numbers(self.values) if isinstance(self.values, np.ndarray) else factorize(self.values)

    def texts(self) -> list[str | None]:
        """Return the values as texts, None for missing values."""
        names, codes = self.factorized
        return [names[code] for code in codes.tolist()]

    def numbers(self) -> NDArray[np.float64]:
        """Return the values as numbers: NaN for missing values, infinity for text that is not a number."""
        if isinstance(self.values, np.ndarray):
            return self.values
        parsed = None if isinstance(self.values, Factorized) else _parse_numbers(self.values)
        if parsed is None:
            parsed = np.array([parse_number(name) for name in self.factorized.names])[self.factorized.codes]
        return parsed


class Place(NamedTuple):
    """Where a row of a table is."""

    kind: str  # line, of a text file, or row
    number: int
    file: str


def places_in_words(places: Sequence[Place], count: int) -> str:
    """Return the first of `count` places in words, those in one file together.

    Examples
    --------
    >>> places_in_words([Place("line", 3, "a.csv"), Place("line", 5, "a.csv"), Place("row", 1, "b.parquet")], 4)
    'lines 3, 5 of a.csv, row 1 of b.parquet, …'
    >>> places_in_words([Place("line", 3, "a.csv"), Place("line", 5, "a.csv")], 3)
    'lines 3, 5, … of a.csv'
    """
    groups = [(group, list(those)) for group, those in groupby(places, lambda place: (place.kind, place.file))]
    more, words = count > len(places), []
    for (kind, file), those in groups:
        cut = ", …" if more and len(groups) == 1 else ""
        words.append(f"{kind}{'s' * (len(those) > 1)} {', '.join(str(place.number) for place in those)}{cut} of {file}")
    return ", ".join([*words, *(["…"] if more and len(groups) > 1 else [])])


class TablePart(NamedTuple):
    """The rows that came from one file, or from a section of it."""

    file: str
    agent: str  # the file's name without its extension
    lines: NDArray[np.intp] | None  # [n]  the line of a text file on which each row ends
    rows: int
    first: int = 0  # the number of rows before them in the file
    broken: tuple[int, ...] = ()  # lines of a text file that are not rows and were left out


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, from one file or a folder of files; or some rows of such a table."""

    columns: dict[str, Column]
    parts: tuple[TablePart, ...]
    folder: bool = False  # one file per agent

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(part.rows for part in self.parts)

    def column(self, name: str) -> Column:
        """Return a column; raise InputError if there is none of that name."""
        if name not in self.columns:
            raise unknown_column(name, self.columns)
        return self.columns[name]

    def texts(self, name: str) -> list[str | None]:
        """Return a column's values as texts, None for missing values."""
        return self.column(name).texts()

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column's values as numbers, NaN for missing values; raise InputError for other text."""
        numbers = self.column(name).numbers()
        bad = np.isinf(numbers)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(f"column '{name}': the cell {self.where(row)} is not a number")
        return numbers

    def place(self, row: int) -> Place:
        """Return where a row is, for people who have the file open."""
        for part in self.parts:
            if row < part.rows:
                number = part.first + row + 1 if part.lines is None else int(part.lines[row])
                return Place("row" if part.lines is None else "line", number, part.file)
            row -= part.rows
        raise IndexError(f"the table has no row {row}")

    def where(self, row: int) -> str:
        """Return where a row is in words: "on line 3 of a.csv"."""
        place = self.place(row)
        return f"{'in' if place.kind == 'row' else 'on'} {places_in_words([place], 1)}"


def join_tables(tables: Sequence[Table], folder: bool) -> Table:
    """Concatenate tables; a column that has numbers and texts becomes text."""
    columns = {name: _join([table.columns[name] for table in tables]) for name in tables[0].columns}
    return Table(columns, tuple(part for table in tables for part in table.parts), folder)


def _join(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    if all(column.numeric for column in columns):
        return Column(np.concatenate([column.numbers() for column in columns]))
    return Column(factorize(text for column in columns for text in column.texts()))
