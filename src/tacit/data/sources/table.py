"""A table of the user's own, under a schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.data.assemble import Records, assemble
from tacit.data.base import PARTITION_OPTIONS, SOURCES, DataOptions, Source
from tacit.data.cells import Table
from tacit.data.columns import read_table
from tacit.data.encode import ignored_columns, read_label, scale_columns
from tacit.data.partition import Agents, Index, by_column, split
from tacit.data.schema import Schema, read_schema
from tacit.errors import InputError
from tacit.types import Classes, Dataset


def load(options: DataOptions) -> Dataset:
    """Features by the schema; agents by its agent column, by file, or by partition."""
    table = read_table(options.data)
    if not options.schema:
        raise InputError(
            f"the table {options.data} needs a schema:"
            f" `tacit data schema {options.data} --label COLUMN --out FILE` drafts one"
        )
    if options.test and options.test_share:
        raise InputError("test and test-share are both given: a test set comes from one of them")
    schema = read_schema(options.schema)
    records, notes = _records(table, schema)
    agents = _agents(table, schema, records, options)
    test = None
    if options.test:
        test, test_notes = _records(read_table(options.test), schema)
        notes += [f"test table: {note}" for note in test_notes]
    elif options.test_share:
        agents, held = _hold_out(agents, options.test_share, options.partition_seed)
        test = Records(records.x[held], records.labels[held])
    _check_classes(records, agents, schema)
    if ignored := ignored_columns(table, schema):
        notes.append(f"columns not in the schema were ignored: {', '.join(ignored)}")
    name = Path(options.data).resolve().stem
    return assemble(
        name,
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


def _agents(table: Table, schema: Schema, records: Records, options: DataOptions) -> Agents:
    """The owner's own agents, or, where the table names none, the partition's."""
    if schema.agent is None and not table.folder:
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


def _hold_out(agents: Agents, share: float, seed: int) -> tuple[Agents, Index]:
    """A share of each agent's records, at least one, with at least one left."""
    rng = np.random.default_rng(seed)
    kept, held = [], []
    for name, index in zip(agents.names, agents.records, strict=True):
        if len(index) < 2:
            raise InputError(f"agent '{name}' has {len(index)} record: test-share needs at least two of each agent")
        count = min(max(1, round(share * len(index))), len(index) - 1)
        order = rng.permutation(index)
        held.append(np.sort(order[:count]))
        kept.append(np.sort(order[count:]))
    return Agents(agents.names, kept), np.concatenate(held)


def _check_classes(records: Records, agents: Agents, schema: Schema) -> None:
    if not isinstance(schema.target, Classes):
        return
    seen = set(records.labels[np.concatenate(agents.records)].tolist())
    for number, name in enumerate(schema.target.names):
        if number not in seen:
            raise InputError(
                f"class '{name}' has no training record: take it out of the schema, add records of it, or hold out less"
            )


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
