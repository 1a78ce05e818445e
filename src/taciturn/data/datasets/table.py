"""A table of the user's own, under a schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taciturn.data.allocation import ArrayAllocator, allocator_for, chosen, feature_rows
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import PARTITION_OPTIONS, SOURCES, DataOptions, Source
from taciturn.data.partition import (
    DEAL,
    HOLD_OUT,
    Agents,
    Units,
    bound_units,
    by_column,
    by_draws,
    deal_units,
    hold_out,
    split,
    unit_draws,
)
from taciturn.data.schema import Schema
from taciturn.data.table_io import TableFiles, names_agents, open_table, table_name, table_schema
from taciturn.data.table_stream import Stream, Wanted
from taciturn.errors import InputError
from taciturn.types import Dataset


def load(options: DataOptions) -> Dataset:
    """Features by the schema; agents by its agent column, by file, or by partition."""
    table, schema = open_table(options.data), table_schema(options)
    test_table = open_table(options.test) if options.test else None
    if test_table and options.private and Path(options.test).resolve() == Path(options.data).resolve():
        raise InputError(
            f"test is {options.test}, the table that is trained on: a file given with --test is taken to be public, "
            "and figures on it are published; use --test-share, whose figures stay with the owner"
        )
    width = len(schema.features) + options.intercept + schema.target.width
    room = allocator_for(options, table.most + (test_table.most if test_table else 0), width)
    rows = Stream(table, schema, _wanted(schema, options), room)
    if not (rows.rows or options.private):
        why = "; ".join(rows.notes) or "there is none below the header"
        raise InputError(f"no row of {table_name(options)} is a record: {why}")
    units = None if schema.unit is None else Units(schema.unit, rows.units.names, rows.units.of)
    agents = _agents(rows, schema, units, options)
    agents, cut = (agents, []) if units is None else bound_units(agents, units)
    agents, test, test_notes = _set_aside(rows, test_table, schema, agents, units, options, room)
    return assemble(
        table_name(options),
        options,
        rows.records,
        agents,
        features=schema.features,
        target=schema.target,
        test=test,
        notes=[*rows.notes, *cut, *test_notes, *_ignored(table, schema)],
        room=room,
    )


def _wanted(schema: Schema, options: DataOptions) -> Wanted:
    owners = names_agents(options, schema)
    held_out = [HOLD_OUT] if options.test_share else []
    dealt = [DEAL] if by_draws(options) and not owners else []
    return Wanted(
        options.intercept,
        owners=owners,
        units=schema.unit is not None,
        key=options.partition_key,
        draws=(*held_out, *dealt) if schema.unit is None else (),
    )


def _agents(rows: Stream, schema: Schema, units: Units | None, options: DataOptions) -> Agents:
    """The owner's own agents, or, where the table names none, the partition's."""
    names = rows.owners.names
    if not names_agents(options, schema):
        draws = _draws(rows, units, options, DEAL) if by_draws(options) else None
        if units is not None:
            return deal_units(options, units, rows.records.labels, schema.target, draws)
        return split(options, rows.records.labels, schema.target, draws)
    if not names:
        raise InputError(f"column '{schema.agent}' names no agent: every record needs one")
    if options.partition not in ("in-order", "hashed", "column"):
        raise InputError(f"partition {options.partition} would deal records to others: the table names its agents")
    if options.agents not in (DataOptions.agents, len(names)):
        raise InputError(f"agents is {options.agents}, but the table names {len(names)} agents of its own")
    return by_column(names, rows.owners.of)


def _set_aside(
    rows: Stream,
    test_table: TableFiles | None,
    schema: Schema,
    agents: Agents,
    units: Units | None,
    options: DataOptions,
    room: ArrayAllocator,
) -> tuple[Agents, RawRecords | None, list[str]]:
    """The agents with what is left to train on, the test set, and notes on it."""
    if test_table is not None:
        test = Stream(test_table, schema, Wanted(options.intercept), room)
        return agents, test.records, [f"test table: {note}" for note in test.notes]
    if not options.test_share:
        return agents, None, []
    draws = _draws(rows, units, options, HOLD_OUT)
    what = "record" if units is None else "unit"
    agents, held = hold_out(agents, draws, options.test_share, what, options.private)
    if not len(held):
        return agents, None, []
    x, labels = rows.records.x, rows.records.labels[held]
    return agents, RawRecords(feature_rows(x, 1, chosen([held]), x.shape[1], room), labels, encoded=True), []


def _draws(rows: Stream, units: Units | None, options: DataOptions, purpose: bytes) -> NDArray[np.float64]:
    """Each record's own draw for a purpose, or its unit's, [n]."""
    return rows.draws(purpose) if units is None else unit_draws(units, options.partition_key, purpose)


def _ignored(table: TableFiles, schema: Schema) -> list[str]:
    """A note of the columns the schema says nothing about."""
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
