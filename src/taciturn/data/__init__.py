"""Data sets: where records come from, how they are encoded, and which agent holds them."""

from __future__ import annotations

from taciturn.data.assemble import describe, fingerprint, refuse_unseen_classes
from taciturn.data.dataset_source import SOURCES, DataOptions, Source, check_options, data_folder, source_for
from taciturn.data.encoding import encode
from taciturn.data.facts import (
    Facts,
    check_facts,
    check_partition_sizes,
    check_total,
    declared_facts,
    limit_records,
    note_sizes,
    published_facts,
    record_split,
    schema_facts,
)
from taciturn.data.feature_mapping import apply_feature_map
from taciturn.data.partition import check_partition
from taciturn.data.schema import Schema
from taciturn.data.schema_draft import draft_schema
from taciturn.data.schema_parser import parse_schema, read_schema
from taciturn.data.table_io import read_table
from taciturn.types import Dataset

__all__ = [
    "SOURCES",
    "DataOptions",
    "Facts",
    "Schema",
    "Source",
    "apply_feature_map",
    "check_facts",
    "check_partition_sizes",
    "check_total",
    "data_folder",
    "declared_facts",
    "describe",
    "draft_schema",
    "encode",
    "fingerprint",
    "limit_records",
    "load",
    "load_unmapped",
    "note_sizes",
    "parse_schema",
    "published_facts",
    "read_schema",
    "read_table",
    "record_split",
    "refuse_unseen_classes",
    "schema_facts",
    "source_for",
]


def load(options: DataOptions) -> Dataset:
    """Load the records that the options name, partitioned among agents, and apply the feature map.

    Parameters
    ----------
    options
        Which records to load, and how.

    Raises
    ------
    InputError
        If an option or a file is invalid.

    Examples
    --------
    >>> load(DataOptions(data="mnist14", agents=3)).agents
    ('agent-1', 'agent-2', 'agent-3')
    """
    return apply_feature_map(load_unmapped(options), options)


def load_unmapped(options: DataOptions) -> Dataset:
    """Load the records without applying the feature map, which may take long."""
    check_options(options)
    check_partition(options.partition)
    return source_for(options.data).load(options)
