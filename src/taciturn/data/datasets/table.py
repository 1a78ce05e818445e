"""The user's own table with a schema, read and encoded in chunks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import release_memory
from taciturn.data.allocation import ArrayAllocator, allocator_for, feature_rows, join_rows
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import PARTITION_OPTIONS, SOURCES, TABLE, DataOptions, Source
from taciturn.data.encoding import LEFT_OUT, Tally, drawn_features, read_label, read_weights, scale_columns
from taciturn.data.feature_maps import BINS
from taciturn.data.partition import (
    ASSIGNMENT,
    HOLD_OUT,
    Partition,
    Units,
    held_together,
    hold_out,
    limit_unit_rows,
    partition_by_name,
    partition_records,
    partition_units,
    record_draws,
    unit_draws,
    uses_draws,
)
from taciturn.data.schema import Schema
from taciturn.data.table_cells import Place, Table, unit_name
from taciturn.data.table_io import TableFiles, names_agents, open_table, table_name, table_schema
from taciturn.errors import InputError
from taciturn.types import Classes, Dataset

CELLS = 2**21  # per chunk
MANY_LEFT_OUT = 0.1  # of a table's rows: more are hardly meant
NO_ROWS = np.empty(0, np.intp)


def load(options: DataOptions) -> Dataset:
    """Load a table: features by its schema; agents by its agent column, by file, or by partition.

    Raises
    ------
    InputError
        If the table, its schema or the options are invalid, or no row is a record.
    """
    table, schema = open_table(options.data), table_schema(options)
    test_table = open_table(options.test) if options.test else None
    if test_table and options.private and Path(options.test).resolve() == Path(options.data).resolve():
        raise InputError(
            f"test is {options.test}, which is also the training table: a table given with --test counts as public, "
            "and results on it are published; use --test-share, whose results stay with the owner"
        )
    width = len(schema.features) + options.intercept + schema.target.width + schema.weighted
    allocator = allocator_for(options, table.most + (test_table.most if test_table else 0), width)
    rows = EncodedTable(table, schema, options, allocator)
    if not (rows.rows or options.private):
        why = "; ".join(rows.notes) or "there is none below the header"
        raise InputError(f"no row of {table_name(options)} is a record: {why}")
    partition, notes = _partition(rows), list(rows.notes)
    if rows.units is not None:
        partition, cut = limit_unit_rows(partition, rows.units)
        notes += cut
    test = None
    counts: tuple[int, ...] = ()
    if test_table is not None:
        encoded = EncodedTable(test_table, schema, options, allocator, test=True)
        test = encoded.records
        notes += [f"test table: {note}" for note in encoded.notes]
    elif options.test_share:
        kind = "record" if rows.units is None else "unit"
        whole = partition
        partition, held = hold_out(whole, rows.draws(HOLD_OUT), options.test_share, kind, options.private)
        notes += [] if rows.units is not None else held_together(rows.draws(HOLD_OUT), options.test_share, len(held))
        if len(held):
            counts = tuple(len(a) - len(b) for a, b in zip(whole.records, partition.records, strict=True))
            x, labels = rows.records.x, rows.records.labels[held]
            test = RawRecords(feature_rows(x, 1, join_rows([held]), x.shape[1], allocator), labels, encoded=True)
    known = {schema.label, schema.agent, schema.unit and schema.unit.column, schema.weight and schema.weight.column}
    known |= {rule.name for rule in schema.columns}
    ignored = ", ".join(name for name in table.columns if name not in known)
    notes += [f"columns not in the schema were ignored: {ignored}"] if ignored else []
    dataset = assemble(
        table_name(options),
        options,
        rows.records,
        partition,
        features=schema.features,
        target=schema.target,
        test=test,
        notes=notes,
        allocator=allocator,
    )
    return replace(dataset, held_out=counts, rows=rows.read, warnings=_warnings(rows))


def _warnings(rows: EncodedTable) -> tuple[str, ...]:
    """Return why the owner should doubt that the table is read as it is meant; a private run cannot refuse it."""
    if not rows.rows:
        table = f"none of the {rows.read:,} rows is a record" if rows.read else "the table has no rows"
        return (f"the model has learned nothing: {table}",)
    target, left_out, found = rows.schema.target, rows.read - rows.rows, []
    if isinstance(target, Classes):
        counts = np.bincount(rows.records.labels, minlength=target.width)
        unseen = [f"'{name}'" for name, count in zip(target.names, counts, strict=True) if not count]
        found = [f"no row has the class {' or '.join(unseen)}"] if unseen else []
    if left_out > MANY_LEFT_OUT * rows.read:
        found.append(f"{left_out:,} of {rows.read:,} rows were left out")
    where = "the schema's classes, agents and other names"
    return (f"{' and '.join(found)}: are {where} spelled as in the table?",) if found else ()


def _partition(rows: EncodedTable) -> Partition:
    """Return the agents that the table names or, if it names none, those of a partition."""
    options, schema, labels = rows.options, rows.schema, rows.records.labels
    if not names_agents(options, schema):
        draws = rows.draws(ASSIGNMENT) if uses_draws(options) else None
        if rows.units is not None:
            return partition_units(options, rows.units, labels, schema.target, draws)
        return partition_records(options, labels, schema.target, draws)
    names = rows.agents.names
    if not names:
        raise InputError(f"column '{schema.agent}' is empty: every record needs an agent")
    if options.partition not in ("in-order", "hashed", "column"):
        raise InputError(f"partition is {options.partition}, but the table names its agents: remove it or use column")
    if options.agents not in (DataOptions.agents, len(names)):
        raise InputError(f"agents is {options.agents}, but the table names {len(names)} agents")
    return partition_by_name(names, rows.agents.codes)


class RowGroups:
    """Groups of rows by name, built chunk by chunk."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def add(self, names: Sequence[str], codes: NDArray[np.intp] = NO_ROWS) -> None:
        """Add rows whose groups are names[codes]; a name may have no rows."""
        positions = [self._positions.setdefault(name, len(self._positions)) for name in names]
        self._codes.append(np.array(positions, dtype=np.int32)[codes])

    def add_column(self, table: Table, column: str, kept: NDArray[np.bool_], name: Callable[[str], str] = str) -> None:
        """Add the kept rows of a chunk, whose groups a column names; `name` is what a cell's text stands for."""
        names, codes = table.column(column).factorized
        used, ranks = np.unique(codes[kept], return_inverse=True)
        self.add([name(str(names[code])) for code in used], ranks)

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' names, in the order in which they were added."""
        return tuple(self._positions)

    @property
    def codes(self) -> NDArray[np.int32]:
        """Each row's group, as a position in `names`, [n]."""
        return np.concatenate([np.empty(0, np.int32), *self._codes])


class EncodedTable:
    """A table's encoded records, with the agent, the unit and the draws of each, as far as the options need them.

    A row without a label, or without a unit or agent that is needed, is not a record and is left out.

    Parameters
    ----------
    table : TableFiles
        The table, which is read completely.
    schema : Schema
        Its schema.
    options : DataOptions
        How the records will be used.
    allocator : ArrayAllocator
        Where to store the features.
    test : bool
        Whether it is a test table, of which only features and labels are needed: results on it are not weighted.
    """

    def __init__(
        self, table: TableFiles, schema: Schema, options: DataOptions, allocator: ArrayAllocator, test: bool = False
    ) -> None:
        self.schema, self.options, target = schema, options, schema.target
        self.agents, self._units, self._tally, self.rows, self.read = RowGroups(), RowGroups(), Tally(), 0, 0
        named = not test and names_agents(options, schema)
        self._by_file = named and not schema.agent
        self._agent = schema.agent if named else None
        self._unit = schema.unit.column if schema.unit and not test else None
        purposes = [HOLD_OUT] * bool(options.test_share) + [ASSIGNMENT] * (uses_draws(options) and not named)
        self._draws = {purpose: np.empty(table.most) for purpose in purposes if not (test or schema.unit)}
        self._x = allocator.empty(table.most, len(schema.features) + options.intercept)
        kind = np.min_scalar_type(target.width - 1) if isinstance(target, Classes) else np.dtype(np.float64)
        self._labels = np.empty(table.most, kind)
        self._weights = np.empty(table.most, allocator.dtype) if schema.weighted and not test else None
        if named:  # an agent without records exists too
            self.agents.add(schema.agents if schema.agent else table.agents)
        weight = schema.weight.column if schema.weight and not test else None
        needed = (name for name in (self._unit, self._agent, weight) if name)
        columns = (*(rule.name for rule in schema.columns), schema.label, *needed)
        chunks = table.chunks(columns, chunk_rows(max(len(columns), self._x.shape[1])))
        while (chunk := next(chunks, None)) is not None:
            self._add(chunk)
            del chunk  # before the next one is read

    @property
    def records(self) -> RawRecords:
        """The features, labels and weights."""
        weights = None if self._weights is None else self._weights[: self.rows]
        return RawRecords(self._x[: self.rows], self._labels[: self.rows], encoded=True, weights=weights)

    @property
    def units(self) -> Units | None:
        """The unit of privacy of each record; None: every record is a unit."""
        return Units(self.schema.unit, self._units.names, self._units.codes) if self.schema.unit else None

    @property
    def notes(self) -> list[str]:
        """What encoding changed in the values, and which columns it could not read."""
        rows = self.read - self._tally.counts["", LEFT_OUT]
        return self._tally.notes(self.schema) + self._tally.unreadable(self.schema, rows)

    def draws(self, purpose: bytes) -> NDArray[np.float64]:
        """Return the draw of each record, or of its unit, for a purpose, [n]."""
        units = self.units
        if units is not None:
            return unit_draws(units, self.options.partition_key, purpose)
        return self._draws[purpose][: self.rows]

    def _add(self, chunk: Table) -> None:
        for part in chunk.parts:
            broken = [Place("line", n, part.file) for n in part.broken]
            self._tally.add_places("", LEFT_OUT, len(broken), broken)
            self.read += part.rows + len(broken)
        if not chunk.rows:
            return
        x = scale_columns(chunk, self.schema, self._tally)
        labels, labelled = read_label(chunk, self.schema, self._tally)
        kept = self._kept(chunk, labelled)
        weights = None if self._weights is None else read_weights(chunk, self.schema, labels, self._tally)
        drawn = drawn_features(chunk, self.schema, x) if self._draws else x
        if not kept.all():
            x, drawn, labels = x[kept], drawn[kept], labels[kept]
        rows = slice(self.rows, self.rows + len(x))
        if rows.stop > len(self._x):
            raise InputError(f"{chunk.parts[0].file} grew while it was read: do not change it until it is loaded")
        self._x[rows, : x.shape[1]], self._x[rows, x.shape[1] :], self._labels[rows] = x, 1, labels
        if self._weights is not None and weights is not None:
            self._weights[rows] = weights[kept]
        for purpose, draws in self._draws.items():
            draws[rows] = record_draws(drawn, labels, self.options.partition_key, purpose)
        if self._unit:
            self._units.add_column(chunk, self._unit, kept, unit_name)
        if self._agent:
            self.agents.add_column(chunk, self._agent, kept)
        elif self._by_file:
            self.agents.add([chunk.parts[0].agent], np.zeros(len(x), np.intp))
        release_memory(self._x[rows])
        self.rows = rows.stop

    def _kept(self, chunk: Table, labelled: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows are records, and count the others."""
        self._tally.add(chunk, self.schema.label, LEFT_OUT, ~labelled)
        kept = labelled
        if self._unit:
            kept = kept & self._named(chunk, self._unit)
        if self._agent:
            kept = kept & self._named(chunk, self._agent, self.schema.agents)
            if not self.schema.agents:
                names = chunk.column(self._agent).factorized.names
                self.agents.add([name for name in names if name is not None])
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


SOURCES.register(TABLE)(
    Source(
        name=TABLE,
        summary="a table of your own: a .csv or .parquet file, or a folder of them with one file for each agent",
        attribution="yours",
        origin="--data PATH --schema FILE",
        load=load,
        preset={"intercept": True},
        takes=PARTITION_OPTIONS | {"schema", "test", "test_share", "one_owner"},
        features=BINS,
    )
)
