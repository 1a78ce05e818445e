"""A data set in numbers."""

from __future__ import annotations

import numpy as np

from tacit.types import Classes, Dataset, Shard


def describe(dataset: Dataset) -> dict[str, object]:
    """What `tacit data info` shows: sizes, classes, and what loading had to do to the records."""
    cells = sum(shard.x.size for shard in dataset.train)
    nonzero = sum(int(np.count_nonzero(shard.x)) for shard in dataset.train)
    facts: dict[str, object] = {
        "name": dataset.name,
        "agents": {name: len(shard.x) for name, shard in zip(dataset.agents, dataset.train, strict=True)},
        "records": dataset.records,
        "test_records": 0 if dataset.test is None else len(dataset.test.x),
        "features": len(dataset.features),
        "density": nonzero / cells,  # share of the feature values that are not 0
    }
    if isinstance(dataset.target, Classes):
        facts["classes"] = _counts(dataset.train, dataset.target)
        facts["test_classes"] = {} if dataset.test is None else _counts((dataset.test,), dataset.target)
    else:
        facts["bounds"] = [dataset.target.low, dataset.target.high]
    facts["notes"] = list(dataset.notes)
    return facts


def _counts(shards: tuple[Shard, ...], target: Classes) -> dict[str, int]:
    """Records of each class; counting nonzeros, since float32 sums of ones stop at 2^24."""
    counts = np.sum([np.count_nonzero(shard.y, axis=0) for shard in shards], axis=0)  # [K]
    return {name: int(count) for name, count in zip(target.names, counts, strict=True)}
