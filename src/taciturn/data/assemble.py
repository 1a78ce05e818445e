"""Assemble raw records into a Dataset, check it, and summarise it in numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import release_memory, row_blocks
from taciturn.data.allocation import ArrayAllocator, allocator_for, feature_rows, join_rows, label_rows, weight_rows
from taciturn.data.dataset_source import DataOptions
from taciturn.data.feature_mapping import INTERCEPT
from taciturn.data.partition import Partition
from taciturn.errors import InputError
from taciturn.types import Classes, Dataset, Shard, Target, slices


class RawRecords(NamedTuple):
    """Records as a source reads them; the features are x / unit."""

    x: NDArray[Any]  # [n, J] integers or floats
    labels: NDArray[Any]  # [n] class numbers 0..K-1, or values within the target's bounds
    unit: float = 1.0
    encoded: bool = False  # x is finite, in the allocator's precision, and includes the intercept
    weights: NDArray[Any] | None = None  # [n] within [0, 1]; None: all records count equally


def assemble(
    name: str,
    options: DataOptions,
    train: RawRecords,
    partition: Partition,
    *,
    features: Sequence[str],
    target: Target,
    test: RawRecords | None = None,
    notes: Sequence[str] = (),
    allocator: ArrayAllocator | None = None,
) -> Dataset:
    """Check records, encode them, and give each agent its part.

    Parameters
    ----------
    name
        The data set's name.
    options
        Precision, intercept and memory limit.
    train, test
        The training and test records.
    partition
        Which agent holds which training records.
    features
        The features' names, without the intercept.
    target
        What the label is.
    notes
        What loading changed in the records, for their owner.
    allocator
        Where to store the records; None: as the options say.

    Raises
    ------
    InputError
        If shapes, names or values are invalid, or an agent has no records and they are not private.
    """
    names = (*features, INTERCEPT) if options.intercept else tuple(features)
    if len(set(names)) < len(names):
        repeated = next(feature for place, feature in enumerate(names) if feature in names[:place])
        raise InputError(f"two features are named '{repeated}': every feature needs a different name")
    for kind, records, fewest in (("training", train, 0 if options.private else 1), ("test", test, 1)):
        if records is not None:
            _check(kind, records, names if records.encoded else features, target, fewest)
    for agent, index in zip(partition.names, partition.records, strict=True):
        if not (len(index) or options.private):
            raise InputError(f"agent '{agent}' has no training records: every agent needs at least one")
    rows = len(train.x) + (0 if test is None else len(test.x))
    allocator = allocator or allocator_for(options, rows, len(names) + target.width + (train.weights is not None))

    def encode(records: RawRecords, index: Sequence[NDArray[np.intp]] | None) -> Shard:
        selection = slice(0, len(records.x)) if index is None else join_rows(index)
        x = feature_rows(records.x, records.unit, selection, len(names), allocator)
        y = label_rows(records.labels, target, selection, allocator)
        return Shard(x, y, weight_rows(records.weights, selection, allocator))

    whole = encode(train, partition.records)
    return Dataset(
        name=name,
        agents=partition.names,
        train=tuple(map(whole.rows, slices(map(len, partition.records)))),
        test=None if test is None else encode(test, None),
        features=names,
        target=target,
        notes=(*notes, *allocator.notes),
    )


def _check(kind: str, records: RawRecords, features: Sequence[str], target: Target, fewest: int) -> None:
    x, labels = records.x, records.labels
    if len(x) < fewest:
        raise InputError(f"there are no {kind} records: there must be at least one")
    if x.ndim != 2 or x.shape[1] != len(features):
        raise InputError(f"the {kind} features have shape {x.shape}: it must be (records, {len(features)})")
    if labels.shape != x.shape[:1]:
        raise InputError(f"there are {len(x)} {kind} records, but labels of shape {labels.shape}: one label each")
    weights = records.weights
    if weights is not None and not (weights.shape == x.shape[:1] and ((weights >= 0) & (weights <= 1)).all()):
        raise ValueError("weights must be numbers within [0, 1], one for each record: sensitivities depend on it")
    if x.dtype.kind == "f" and not records.encoded:
        _check_finite(kind, x, features)
    low, high = (0.0, target.width - 1.0) if isinstance(target, Classes) else (target.low, target.high)
    if isinstance(target, Classes) and labels.dtype.kind not in "iu":
        raise InputError(f"the {kind} labels are {labels.dtype}: they must be whole numbers")
    bad = np.flatnonzero(~((labels >= low) & (labels <= high)))
    if len(bad):
        where = f"the label of {kind} record {bad[0] + 1} is {labels[bad[0]]}"
        raise InputError(f"{where}: it must be within {low:g}..{high:g}")


def _check_finite(kind: str, x: NDArray[Any], features: Sequence[str]) -> None:
    for block in row_blocks(len(x), x[:1].nbytes):
        finite = np.isfinite(x[block])
        if not finite.all():
            row, column = np.argwhere(~finite)[0] + (block.start, 0)
            where = f"feature '{features[column]}' of {kind} record {row + 1} is {x[row, column]}"
            raise InputError(f"{where}: it must be a finite number")
        release_memory(x[block])


def describe(dataset: Dataset) -> dict[str, object]:
    """Return a data set's sizes, classes and notes, as `taciturn data info --json` prints them."""
    cells = sum(shard.x.size for shard in dataset.train)
    nonzero = sum(int(np.count_nonzero(block.x)) for shard in dataset.train for block in shard.blocks())
    facts: dict[str, object] = {
        "name": dataset.name,
        "agents": {name: len(shard.x) for name, shard in zip(dataset.agents, dataset.train, strict=True)},
        "records": dataset.records,
        "test_records": 0 if dataset.test is None else len(dataset.test.x),
        "features": len(dataset.features),
        "nonzero_share": nonzero / max(1, cells),
    }
    if isinstance(dataset.target, Classes):
        facts["classes"] = _class_counts(dataset.train, dataset.target)
        facts["test_classes"] = {} if dataset.test is None else _class_counts((dataset.test,), dataset.target)
    else:
        facts["bounds"] = [dataset.target.low, dataset.target.high]
    return facts | {"notes": list(dataset.notes), "warnings": list(dataset.warnings)}


def refuse_unseen_classes(dataset: Dataset) -> None:
    """Raise InputError if a class has no training record at any agent."""
    if not isinstance(dataset.target, Classes):
        return
    for name, count in _class_counts(dataset.train, dataset.target).items():
        if not count:
            raise InputError(
                f"class '{name}' has no training record: remove it from the schema, add records, or hold out fewer"
            )


def fingerprint(dataset: Dataset) -> str:
    """Return a digest of every record and of the agent that holds it; different data sets have different digests."""
    digest = hashlib.blake2b(repr((dataset.agents, dataset.features, dataset.target)).encode(), digest_size=16)
    for shard in (*dataset.train, *([dataset.test] if dataset.test else [])):
        for name in ("x", "y") if shard.weights is None else ("x", "y", "weights"):
            whole = getattr(shard, name)
            digest.update(repr((whole.shape, whole.dtype.str)).encode())
            for block in shard.blocks():
                digest.update(np.ascontiguousarray(getattr(block, name)).data)
    return digest.hexdigest()


def _class_counts(shards: tuple[Shard, ...], target: Classes) -> dict[str, int]:
    """Count the records of each class; by nonzeros, because float32 sums of ones stop at 2^24."""
    counted = [np.count_nonzero(block.y, axis=0) for shard in shards for block in shard.blocks()]
    counts = np.sum(counted, axis=0)  # [K]
    return {name: int(count) for name, count in zip(target.names, counts, strict=True)}
