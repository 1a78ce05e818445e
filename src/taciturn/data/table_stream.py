"""Reading a table in chunks: encode features and labels, and keep the little that later steps need of every row."""

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


class GroupIndex:
    """The different names in the order of their first rows, and each row's place among them."""

    def __init__(self) -> None:
        """Empty."""
        self._places: dict[str, int] = {}
        self._of: list[NDArray[np.int32]] = []

    def call(self, table: Table, column: str, kept: NDArray[np.bool_]) -> None:
        """Add the rows of a chunk that are kept, by one of its columns, which names all of them."""
        names, of = table.places(column)
        used = np.unique(of[kept])
        ranks = np.zeros(len(names), dtype=np.intp)
        ranks[used] = np.arange(len(used))
        self.add([str(names[place]) for place in used], ranks[of[kept]])

    def add(self, names: Sequence[str], of: NDArray[np.intp]) -> None:
        """Add rows by their places among some names; a name may be without rows."""
        places = [self._places.setdefault(name, len(self._places)) for name in names]
        self._of.append(np.array(places, dtype=np.int32)[of])

    @property
    def names(self) -> tuple[str, ...]:
        """The different names."""
        return tuple(self._places)

    @property
    def of(self) -> NDArray[np.int32]:
        """Each row's place among the names, [n]."""
        return np.concatenate([np.empty(0, np.int32), *self._of])


CELLS = 2**21  # of a chunk


class Wanted(NamedTuple):
    """What is wanted of a table beside its features and labels."""

    intercept: bool
    owners: bool = False  # whose records they are: the schema's agent column, else the files
    units: bool = False
    key: int = 0  # of the draws
    draws: tuple[bytes, ...] = ()  # each record's own draws, by what they are for


class Stream:
    """A table's records, encoded; with what was wanted of each.

    A row without a label, or without the unit or the agent that is wanted, is no record and is left out.
    """

    def __init__(self, table: TableFiles, schema: Schema, wanted: Wanted, room: ArrayAllocator) -> None:
        """Read all of it."""
        self._schema, self._wanted, target = schema, wanted, schema.target
        self.owners, self.units, self.tally, self.rows = GroupIndex(), GroupIndex(), Tally(), 0
        self._x = room.empty(table.most, len(schema.features) + wanted.intercept)
        kind = np.min_scalar_type(target.width - 1) if isinstance(target, Classes) else np.dtype(np.float64)
        self._labels = np.empty(table.most, kind)
        self._draws = {purpose: np.empty(table.most) for purpose in wanted.draws}
        if wanted.owners:  # a party is there also where it has no records
            known = schema.agents if schema.agent else table.agents
            self.owners.add(known, np.empty(0, np.intp))
        columns = self._columns(table)
        chunks = table.chunks(columns, chunk_rows(max(len(columns), self._x.shape[1])))
        while (chunk := next(chunks, None)) is not None:
            self._add(chunk)
            del chunk  # before the next one is read

    @property
    def records(self) -> RawRecords:
        """The features and labels."""
        return RawRecords(self._x[: self.rows], self._labels[: self.rows], encoded=True)

    def draws(self, purpose: bytes) -> NDArray[np.float64]:
        """Each record's draw for a purpose, [n]."""
        return self._draws[purpose][: self.rows]

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
        for part in chunk.parts:
            self.tally.add_places("", LEFT_OUT, len(part.broken), [f"line {n} of {part.file}" for n in part.broken])
        if not chunk.rows:
            return
        x = scale_columns(chunk, schema, self.tally)
        labels, labelled = read_label(chunk, schema, self.tally)
        kept = self._kept(chunk, labelled)
        x, labels = (x, labels) if kept.all() else (x[kept], labels[kept])
        rows = slice(self.rows, self.rows + len(x))
        if rows.stop > len(self._x):
            raise InputError(f"{chunk.parts[0].file} grew while it was read: leave it alone until it is loaded")
        self._x[rows, : x.shape[1]], self._x[rows, x.shape[1] :], self._labels[rows] = x, 1, labels
        for purpose, draws in self._draws.items():
            draws[rows] = record_draws(x, labels, wanted.key, purpose)
        if wanted.units and schema.unit:
            self.units.call(chunk, schema.unit.column, kept)
        if wanted.owners and schema.agent:
            self.owners.call(chunk, schema.agent, kept)
        elif wanted.owners:
            self.owners.add([chunk.parts[0].agent], np.zeros(len(x), np.intp))
        release_memory(self._x[rows])
        self.rows = rows.stop

    def _kept(self, chunk: Table, labelled: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which rows have all that a record needs; the others are counted."""
        schema, wanted = self._schema, self._wanted
        self.tally.add(chunk, schema.label, LEFT_OUT, ~labelled)
        kept = labelled
        if wanted.units and schema.unit:
            kept = kept & self._named(chunk, schema.unit.column)
        if wanted.owners and schema.agent:
            named = self._named(chunk, schema.agent, schema.agents)
            if not schema.agents:
                self.owners.add([n for n in chunk.places(schema.agent).names if n is not None], np.empty(0, np.intp))
            kept = kept & named
        return kept

    def _named(self, chunk: Table, column: str, known: tuple[str, ...] = ()) -> NDArray[np.bool_]:
        """Which rows have a name, one of those known where these were declared."""
        names, of = chunk.places(column)
        good = (name is not None and (not known or name in known) for name in names)
        named = np.fromiter(good, np.bool_, len(names))[of]
        self.tally.add(chunk, column, LEFT_OUT, ~named)
        return named


def chunk_rows(width: int) -> int:
    """How many rows of so many cells make a chunk."""
    return max(1, CELLS // width)
