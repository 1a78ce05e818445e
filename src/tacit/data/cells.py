"""A table once it is read: columns of numbers or of text, and where each row came from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError, no_such

MISSING = frozenset({"", "na", "nan", "null"})  # in any case


def is_missing(text: str) -> bool:
    """Whether a cell's text stands for no value."""
    return text.strip().lower() in MISSING


@dataclass(frozen=True, eq=False)
class Column:
    """One column; a missing value is NaN among numbers and None among texts."""

    values: NDArray[Any]  # [n] float64, or object: str | None

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers already."""
        return self.values.dtype.kind == "f"

    def texts(self) -> list[str | None]:
        """The values as text; whole numbers without a decimal point."""
        if not self.numeric:
            return list(self.values)
        return [None if math.isnan(v) else _plain(v) for v in self.values.tolist()]


class Part(NamedTuple):
    """The rows that came from one file."""

    file: str
    agent: str  # the file's name without its ending
    lines: NDArray[np.intp] | None  # [n] where in a text file each row ends
    rows: int


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, from one file or from a folder of files."""

    columns: dict[str, Column]
    parts: tuple[Part, ...]
    folder: bool  # one file for each agent

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(part.rows for part in self.parts)

    def column(self, name: str) -> Column:
        """A column by name."""
        if name not in self.columns:
            raise no_such("column", name, self.columns)
        return self.columns[name]

    def texts(self, name: str) -> list[str | None]:
        """A column's values as text, None where missing."""
        return self.column(name).texts()

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column's values as numbers, NaN where missing."""
        column = self.column(name)
        if column.numeric:
            numbers = column.values
        else:
            numbers = np.array([_number(text) for text in column.values], dtype=np.float64)
        bad = np.flatnonzero(np.isinf(numbers))
        if len(bad):
            text = self.texts(name)[bad[0]]
            raise InputError(f"column '{name}': '{text}' {self.where(bad[0])} is not a number")
        return numbers

    def where(self, row: int) -> str:
        """Where a row stands, for a person with the file open."""
        for part in self.parts:
            if row < part.rows:
                place = f"in row {row + 1}" if part.lines is None else f"on line {part.lines[row]}"
                return f"{place} of {part.file}"
            row -= part.rows
        return "in no file"

    def file_agents(self) -> list[str]:
        """Each row's agent where every agent has a file."""
        return [part.agent for part in self.parts for _ in range(part.rows)]


def text_column(cells: Sequence[str | None]) -> Column:
    """Texts without the blanks around them; those that stand for no value become None."""
    values = np.empty(len(cells), dtype=object)
    values[:] = [None if cell is None or is_missing(cell) else cell.strip() for cell in cells]
    return Column(values)


def join_columns(columns: Sequence[Column]) -> Column:
    """One column below the other; text wins over numbers."""
    if all(column.numeric for column in columns):
        return Column(np.concatenate([column.values for column in columns]))
    return text_column([text for column in columns for text in column.texts()])


def is_number(text: str) -> bool:
    """Whether a cell's text is a finite number."""
    return math.isfinite(_number(text))


def _number(text: str | None) -> float:
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
