"""Records as a public feature map makes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt

import numpy as np

from taciturn.core.arrays import release_memory
from taciturn.data.allocation import allocator_for
from taciturn.data.dataset_source import DataOptions, source_for
from taciturn.data.feature_maps import NONE, Map, Raw, built, keeps_places, width_of
from taciturn.errors import InputError
from taciturn.progress import report_progress
from taciturn.types import Array, Dataset, Shard

INTERCEPT = "intercept"
ROWS = 1024  # at a time
SLACK = 1e-6  # for rounding


def mapped_names(
    features: str, names: tuple[str, ...], image: tuple[int, int] | None, intercept: bool
) -> tuple[str, ...]:
    """What the features are called after the map; `names` are those of the records, without the intercept."""
    if features != NONE:
        places = names if keeps_places(features) else range(width_of(features, Raw(len(names), image)))
        names = tuple(f"{features}_{place}" for place in places)
    return (*names, INTERCEPT) if intercept else names


def mapped_rows(x: Array, features: str, image: tuple[int, int] | None, intercept: bool) -> Array:
    """Encoded records [n, J], their intercept last if there is one, as the map makes them, in the same precision."""
    if features == NONE:
        return x
    raw = Raw(x.shape[1] - intercept, image)
    found, done = np.empty((len(x), width_of(features, raw) + intercept), x.dtype), 0
    for rows in _fill(found, x, built(features, raw), intercept):
        report_progress(_what(features), done := done + rows, len(x))
    return found


def mapped(dataset: Dataset, options: DataOptions) -> Dataset:
    """The data set after the map that the options name; one that went through it stays as it is."""
    if options.features == dataset.features_by:
        return dataset
    image, own = source_for(options.data).image, dataset.features[: len(dataset.features) - options.intercept]
    names, phi = (
        mapped_names(options.features, own, image, options.intercept),
        built(options.features, Raw(len(own), image)),
    )
    shards = (*dataset.train, *(() if dataset.test is None else (dataset.test,)))
    total, done, made = sum(len(shard.x) for shard in shards), 0, []
    room = allocator_for(options, total, len(names))
    for shard in shards:
        x = room.empty(len(shard.x), len(names))
        for rows in _fill(x, shard.x, phi, options.intercept):
            report_progress(_what(options.features), done := done + rows, total)
        made.append(Shard(x, shard.y))
    return replace(
        dataset,
        train=tuple(made[: len(dataset.train)]),
        test=None if dataset.test is None else made[-1],
        features=names,
        notes=(*dataset.notes, *(note for note in room.notes if note not in dataset.notes)),
        features_by=options.features,
    )


def length_share(intercept: bool) -> float:
    """What phi, and an intercept beside it, are multiplied by, so that both together have length 1."""
    return 1.0 / sqrt(1.0 + intercept)


def _what(features: str) -> str:
    return f"feature map {features}"


def _checked(found: Array) -> Array:
    """What a plugin's map makes is bounded as it promised."""
    longest = float(np.sqrt(np.einsum("ij,ij->i", found, found).max(initial=0.0)))
    if not longest <= 1.0 + SLACK:
        raise InputError(
            f"the feature map made a record of length {longest:g}: a map gives every record length 1, or 0"
        )
    return found


def _fill(to: Array, x: Array, phi: Map, intercept: bool) -> Iterator[int]:
    """phi of every record, with how many are done at a time."""
    share, width = length_share(intercept), to.shape[1] - intercept
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        to[rows, :width] = share * _checked(phi(x[rows, : x.shape[1] - intercept]))
        to[rows, width:] = share
        release_memory(x[rows])
        release_memory(to[rows])
        yield len(x[rows])
