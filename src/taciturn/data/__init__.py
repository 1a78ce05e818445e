"""Data sets: where the records come from, and which agent holds them."""

from __future__ import annotations

from taciturn.data.assemble import describe, fingerprint, refuse_unseen_classes
from taciturn.data.dataset_source import (
    SOURCES,
    DataOptions,
    Fetch,
    Progress,
    Source,
    check_options,
    data_folder,
    is_table_path,
    source_for,
)
from taciturn.data.encoding import encode
from taciturn.data.facts import (
    Facts,
    check_dealt_sizes,
    check_facts,
    declared_facts,
    facts_of,
    schema_facts,
    within_sizes,
)
from taciturn.data.feature_mapping import mapped
from taciturn.data.partition import check_partition
from taciturn.data.schema import Schema, Unit, parse_schema, read_schema
from taciturn.data.schema_draft import draft_schema
from taciturn.data.table_io import read_table
from taciturn.types import Dataset

__all__ = [
    "SOURCES",
    "DataOptions",
    "Facts",
    "Fetch",
    "Progress",
    "Schema",
    "Source",
    "Unit",
    "check_dealt_sizes",
    "check_facts",
    "data_folder",
    "declared_facts",
    "describe",
    "draft_schema",
    "encode",
    "facts_of",
    "fingerprint",
    "is_table_path",
    "load",
    "load_unmapped",
    "mapped",
    "parse_schema",
    "read_schema",
    "read_table",
    "refuse_unseen_classes",
    "schema_facts",
    "source_for",
    "within_sizes",
]


def load(options: DataOptions) -> Dataset:
    """The records that the options name, dealt out to agents, after the feature map."""
    return mapped(load_unmapped(options), options)


def load_unmapped(options: DataOptions) -> Dataset:
    """The records before the feature map, which may take its time."""
    check_options(options)
    check_partition(options.partition)
    return source_for(options.data).load(options)
