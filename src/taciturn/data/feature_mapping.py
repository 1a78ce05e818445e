"""Apply a public feature map to the records of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import cast

import numpy as np

from taciturn.core.arrays import release_memory
from taciturn.data.allocation import allocator_for
from taciturn.data.dataset_source import DataOptions, source_for
from taciturn.data.feature_cache import StoredSteps, entry_for, features_of, map_and_keep, read_steps, write_steps
from taciturn.data.feature_maps import MAPS, NONE, InputShape, SteppedMap, build_map, keeps_positions, width_of
from taciturn.data.schema import Schema
from taciturn.data.table_io import table_schema
from taciturn.errors import InputError
from taciturn.progress import report_progress
from taciturn.types import Array, Dataset

INTERCEPT = "intercept"
ROWS = 1024  # rows mapped at a time
TOLERANCE = 1e-6  # for rounding


def mapped_names(features: str, names: tuple[str, ...], shape: InputShape, intercept: bool) -> tuple[str, ...]:
    """Return the names of the features after a map.

    Parameters
    ----------
    features
        The feature map's name.
    names
        The names of the records' features, without the intercept.
    shape
        What is public about these features.
    intercept
        Whether to append the intercept.
    """
    if features != NONE:
        if rule := MAPS[features].names:
            names = rule(shape, names)
        else:
            suffixes = names if keeps_positions(features) else range(width_of(features, shape))
            names = tuple(f"{features}_{suffix}" for suffix in suffixes)
    return (*names, INTERCEPT) if intercept else names


def mapped_rows(x: Array, features: str, shape: InputShape, intercept: bool) -> Array:
    """Apply a feature map to encoded records [n, J], whose last column is the intercept if there is one.

    Returns
    -------
    Array
        The new features, with the intercept, in the same precision.
    """
    if features == NONE:
        return x
    out, done = np.empty((len(x), width_of(features, shape) + intercept), x.dtype), 0
    for rows in _fill(out, x[:, : shape.width], build_map(features, shape), intercept):
        report_progress(f"feature map {features}", done := done + rows, len(x))
    return out


def input_shape(options: DataOptions, width: int) -> InputShape:
    """Return what is public about the features before a map; `width` is their number, without the intercept."""
    if not source_for(options.data).is_table:
        return InputShape(width, source_for(options.data).image)
    return schema_shape(table_schema(options))


def schema_shape(schema: Schema) -> InputShape:
    """Return what a schema makes public about its features."""
    return InputShape(len(schema.features), None, schema.blocks, schema.scale == "symmetric")


def apply_feature_map(dataset: Dataset, options: DataOptions, shape: InputShape | None = None) -> Dataset:
    """Apply the feature map that the options name; a data set to which it was applied already is returned as it is.

    Parameters
    ----------
    dataset
        The records before the map.
    options
        The map, and where to store what it returns.
    shape
        What is public about the features before the map; None: as the options say.
    """
    if options.features == dataset.features_by:
        return dataset
    raw_names = dataset.features[: len(dataset.features) - options.intercept]
    shape = shape or input_shape(options, len(raw_names))
    names = mapped_names(options.features, raw_names, shape, options.intercept)
    shards = (*dataset.train, *(() if dataset.test is None else (dataset.test,)))
    total, done, mapped = sum(len(shard.x) for shard in shards), 0, []
    allocator = allocator_for(options, total, len(names))
    records: list[Array] = [shard.x[:, : len(raw_names)] for shard in shards]
    entry = None if allocator.folder else entry_for(options, records)
    stored = None if entry is None else read_steps(entry, total, len(names) - options.intercept)
    kept: list[StoredSteps] = []
    phi: Callable[..., Array] = features_of
    if stored is None:
        phi = build_map(options.features, shape)
        phi = phi if entry is None else partial(map_and_keep, cast(SteppedMap, phi), kept)
    for shard, raw in zip(shards, records, strict=True):
        x = allocator.empty(len(raw), len(names))
        given: Array | StoredSteps = raw if stored is None else stored[done : done + len(raw)]
        for rows in _fill(x, given, phi, options.intercept):
            report_progress(f"feature map {options.features}", done := done + rows, total)
        mapped.append(shard.with_features(x))
    if entry is not None and stored is None:
        write_steps(entry, kept)
    return replace(
        dataset,
        train=tuple(mapped[: len(dataset.train)]),
        test=None if dataset.test is None else mapped[-1],
        features=names,
        notes=(*dataset.notes, *(note for note in allocator.notes if note not in dataset.notes)),
        features_by=options.features,
    )


def length_share(intercept: bool) -> float:
    """Return the factor on phi, and on the intercept beside it, with which both together have norm 1."""
    return 1.0 / sqrt(1.0 + intercept)


def _fill(out: Array, x: Array | StoredSteps, phi: Callable[..., Array], intercept: bool) -> Iterator[int]:
    """Write phi of every record [n, J] into `out`, then the intercept; yield the number of records after each block."""
    share, width = length_share(intercept), out.shape[1] - intercept
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        found = phi(x[rows])
        longest = float(np.sqrt(np.einsum("ij,ij->i", found, found).max(initial=0.0)))
        if not longest <= 1.0 + TOLERANCE:  # a plugin's map may break its promise
            raise InputError(f"the feature map returned a record of norm {longest:g}: it must be 1 or 0")
        out[rows, :width] = share * found
        out[rows, width:] = share
        release_memory(x[rows])
        release_memory(out[rows])
        yield len(x[rows])
