"""Public facts about the records: everything that a certified run's plan may depend on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from taciturn.data.dataset_source import DataOptions, check_options, source_for
from taciturn.data.feature_mapping import input_shape, schema_shape
from taciturn.data.feature_maps import BINS, NONE, width_of
from taciturn.data.feature_maps.bins import mapped_blocks
from taciturn.data.partition import agent_names, check_partition, check_private_partition, split_digest
from taciturn.data.schema import Schema, Unit, dump_schema
from taciturn.data.schema_parser import read_schema
from taciturn.data.table_io import check_table, file_agents, names_agents, table_name, table_schema
from taciturn.errors import InputError, unknown_name
from taciturn.types import Classes, ColumnBlock, Dataset

FAR_OFF = 2.0  # how many times more or fewer records than declared make a plan useless

Sizes: TypeAlias = Mapping[str, int] | int
"""One number per agent by name, or one for all agents."""


class Facts(NamedTuple):
    """Public facts of a study's data: published, or declared by the owners without looking at the records.

    Attributes
    ----------
    name : str
        The data set's name.
    features, outputs : int
        J, with the intercept, and K.
    classes : bool
        Whether the label is a class; otherwise it is a number.
    agents : int
        P.
    total_records : int
        I as declared; it only normalises.
    records_max : Sizes
        The declared number of training records of any agent, or of each agent by name: sums have room for so many.
    unit : str
        "record", or the unit column's name.
    max_records : int
        The most rows that a unit contributes at one agent.
    published : bool
        Whether the sizes are those of a published data set; otherwise the owners declared them.
    test : str
        "public" for a separate test set, "held-out" for some of the private records, or "none".
    features_by : str
        The public feature map that is applied to the records.
    blocks : tuple of ColumnBlock
        The features of each column after the map `bins`; empty for other maps.
    """

    name: str
    features: int
    outputs: int
    classes: bool
    agents: int
    total_records: int
    records_max: Sizes
    unit: str
    max_records: int
    published: bool
    test: str
    features_by: str = NONE
    blocks: tuple[ColumnBlock, ...] = ()

    @property
    def largest(self) -> int:
        """The most training records that any agent declares."""
        return self.records_max if isinstance(self.records_max, int) else max(self.records_max.values())

    @property
    def records_of_all(self) -> int:
        """The most training records that all agents together declare."""
        most = self.records_max
        return self.agents * most if isinstance(most, int) else sum(most.values())

    @property
    def bound(self) -> float:
        """The largest norm of a record: sqrt(J), because features are within [-1, 1]; 1 after a feature map."""
        return math.sqrt(self.features) if self.features_by == NONE else 1.0

    @property
    def typical(self) -> float:
        """The usual norm of a record: a third of the largest one; after a feature map the largest one."""
        return self.bound / 3.0 if self.features_by == NONE else self.bound

    def recorded(self) -> dict[str, Any]:
        """Return the facts that ledgers and plans record; the blocks follow from the schema."""
        return {name: value for name, value in self._asdict().items() if name != "blocks"}

    def records_of(self, agent: str) -> int:
        """Return the most training records that an agent declares."""
        return self.records_max if isinstance(self.records_max, int) else self.records_max[agent]


def declared_facts(
    options: DataOptions, total_records: int | None, records_max: Sizes | None, published: Dataset | None = None
) -> Facts:
    """Return the facts as declared, without reading a private table's records.

    Parameters
    ----------
    options
        Which data.
    total_records, records_max
        The declared numbers; None: those of a published data set.
    published
        The published data set, if it is already loaded.

    Raises
    ------
    InputError
        If a number is missing or invalid, or a published data set contradicts it.
    """
    check_options(options)
    _check_sizes(total_records, records_max)
    source = source_for(options.data)
    if not source.published:
        return _table_facts(options, total_records, records_max)
    dataset = published or source.load(options)
    facts = published_facts(dataset, options)
    total, most = total_records or facts.total_records, records_max or facts.records_max
    facts = facts._replace(total_records=total, records_max=most)
    check_facts(facts, dataset)
    return facts


def published_facts(dataset: Dataset, options: DataOptions) -> Facts:
    """Return the facts of a published data set, from its records before or after the feature map.

    Raises
    ------
    InputError
        If the data set is not published.
    """
    source = source_for(options.data)
    if not source.published:
        raise InputError(f"the sizes of {options.data} are not public: declare them by total-records and records-max")
    features = len(dataset.features)
    if dataset.features_by != options.features:
        features = width_of(options.features, input_shape(options, features - options.intercept)) + options.intercept
    return Facts(
        name=dataset.name,
        features=features,
        outputs=dataset.target.width,
        classes=isinstance(dataset.target, Classes),
        agents=len(dataset.agents),
        total_records=dataset.records,
        records_max={name: len(shard.x) for name, shard in zip(dataset.agents, dataset.train, strict=True)},
        unit="record",
        max_records=1,
        published=True,
        test="none" if dataset.test is None else "public",
        features_by=options.features,
    )


def schema_facts(
    name: str,
    schema: Schema,
    *,
    intercept: bool,
    agents: int,
    total_records: int,
    records_max: Sizes,
    test: str,
    features: str = NONE,
) -> Facts:
    """Return the facts that follow from a schema and declared numbers; see `Facts` for the parameters."""
    if schema.interactions and features != BINS:
        raise InputError(f"the schema has [[interactions]], which features {features} does not use: use features bins")
    unit = schema.unit or Unit("record", 1)
    return Facts(
        name=name,
        features=width_of(features, schema_shape(schema)) + intercept,
        outputs=schema.target.width,
        classes=isinstance(schema.target, Classes),
        agents=agents,
        total_records=total_records,
        records_max=records_max,
        unit=unit.column,
        max_records=unit.max_records,
        published=False,
        test=test,
        features_by=features,
        blocks=mapped_blocks(schema.blocks) if features == BINS else (),
    )


def _table_facts(options: DataOptions, total_records: int | None, records_max: Sizes | None) -> Facts:
    check_table(options.data)
    schema = table_schema(options)
    if options.test:
        check_table(options.test)
    if total_records is None:
        named = names_agents(options, schema)
        parties = "" if named else ", and agents (--agents), the number of parties, if it is not 10"
        raise InputError(
            "a private table needs total_records (--total-records), the total number of records that the parties agree "
            f"to state{parties}; it only normalises and need not be exact"
        )
    check_partition(options.partition)
    if not names_agents(options, schema):
        check_private_partition(options)
    return schema_facts(
        table_name(options),
        schema,
        intercept=options.intercept,
        agents=_count_agents(options, schema, records_max),
        total_records=total_records,
        records_max=total_records if records_max is None else records_max,
        test="public" if options.test else "held-out" if options.test_share else "none",
        features=options.features,
    )


def _count_agents(options: DataOptions, schema: Schema, records_max: Sizes | None) -> int:
    """Return P: the names of the schema, the files or records-max; for a partition, the option agents."""
    if options.agents < 1:
        raise InputError(f"agents is {options.agents}: it must be at least 1")
    declared = tuple(records_max) if isinstance(records_max, Mapping) else ()
    named = schema.agents if schema.agent is not None else file_agents(options) or agent_names(options.agents)
    names = named or declared
    if not names:
        raise InputError(
            f"{options.schema}: [agent] has no names, and certified mode does not read them off the records, because a "
            f'misspelt cell would add an agent: add a line names = ["...", "..."] below column = "{schema.agent}"'
            ", or name every agent in --records-max NAME=NUMBER,NAME=NUMBER"
        )
    if declared:
        _check_names(declared, names)
    if options.agents not in (DataOptions.agents, len(names)):
        raise InputError(f"agents is {options.agents}, but {len(names)} agents are named: {', '.join(names)}")
    return len(names)


def record_split(options: DataOptions) -> str:
    """Return a name for the rule by which records train or are held out; empty if no share is held out.

    Two studies with the same name agree on every unit. Units with a column are drawn by the name in it (see
    `unit_name`), other records by their encoded content, with all numbers on linear scales.
    """
    if not options.test_share:
        return ""
    decided_by = f"{options.data} {options.intercept} {options.precision}"
    if not source_for(options.data).published:
        schema = read_schema(options.schema)
        content = replace(schema, agent=None, agents=(), interactions=(), class_weights=(), weight=None)
        by_record = "linear record" if schema.stretched else "record"
        decided_by = f"named unit {schema.unit.column}" if schema.unit else f"{by_record} {dump_schema(content)}"
    return split_digest(options.partition_key, options.test_share, decided_by)


def check_facts(facts: Facts, dataset: Dataset) -> None:
    """Raise InputError if the records contradict the facts. A private table of any size agrees with them."""
    if isinstance(facts.records_max, Mapping):
        _check_names(facts.records_max, dataset.agents)
    schema, mapped = "load it with the schema that was declared", dataset.features_by == facts.features_by
    features = len(dataset.features) if mapped else facts.features
    for kind, declared, actual, advice in (
        ("agents", facts.agents, len(dataset.agents), "set agents to their number, or name them in records-max"),
        ("features", facts.features, features, schema),
        ("outputs", facts.outputs, dataset.target.width, schema),
    ):
        if declared != actual:
            raise InputError(f"{kind} is {declared}, but the data has {actual}: {advice}")
    for agent, shard in zip(dataset.agents, dataset.train, strict=True):
        if facts.published and len(shard.x) > facts.records_of(agent):
            raise InputError(
                f"agent '{agent}' has more training records than records-max declares, {facts.records_of(agent)}:"
                " declare a larger number, or use fewer records"
            )


def limit_records(facts: Facts, dataset: Dataset, agents: Sequence[str]) -> Dataset:
    """Keep as many of each agent's first training records as declared, for methods whose guarantee needs the bound.

    An error about one record too many would reveal it. But where records are left out, adding a unit of m rows can push
    m rows of others out. Such a method is charged for 2 m rows. `agents` are those whose records the data set holds.
    """
    limited = zip(dataset.train, map(facts.records_of, agents), strict=True)
    return replace(dataset, train=tuple(s.rows(slice(most)) if len(s.x) > most else s for s, most in limited))


def note_sizes(facts: Facts, dataset: Dataset) -> Dataset:
    """Add a note, for the owner alone, on each agent that has more training records than were declared."""
    notes = [
        f"agent '{agent}' has {len(shard.x)} training records, more than records-max, {facts.records_of(agent)}: all "
        "are used, except by methods whose guarantee needs the bound. The guarantee holds, but sums may overflow; "
        "declare a larger number for the next study"
        for agent, shard in zip(dataset.agents, dataset.train, strict=True)
        if len(shard.x) > facts.records_of(agent)
    ]
    return replace(dataset, notes=(*dataset.notes, *notes))


def check_total(facts: Facts, dataset: Dataset) -> Dataset:
    """Add a warning, for the owner alone, if the training records of all agents are far from the declared total."""
    total = facts.total_records
    if not dataset.records or total / FAR_OFF <= dataset.records <= total * FAR_OFF:
        return dataset
    warning = (
        f"total-records is {total:,}, but {dataset.records:,} records train the model: what the plan says of its "
        "quality does not hold"
    )
    return replace(dataset, warnings=(*dataset.warnings, warning))


def check_partition_sizes(facts: Facts, options: DataOptions) -> None:
    """Raise InputError if records-max is a number that an agent's share of a random partition can exceed."""
    least = facts.records_max if isinstance(facts.records_max, int) else min(facts.records_max.values())
    if not options.private or least >= facts.total_records or names_agents(options, table_schema(options)):
        return
    raise InputError(
        f"records-max is {least}, but this table is partitioned at random, so an agent may get any number of its "
        f"records: remove it, or declare at least total-records, {facts.total_records}"
    )


def _check_sizes(total_records: int | None, records_max: Sizes | None) -> None:
    sizes = {"total-records": total_records}
    if isinstance(records_max, Mapping):
        if not records_max:
            raise InputError("records-max names no agent: give one number for all agents, or one for each by name")
        sizes |= {f"records-max of agent '{name}'": size for name, size in records_max.items()}
    else:
        sizes["records-max"] = records_max
    for name, size in sizes.items():
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"{name} is {size!r}: it must be a whole number of at least 1")


def _check_names(declared: Collection[str], actual: Collection[str]) -> None:
    for name in declared:
        if name not in actual:
            raise InputError(f"records-max: {unknown_name('agent', name, actual)}")
    for name in actual:
        if name not in declared:
            raise InputError(f"records-max leaves out agent '{name}': give every agent a number, or one number for all")
