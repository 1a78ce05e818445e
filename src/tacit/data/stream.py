"""A table goes by in chunks: features and labels are encoded, and what is needed of every row is kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.assemble import Records
from tacit.data.cells import Table
from tacit.data.columns import TableFiles
from tacit.data.encode import Tally, read_label, scale_columns
from tacit.data.roll import Roll
from tacit.data.room import Room
from tacit.data.schema import Schema
from tacit.data.units import record_draws
from tacit.errors import InputError
from tacit.mapped import give_back
from tacit.types import Classes

CELLS = 2**21  # of a chunk


class Wanted(NamedTuple):
    """What is wanted of a table beside its features and labels."""

    intercept: bool
    owners: bool = False  # whose records they are: the schema's agent column, else the files
    units: bool = False
    draws: int | None = None  # each record's own draw, by this seed


class Stream:
    """A table's rows, encoded; with what was wanted of each."""

    def __init__(self, table: TableFiles, schema: Schema, wanted: Wanted, room: Room) -> None:
        """Read all of it."""
        self._schema, self._wanted, target = schema, wanted, schema.target
        self.owners, self.units, self.tally, self.rows = Roll(), Roll(), Tally(), 0
        self._x = room.empty(table.most, len(schema.features) + wanted.intercept)
        kind = np.min_scalar_type(target.width - 1) if isinstance(target, Classes) else np.dtype(np.float64)
        self._labels = np.empty(table.most, kind)
        self._draws = np.empty(0 if wanted.draws is None else table.most)
        columns = self._columns(table)
        chunks = table.chunks(columns, chunk_rows(max(len(columns), self._x.shape[1])))
        while (chunk := next(chunks, None)) is not None:
            self._add(chunk)
            del chunk  # before the next one is read

    @property
    def records(self) -> Records:
        """The features and labels."""
        return Records(self._x[: self.rows], self._labels[: self.rows], encoded=True)

    @property
    def draws(self) -> NDArray[np.float64]:
        """Each record's draw, [n]."""
        return self._draws[: self.rows]

    @property
    def notes(self) -> list[str]:
        """What had to be done to the values."""
        return self.tally.notes(self._schema)

    def _columns(self, table: TableFiles) -> tuple[str, ...]:
        """Those to read, in the order in which their errors are said."""
        schema, wanted = self._schema, self._wanted
        unit = [schema.unit.column] if wanted.units and schema.unit else []
        agent = [schema.agent] if wanted.owners and schema.agent else []
        return (*(rule.name for rule in schema.columns), schema.label, *unit, *agent)

    def _add(self, chunk: Table) -> None:
        schema, wanted = self._schema, self._wanted
        x, labels = scale_columns(chunk, schema, self.tally), read_label(chunk, schema, self.tally)
        rows = slice(self.rows, self.rows + chunk.rows)
        if rows.stop > len(self._x):
            raise InputError(f"{chunk.parts[0].file} grew while it was read: leave it alone until it is loaded")
        self._x[rows, : x.shape[1]], self._x[rows, x.shape[1] :], self._labels[rows] = x, 1, labels
        if wanted.draws is not None:
            self._draws[rows] = record_draws(x, labels, wanted.draws)
        if wanted.units and schema.unit:
            self.units.call(chunk, schema.unit.column, "unit", ": every record needs its unit")
        if wanted.owners and schema.agent:
            self.owners.call(chunk, schema.agent, "agent")
        elif wanted.owners:
            self.owners.add([chunk.parts[0].agent], np.zeros(chunk.rows, np.intp))
        give_back(self._x[rows])
        self.rows = rows.stop


def chunk_rows(width: int) -> int:
    """How many rows of so many cells make a chunk."""
    return max(1, CELLS // width)
