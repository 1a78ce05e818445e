"""A data set in numbers."""

from __future__ import annotations

import hashlib

import numpy as np

from tacit.errors import InputError
from tacit.types import Classes, Dataset, Shard


def describe(dataset: Dataset) -> dict[str, object]:
    """What `tacit data info` shows: sizes, classes, and what loading had to do to the records."""
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
