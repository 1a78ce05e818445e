"""Apply a public feature map to the records of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt

import numpy as np

from taciturn.core.arrays import release_memory
from taciturn.data.allocation import allocator_for
from taciturn.data.dataset_source import DataOptions, source_for
from taciturn.data.feature_maps import NONE, InputShape, Map, build_map, keeps_positions, width_of
from taciturn.errors import InputError
from taciturn.progress import report_progress
from taciturn.types import Array, Dataset, Shard

INTERCEPT = "intercept"
ROWS = 1024  # rows mapped at a time
TOLERANCE = 1e-6  # for rounding


def mapped_names(
    features: str, names: tuple[str, ...], image: tuple[int, int] | None, intercept: bool
) -> tuple[str, ...]:
    """Return the names of the features after a map.

    Parameters
    ----------
    features
        The feature map's name.
    names
        The names of the records' features, without the intercept.
    image
        The images' size, if the features are pixels.
    intercept
        Whether to append the intercept.
    """
    if features != NONE:
        suffixes = names if keeps_positions(features) else range(width_of(features, InputShape(len(names), image)))
        names = tuple(f"{features}_{suffix}" for suffix in suffixes)
    return (*names, INTERCEPT) if intercept else names


def mapped_rows(x: Array, features: str, image: tuple[int, int] | None, intercept: bool) -> Array:
    """Apply a feature map to encoded records [n, J], whose last column is the intercept if there is one.

    Returns
    -------
    Array
        The new features, with the intercept, in the same precision.
    """
    if features == NONE:
        return x
    shape = InputShape(x.shape[1] - intercept, image)
    out, done = np.empty((len(x), width_of(features, shape) + intercept), x.dtype), 0
    for rows in _fill(out, x, build_map(features, shape), intercept):
        report_progress(f"feature map {features}", done := done + rows, len(x))
    return out


def apply_feature_map(dataset: Dataset, options: DataOptions) -> Dataset:
    """Apply the feature map that the options name; a data set to which it was applied already is returned as it is."""
    if options.features == dataset.features_by:
        return dataset
    image, raw_names = source_for(options.data).image, dataset.features[: len(dataset.features) - options.intercept]
    names = mapped_names(options.features, raw_names, image, options.intercept)
    phi = build_map(options.features, InputShape(len(raw_names), image))
    shards = (*dataset.train, *(() if dataset.test is None else (dataset.test,)))
    total, done, mapped = sum(len(shard.x) for shard in shards), 0, []
    allocator = allocator_for(options, total, len(names))
    for shard in shards:
        x = allocator.empty(len(shard.x), len(names))
        for rows in _fill(x, shard.x, phi, options.intercept):
            report_progress(f"feature map {options.features}", done := done + rows, total)
        mapped.append(Shard(x, shard.y))
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


def _fill(out: Array, x: Array, phi: Map, intercept: bool) -> Iterator[int]:
    """Write phi of every record into `out`, yielding the number of records after each block."""
    share, width = length_share(intercept), out.shape[1] - intercept
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        found = phi(x[rows, : x.shape[1] - intercept])
        longest = float(np.sqrt(np.einsum("ij,ij->i", found, found).max(initial=0.0)))
        if not longest <= 1.0 + TOLERANCE:  # a plugin's map may break its promise
            raise InputError(f"the feature map returned a record of norm {longest:g}: it must be 1 or 0")
        out[rows, :width] = share * found
        out[rows, width:] = share
        release_memory(x[rows])
        release_memory(out[rows])
        yield len(x[rows])
