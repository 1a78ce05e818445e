"""What is public about the records: all that a certified run may build on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from taciturn.data.dataset_source import DataOptions, check_options, source_for
from taciturn.data.feature_maps import NONE, Raw, width_of
from taciturn.data.partition import agent_names, check_dealing, check_partition
from taciturn.data.schema import Schema, Unit
from taciturn.data.table_io import file_agents, names_agents, table_files, table_name, table_schema
from taciturn.errors import InputError, unknown_name
from taciturn.types import Classes, Dataset, Shard

Sizes: TypeAlias = Mapping[str, int] | int  # one number for each agent by name, or one for all of them


class Facts(NamedTuple):
    """The public facts of a study's data: published, or declared by the owners without looking at the records."""

    name: str  # of the data set, as Dataset.name
    features: int  # J, with the intercept
    outputs: int  # K
    classes: bool  # whether the label is a class, else it is a number
    agents: int  # P
    total_records: int  # I as declared: the normaliser
    records_max: Sizes  # the most training records of any agent, or of each agent by name
    unit: str  # "record", or the unit column's name
    max_records: int  # the most rows a unit contributes at one agent
    published: bool  # the sizes are those of a published data set, else its owners declare them
    test: str  # "public": a test set of its own; "held-out": some of the private records; "none"
    features_by: str = NONE  # the public feature map that was applied to the records

    @property
    def largest(self) -> int:
        """The most training records any agent may have."""
        return self.records_max if isinstance(self.records_max, int) else max(self.records_max.values())

    @property
    def bound(self) -> float:
        """The longest a record can be: features lie in [-1, 1], so ||x||_2 <= sqrt(J); maps give records length 1."""
        return math.sqrt(self.features) if self.features_by == NONE else 1.0

    @property
    def typical(self) -> float:
        """How long records usually are: a third of what they can be, or just as long as a map makes them."""
        return self.bound / 3.0 if self.features_by == NONE else self.bound

    def most(self, agent: str) -> int:
        """The most training records this agent may have."""
        return self.records_max if isinstance(self.records_max, int) else self.records_max[agent]


def declared_facts(
    options: DataOptions, total_records: int | None, records_max: Sizes | None, published: Dataset | None = None
) -> Facts:
    """The facts as declared; a table is not opened, and a published data set, if it is at hand, speaks for itself."""
    check_options(options)
    _check_sizes(total_records, records_max)
    source = source_for(options.data)
    if source.published:
        dataset = published or source.load(options)
        facts = facts_of(dataset, options)
        facts = facts._replace(total_records=total_records or facts.total_records)
        facts = facts._replace(records_max=records_max or facts.records_max)
        check_facts(facts, dataset)
        return facts
    return _table_facts(options, total_records, records_max)


def facts_of(dataset: Dataset, options: DataOptions) -> Facts:
    """The facts of a published data set, read off itself, before or after the feature map."""
    if not source_for(options.data).published:
        raise InputError(
            f"the sizes of {options.data} are not public: they must be declared by total-records and records-max"
        )
    features = len(dataset.features)
    if dataset.features_by != options.features:
        raw = Raw(features - options.intercept, source_for(options.data).image)
        features = width_of(options.features, raw) + options.intercept
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


def check_facts(facts: Facts, dataset: Dataset) -> None:
    """Stop where the records contradict what was declared; an agent's own number of records is never said."""
    if isinstance(facts.records_max, Mapping):
        _check_names(facts.records_max, dataset.agents)
    _same("agents", facts.agents, len(dataset.agents), "set agents to their number, or name them in records-max")
    if dataset.features_by == facts.features_by:
        _same("features", facts.features, len(dataset.features), "load it with the schema that was declared")
    _same("outputs", facts.outputs, dataset.target.width, "load it with the schema that was declared")
    for agent, shard in zip(dataset.agents, dataset.train, strict=True):
        if len(shard.x) > facts.most(agent):
            raise InputError(
                f"agent '{agent}' has more training records than records-max declares, {facts.most(agent)}:"
                " declare a larger number, or bring fewer records"
            )


def within_sizes(facts: Facts, dataset: Dataset) -> Dataset:
    """The data set with each agent's first training records, as many as were declared; what is cut is noted.

    For private records: to stop where an agent has one more would tell that it is there.
    """
    notes, shards = list(dataset.notes), []
    for agent, shard in zip(dataset.agents, dataset.train, strict=True):
        most = facts.most(agent)
        if (beyond := len(shard.x) - most) > 0:
            were = "record beyond the first {} was" if beyond == 1 else "records beyond the first {} were"
            notes.append(f"agent '{agent}': {beyond} {were.format(most)} left out, for records-max declares no more")
            shard = Shard(shard.x[:most], shard.y[:most])  # noqa: PLW2901
        shards.append(shard)
    return replace(dataset, train=tuple(shards), notes=tuple(notes))


def check_dealt_sizes(facts: Facts, options: DataOptions) -> None:
    """Refuse a bound that the draw of who holds which record can break: records would be cut by chance."""
    least = facts.records_max if isinstance(facts.records_max, int) else min(facts.records_max.values())
    if not options.private or least >= facts.total_records or names_agents(options, table_schema(options)):
        return
    raise InputError(
        f"records-max is {least}, but this table is dealt out by a draw for each record, and an agent may get any "
        f"number of them: leave it out, or declare at least total-records, {facts.total_records}"
    )


def _same(what: str, declared: int, there: int, advice: str) -> None:
    if declared != there:
        raise InputError(f"{what} is {declared}, but the data has {there}: {advice}")


def _table_facts(options: DataOptions, total_records: int | None, records_max: Sizes | None) -> Facts:
    table_files(options.data)
    schema = table_schema(options)
    if options.test:
        table_files(options.test)
    if total_records is None:
        raise InputError(
            "certified mode needs --total-records N, the number of records in all that the parties agree to state, and"
            " --agents P, how many parties there are, where that is not 10;"
            " it is a normaliser and need not be exact"
        )
    check_partition(options.partition)
    if not names_agents(options, schema):
        check_dealing(options)
    return schema_facts(
        table_name(options),
        schema,
        intercept=options.intercept,
        agents=_agents(options, schema, records_max),
        total_records=total_records,
        records_max=total_records if records_max is None else records_max,
        test="public" if options.test else "held-out" if options.test_share else "none",
        features=options.features,
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
    """The facts that a schema and the declared numbers make, wherever the records are."""
    unit = schema.unit or Unit("record", 1)
    return Facts(
        name=name,
        features=width_of(features, Raw(len(schema.features))) + intercept,
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
    )


def _agents(options: DataOptions, schema: Schema, records_max: Sizes | None) -> int:
    """P by the names of the schema, of the files or of records-max; where records are dealt out, the option agents."""
    if options.agents < 1:
        raise InputError(f"agents is {options.agents}: it must be at least 1")
    named = tuple(records_max) if isinstance(records_max, Mapping) else ()
    names = _known_names(options, schema) or named
    if not names:
        raise InputError(
            f"{options.schema}: [agent] has no names, and certified mode does not read them off the records, where one "
            f'misspelt cell would be one more agent: add a line names = ["...", "..."] below column = "{schema.agent}"'
            ", or name every agent in --records-max NAME=NUMBER,NAME=NUMBER"
        )
    if named:
        _check_names(named, names)
    if options.agents not in (DataOptions.agents, len(names)):
        raise InputError(f"agents is {options.agents}, but {len(names)} agents are named: {', '.join(names)}")
    return len(names)


def _known_names(options: DataOptions, schema: Schema) -> tuple[str, ...]:
    """The agents of a schema, of a folder or of a partition; none where only the records could tell."""
    if schema.agent is not None:
        return schema.agents
    return file_agents(options) or agent_names(options.agents)


def _check_sizes(total_records: int | None, records_max: Sizes | None) -> None:
    sizes = {"total-records": total_records}
    if isinstance(records_max, Mapping):
        if not records_max:
            raise InputError("records-max names no agent: give one number for all agents, or one for each by name")
        sizes |= {f"records-max of agent '{name}'": size for name, size in records_max.items()}
    else:
        sizes["records-max"] = records_max
    for what, size in sizes.items():
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"{what} is {size!r}: it must be a whole number of at least 1")


def _check_names(declared: Collection[str], there: Collection[str]) -> None:
    for name in declared:
        if name not in there:
            raise InputError(f"records-max: {unknown_name('agent', name, there)}")
    for name in there:
        if name not in declared:
            raise InputError(f"records-max leaves out agent '{name}': give every agent a number, or one number for all")
