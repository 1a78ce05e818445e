"""Assemble raw records into a Dataset, check it, and describe it in numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import release_memory, row_blocks
from taciturn.data.allocation import ArrayAllocator, Chosen, allocator_for, chosen, feature_rows, label_rows
from taciturn.data.dataset_source import DataOptions
from taciturn.data.feature_mapping import INTERCEPT
from taciturn.data.partition import Agents
from taciturn.errors import InputError
from taciturn.types import Classes, Dataset, Shard, Target


def describe(dataset: Dataset) -> dict[str, object]:
    """What `taciturn data info` shows: sizes, classes, and what loading had to do to the records."""
    cells = sum(shard.x.size for shard in dataset.train)
    nonzero = sum(int(np.count_nonzero(block.x)) for shard in dataset.train for block in shard.blocks())
    facts: dict[str, object] = {
        "name": dataset.name,
        "agents": {name: len(shard.x) for name, shard in zip(dataset.agents, dataset.train, strict=True)},
        "records": dataset.records,
        "test_records": 0 if dataset.test is None else len(dataset.test.x),
        "features": len(dataset.features),
        "nonzero_share": nonzero / max(1, cells),  # of the feature values
    }
    if isinstance(dataset.target, Classes):
        facts["classes"] = _counts(dataset.train, dataset.target)
        facts["test_classes"] = {} if dataset.test is None else _counts((dataset.test,), dataset.target)
    else:
        facts["bounds"] = [dataset.target.low, dataset.target.high]
    facts["notes"] = list(dataset.notes)
    return facts


def refuse_unseen_classes(dataset: Dataset) -> None:
    """Stop where no agent has a training record of a class."""
    if not isinstance(dataset.target, Classes):
        return
    for name, count in _counts(dataset.train, dataset.target).items():
        if not count:
            raise InputError(
                f"class '{name}' has no training record: take it out of the schema, add records of it, or hold out less"
            )


def fingerprint(dataset: Dataset) -> str:
    """A digest of every record and of who holds it: two data sets that differ anywhere differ here."""
    digest = hashlib.blake2b(repr((dataset.agents, dataset.features, dataset.target)).encode(), digest_size=16)
    for shard in (*dataset.train, *([dataset.test] if dataset.test else [])):
        for name in ("x", "y"):
            whole = getattr(shard, name)
            digest.update(repr((whole.shape, whole.dtype.str)).encode())
            for block in shard.blocks():
                digest.update(np.ascontiguousarray(getattr(block, name)).data)
    return digest.hexdigest()


def _counts(shards: tuple[Shard, ...], target: Classes) -> dict[str, int]:
    """Records of each class; counting nonzeros, since float32 sums of ones stop at 2^24."""
    counted = [np.count_nonzero(block.y, axis=0) for shard in shards for block in shard.blocks()]
    counts = np.sum(counted, axis=0)  # [K]
    return {name: int(count) for name, count in zip(target.names, counts, strict=True)}


class RawRecords(NamedTuple):
    """Records as a source reads them; the features are x / unit."""

    x: NDArray[Any]  # [n, J] integers or floats
    labels: NDArray[Any]  # [n] class numbers 0..K-1, or values within the target's bounds
    unit: float = 1.0
    encoded: bool = False  # x is finite, in the room's precision, and has its intercept already


def assemble(
    name: str,
    options: DataOptions,
    train: RawRecords,
    agents: Agents,
    *,
    features: Sequence[str],
    target: Target,
    test: RawRecords | None = None,
    notes: Sequence[str] = (),
    room: ArrayAllocator | None = None,
) -> Dataset:
    """Check the records, encode them, and hand each agent its own; `room`: where they lie, if that is settled."""
    names = (*features, INTERCEPT) if options.intercept else tuple(features)
    _check_names(names)
    for what, records, fewest in (("training", train, 0 if options.private else 1), ("test", test, 1)):
        if records is not None:
            _check(what, records, names if records.encoded else features, target, fewest)
    rows = len(train.x) + (0 if test is None else len(test.x))
    room = room or allocator_for(options, rows, len(names) + target.width)
    return Dataset(
        name=name,
        agents=agents.names,
        train=_deal(train, agents, target, len(names), room, options.private),
        test=None if test is None else _encode(test, slice(0, len(test.x)), target, len(names), room),
        features=names,
        target=target,
        notes=(*notes, *room.notes),
    )


def _deal(
    records: RawRecords, agents: Agents, target: Target, width: int, room: ArrayAllocator, private: bool
) -> tuple[Shard, ...]:
    """Each agent's rows, as views of one array; of private records an agent may have none."""
    for agent, index in zip(agents.names, agents.records, strict=True):
        if not (len(index) or private):
            raise InputError(f"agent '{agent}' has no training records: every agent needs at least one")
    whole = _encode(records, chosen(agents.records), target, width, room)
    ends = np.cumsum([len(index) for index in agents.records])[:-1]
    return tuple(Shard(*pair) for pair in zip(np.split(whole.x, ends), np.split(whole.y, ends), strict=True))


def _encode(records: RawRecords, rows: Chosen, target: Target, width: int, room: ArrayAllocator) -> Shard:
    x = feature_rows(records.x, records.unit, rows, width, room)
    return Shard(x, label_rows(records.labels, target, rows, room))


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"two features are named '{name}': every feature needs a name of its own")
        seen.add(name)


def _check(what: str, records: RawRecords, features: Sequence[str], target: Target, fewest: int) -> None:
    x, labels = records.x, records.labels
    if len(x) < fewest:
        raise InputError(f"there are no {what} records: there must be at least one")
    if x.ndim != 2 or x.shape[1] != len(features):
        raise InputError(f"the {what} features have shape {x.shape}: it must be (records, {len(features)})")
    if labels.shape != x.shape[:1]:
        raise InputError(f"there are {len(x)} {what} records but labels of shape {labels.shape}: one label each")
    if x.dtype.kind == "f" and not records.encoded:
        _check_finite(what, x, features)
    _check_labels(what, labels, target)


def _check_finite(what: str, x: NDArray[Any], features: Sequence[str]) -> None:
    for block in row_blocks(len(x), x[:1].nbytes):
        finite = np.isfinite(x[block])
        if not finite.all():
            row, column = np.argwhere(~finite)[0] + (block.start, 0)
            raise InputError(
                f"feature '{features[column]}' of {what} record {row + 1} is {x[row, column]}:"
                " it must be a finite number"
            )
        release_memory(x[block])


def _check_labels(what: str, labels: NDArray[Any], target: Target) -> None:
    if isinstance(target, Classes):
        if labels.dtype.kind not in "iu":
            raise InputError(f"the {what} labels are {labels.dtype}: they must be whole numbers")
        low, high = 0.0, float(target.width - 1)
    else:
        low, high = target.low, target.high
    bad = np.flatnonzero(~((labels >= low) & (labels <= high)))
    if len(bad):
        raise InputError(
            f"the label of {what} record {bad[0] + 1} is {labels[bad[0]]}: it must be within {low:g}..{high:g}"
        )
