"""A table of the user's own, under a schema."""

from __future__ import annotations

from tacit.data.assemble import Records, assemble
from tacit.data.base import PARTITION_OPTIONS, SOURCES, DataOptions, Source
from tacit.data.cells import Table
from tacit.data.columns import read_table
from tacit.data.encode import ignored_columns, read_label, scale_columns
from tacit.data.partition import Agents, by_column, split
from tacit.data.paths import table_name, table_schema
from tacit.data.schema import Schema
from tacit.data.units import Units, bound_units, deal_units, hold_out, read_units, record_draws, unit_draws
from tacit.errors import InputError
from tacit.types import Dataset


def load(options: DataOptions) -> Dataset:
    """Features by the schema; agents by its agent column, by file, or by partition."""
    table = read_table(options.data)
    schema = table_schema(options)
    records, notes = _records(table, schema)
    units = None if schema.unit is None else read_units(table, schema.unit)
    agents = _agents(table, schema, records, units, options)
    if units is not None:
        agents, cut = bound_units(agents, units)
        notes += cut
    agents, test, test_notes = _set_aside(schema, records, agents, units, options)
    notes += test_notes
    if ignored := ignored_columns(table, schema):
        notes.append(f"columns not in the schema were ignored: {', '.join(ignored)}")
    return assemble(
        table_name(options),
        options,
        records,
        agents,
        features=schema.features,
        target=schema.target,
        test=test,
        notes=notes,
    )


def _records(table: Table, schema: Schema) -> tuple[Records, list[str]]:
    x, notes = scale_columns(table, schema)
    labels, label_notes = read_label(table, schema)
    return Records(x, labels), notes + label_notes


def _agents(table: Table, schema: Schema, records: Records, units: Units | None, options: DataOptions) -> Agents:
    """The owner's own agents, or, where the table names none, the partition's."""
    if schema.agent is None and not table.folder:
        if units is not None:
            return deal_units(options, units, records.labels, schema.target)
        return split(options, records.labels, schema.target)
    if options.partition not in ("in-order", "column"):
        raise InputError(f"partition {options.partition} would deal records to others: the table names its agents")
    agents = by_column(table.file_agents() if schema.agent is None else _agent_names(table, schema.agent))
    if options.agents not in (DataOptions.agents, len(agents.names)):
        raise InputError(f"agents is {options.agents}, but the table names {len(agents.names)} agents of its own")
    return agents


def _agent_names(table: Table, column: str) -> list[str]:
    names = []
    for row, name in enumerate(table.texts(column)):
        if name is None:
            raise InputError(f"column '{column}': the agent {table.where(row)} is missing")
        names.append(name)
    return names


def _set_aside(
    schema: Schema, records: Records, agents: Agents, units: Units | None, options: DataOptions
) -> tuple[Agents, Records | None, list[str]]:
    """The agents with what is left to train on, the test set, and notes on it."""
    if options.test:
        test, notes = _records(read_table(options.test), schema)
        return agents, test, [f"test table: {note}" for note in notes]
    if not options.test_share:
        return agents, None, []
    seed = options.partition_seed
    draws = record_draws(records.x, records.labels, seed) if units is None else unit_draws(units, seed)
    agents, held = hold_out(agents, draws, options.test_share, "record" if units is None else "unit")
    return agents, Records(records.x[held], records.labels[held]), []


SOURCES.register("table")(
    Source(
        name="table",
        summary="a table of your own: a .csv or .parquet file, or a folder of them with one file for each agent",
        attribution="yours",
        origin="--data PATH --schema FILE",
        load=load,
        preset={"intercept": True},
        takes=PARTITION_OPTIONS | {"schema", "test", "test_share"},
    )
)
