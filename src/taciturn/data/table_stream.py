"""Read a table in chunks: encode features and labels, and keep each row's agent, unit and draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import release_memory
from taciturn.data.allocation import ArrayAllocator
from taciturn.data.assemble import RawRecords
from taciturn.data.encoding import LEFT_OUT, Tally, read_label, scale_columns
from taciturn.data.partition import record_draws
from taciturn.data.schema import Schema
from taciturn.data.table_cells import Table
from taciturn.data.table_io import TableFiles
from taciturn.errors import InputError
from taciturn.types import Classes

CELLS = 2**21  # per chunk


class RowGroups:
    """Groups of rows by name, built chunk by chunk."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def add(self, names: Sequence[str], codes: NDArray[np.intp]) -> None:
        """Add rows whose groups are names[codes]; a name may have no rows."""
        positions = [self._positions.setdefault(name, len(self._positions)) for name in names]
        self._codes.append(np.array(positions, dtype=np.int32)[codes])

    def add_column(self, table: Table, column: str, kept: NDArray[np.bool_]) -> None:
        """Add the kept rows of a chunk, whose groups a column names."""
        names, codes = table.column(column).factorized
        used, ranks = np.unique(codes[kept], return_inverse=True)
        self.add([str(names[code]) for code in used], ranks)

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' names, in the order in which they were added."""
        return tuple(self._positions)

    @property
    def codes(self) -> NDArray[np.int32]:
        """Each row's group, as a position in `names`, [n]."""
        return np.concatenate([np.empty(0, np.int32), *self._codes])


class ReadOptions(NamedTuple):
    """What to read from a table besides features and labels."""

    intercept: bool
    agents: bool = False  # each row's agent: by the schema's agent column, else by file
    units: bool = False  # each row's unit of privacy
    key: int = 0  # of the draws
    draws: tuple[bytes, ...] = ()  # purposes of each record's draws


class EncodedTable:
    """A table's encoded records, with each row's agent, unit and draws as far as requested.

    A row without a label, or without a requested unit or agent, is not a record and is left out.

    Parameters
    ----------
    table : TableFiles
        The table, which is read completely.
    schema : Schema
        Its schema.
    read : ReadOptions
        What to read.
    allocator : ArrayAllocator
        Where to store the features.
    """

    def __init__(self, table: TableFiles, schema: Schema, read: ReadOptions, allocator: ArrayAllocator) -> None:
        self._schema, self._read, target = schema, read, schema.target
        self.agents, self.units, self._tally, self.rows = RowGroups(), RowGroups(), Tally(), 0
        self._x = allocator.empty(table.most, len(schema.features) + read.intercept)
        kind = np.min_scalar_type(target.width - 1) if isinstance(target, Classes) else np.dtype(np.float64)
        self._labels = np.empty(table.most, kind)
        self._draws = {purpose: np.empty(table.most) for purpose in read.draws}
        self._unit = schema.unit.column if read.units and schema.unit else None
        self._agent = schema.agent if read.agents else None
        if read.agents:  # an agent without records exists too
            self.agents.add(schema.agents if schema.agent else table.agents, np.empty(0, np.intp))
        optional = (name for name in (self._unit, self._agent) if name)
        columns = (*(rule.name for rule in schema.columns), schema.label, *optional)
        chunks = table.chunks(columns, chunk_rows(max(len(columns), self._x.shape[1])))
        while (chunk := next(chunks, None)) is not None:
            self._add(chunk)
            del chunk  # before the next one is read

    @property
    def records(self) -> RawRecords:
        """The features and labels."""
        return RawRecords(self._x[: self.rows], self._labels[: self.rows], encoded=True)

    def draws(self, purpose: bytes) -> NDArray[np.float64]:
        """Return each record's draw for a purpose, [n]."""
        return self._draws[purpose][: self.rows]

    @property
    def notes(self) -> list[str]:
        """What encoding changed in the values."""
        return self._tally.notes(self._schema)

    def _add(self, chunk: Table) -> None:
        schema = self._schema
        for part in chunk.parts:
            broken = [f"line {n} of {part.file}" for n in part.broken]
            self._tally.add_places("", LEFT_OUT, len(broken), broken)
        if not chunk.rows:
            return
        x = scale_columns(chunk, schema, self._tally)
        labels, labelled = read_label(chunk, schema, self._tally)
        kept = self._kept(chunk, labelled)
        x, labels = (x, labels) if kept.all() else (x[kept], labels[kept])
        rows = slice(self.rows, self.rows + len(x))
        if rows.stop > len(self._x):
            raise InputError(f"{chunk.parts[0].file} grew while it was read: do not change it until it is loaded")
        self._x[rows, : x.shape[1]], self._x[rows, x.shape[1] :], self._labels[rows] = x, 1, labels
        for purpose, draws in self._draws.items():
            draws[rows] = record_draws(x, labels, self._read.key, purpose)
        if self._unit:
            self.units.add_column(chunk, self._unit, kept)
        if self._agent:
            self.agents.add_column(chunk, self._agent, kept)
        elif self._read.agents:
            self.agents.add([chunk.parts[0].agent], np.zeros(len(x), np.intp))
        release_memory(self._x[rows])
        self.rows = rows.stop

    def _kept(self, chunk: Table, labelled: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows are records, and count the others."""
        schema = self._schema
        self._tally.add(chunk, schema.label, LEFT_OUT, ~labelled)
        kept = labelled
        if self._unit:
            kept = kept & self._named(chunk, self._unit)
        if self._agent:
            kept = kept & self._named(chunk, self._agent, schema.agents)
            if not schema.agents:
                names = chunk.column(self._agent).factorized.names
                self.agents.add([name for name in names if name is not None], np.empty(0, np.intp))
        return kept

    def _named(self, chunk: Table, column: str, known: tuple[str, ...] = ()) -> NDArray[np.bool_]:
        """Return which rows have a name in a column; one of those known, if any are declared."""
        names, codes = chunk.column(column).factorized
        good = (name is not None and (not known or name in known) for name in names)
        named = np.fromiter(good, np.bool_, len(names))[codes]
        self._tally.add(chunk, column, LEFT_OUT, ~named)
        return named


def chunk_rows(width: int) -> int:
    """Return the number of rows in a chunk, for rows of so many cells."""
    return max(1, CELLS // width)
