"""The user's own table, with a schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taciturn.data.allocation import ArrayAllocator, allocator_for, feature_rows, join_rows
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import PARTITION_OPTIONS, SOURCES, DataOptions, Source
from taciturn.data.partition import (
    ASSIGNMENT,
    HOLD_OUT,
    Partition,
    Units,
    hold_out,
    limit_unit_rows,
    partition_by_name,
    partition_records,
    partition_units,
    unit_draws,
    uses_draws,
)
from taciturn.data.schema import Schema
from taciturn.data.table_io import TableFiles, names_agents, open_table, table_name, table_schema
from taciturn.data.table_stream import EncodedTable, ReadOptions
from taciturn.errors import InputError
from taciturn.types import Dataset


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
    width = len(schema.features) + options.intercept + schema.target.width
    allocator = allocator_for(options, table.most + (test_table.most if test_table else 0), width)
    rows = EncodedTable(table, schema, _read_options(schema, options), allocator)
    if not (rows.rows or options.private):
        why = "; ".join(rows.notes) or "there is none below the header"
        raise InputError(f"no row of {table_name(options)} is a record: {why}")
    units = None if schema.unit is None else Units(schema.unit, rows.units.names, rows.units.codes)
    partition = _partition(rows, schema, units, options)
    partition, cut = (partition, []) if units is None else limit_unit_rows(partition, units)
    partition, test, test_notes = _set_aside(rows, test_table, schema, partition, units, options, allocator)
    return assemble(
        table_name(options),
        options,
        rows.records,
        partition,
        features=schema.features,
        target=schema.target,
        test=test,
        notes=[*rows.notes, *cut, *test_notes, *_ignored(table, schema)],
        allocator=allocator,
    )


def _read_options(schema: Schema, options: DataOptions) -> ReadOptions:
    agents = names_agents(options, schema)
    purposes = [HOLD_OUT] * bool(options.test_share) + [ASSIGNMENT] * (uses_draws(options) and not agents)
    return ReadOptions(
        options.intercept,
        agents=agents,
        units=schema.unit is not None,
        key=options.partition_key,
        draws=tuple(purposes) if schema.unit is None else (),
    )


def _partition(rows: EncodedTable, schema: Schema, units: Units | None, options: DataOptions) -> Partition:
    """Return the agents that the table names or, if it names none, those of a partition."""
    names = rows.agents.names
    if not names_agents(options, schema):
        draws = _draws(rows, units, options, ASSIGNMENT) if uses_draws(options) else None
        if units is not None:
            return partition_units(options, units, rows.records.labels, schema.target, draws)
        return partition_records(options, rows.records.labels, schema.target, draws)
    if not names:
        raise InputError(f"column '{schema.agent}' names no agent: every record needs one")
    if options.partition not in ("in-order", "hashed", "column"):
        raise InputError(f"partition is {options.partition}, but the table names its agents: remove it or use column")
    if options.agents not in (DataOptions.agents, len(names)):
        raise InputError(f"agents is {options.agents}, but the table names {len(names)} agents of its own")
    return partition_by_name(names, rows.agents.codes)


def _set_aside(
    rows: EncodedTable,
    test_table: TableFiles | None,
    schema: Schema,
    partition: Partition,
    units: Units | None,
    options: DataOptions,
    allocator: ArrayAllocator,
) -> tuple[Partition, RawRecords | None, list[str]]:
    """Return the training records, the test records, and notes on the latter."""
    if test_table is not None:
        test = EncodedTable(test_table, schema, ReadOptions(options.intercept), allocator)
        return partition, test.records, [f"test table: {note}" for note in test.notes]
    if not options.test_share:
        return partition, None, []
    draws, kind = _draws(rows, units, options, HOLD_OUT), "record" if units is None else "unit"
    partition, held = hold_out(partition, draws, options.test_share, kind, options.private)
    if not len(held):
        return partition, None, []
    x, labels = rows.records.x, rows.records.labels[held]
    held_x = feature_rows(x, 1, join_rows([held]), x.shape[1], allocator)
    return partition, RawRecords(held_x, labels, encoded=True), []


def _draws(rows: EncodedTable, units: Units | None, options: DataOptions, purpose: bytes) -> NDArray[np.float64]:
    """Return the draw of each record, or of its unit, for a purpose, [n]."""
    return rows.draws(purpose) if units is None else unit_draws(units, options.partition_key, purpose)


def _ignored(table: TableFiles, schema: Schema) -> list[str]:
    """Return a note on the columns that the schema does not mention."""
    known = {schema.label, schema.agent, schema.unit and schema.unit.column, *(rule.name for rule in schema.columns)}
    names = [name for name in table.columns if name not in known]
    return [f"columns not in the schema were ignored: {', '.join(names)}"] if names else []


SOURCES.register("table")(
    Source(
        name="table",
        summary="a table of your own: a .csv or .parquet file, or a folder of them with one file for each agent",
        attribution="yours",
        origin="--data PATH --schema FILE",
        load=load,
        preset={"intercept": True},
        takes=PARTITION_OPTIONS | {"schema", "test", "test_share", "one_owner"},
    )
)
