"""Raw records become a Dataset here, and only here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.base import PRECISIONS, DataOptions
from tacit.data.partition import Agents, Index
from tacit.errors import InputError
from tacit.types import Array, Classes, Dataset, Shard, Target

INTERCEPT = "intercept"


class Records(NamedTuple):
    """Records as a source reads them; the features are x / unit."""

    x: NDArray[Any]  # [n, J] integers or floats
    labels: NDArray[Any]  # [n] class numbers 0..K-1, or values within the target's bounds
    unit: float = 1.0


def assemble(
    name: str,
    options: DataOptions,
    train: Records,
    agents: Agents,
    *,
    features: Sequence[str],
    target: Target,
    test: Records | None = None,
    notes: Sequence[str] = (),
) -> Dataset:
    """Check the records, encode them, and hand each agent its own."""
    names = (*features, INTERCEPT) if options.intercept else tuple(features)
    _check_names(names)
    for what, records in (("training", train), ("test", test)):
        if records is not None:
            _check(what, records, features, target)
    return Dataset(
        name=name,
        agents=agents.names,
        train=_deal(train, agents, target, options),
        test=None if test is None else encode_records(test, target, options),
        features=names,
        target=target,
        notes=tuple(notes),
    )


def encode_records(records: Records, target: Target, options: DataOptions) -> Shard:
    """Features and labels in the precision asked for."""
    x = encode_features(records.x, records.unit, options.intercept, options.precision)
    return Shard(x, encode_labels(records.labels, target, options.precision))


def encode_features(raw: NDArray[Any], unit: float, intercept: bool, precision: str) -> Array:
    """The features raw / unit, and a last column of ones if asked for; no copy where none is needed."""
    dtype = PRECISIONS[precision]
    if not intercept and unit == 1:
        return np.ascontiguousarray(raw, dtype)
    n, width = raw.shape
    x = np.empty((n, width + intercept), dtype)
    np.divide(raw, dtype(unit), out=x[:, :width], dtype=dtype)
    x[:, width:] = 1
    return x


def encode_labels(labels: NDArray[Any], target: Target, precision: str) -> Array:
    """One-hot rows [n, K] for classes; (value - low) / (high - low) [n, 1] for a number."""
    dtype = PRECISIONS[precision]
    if not isinstance(target, Classes):
        scaled = (labels.astype(np.float64) - target.low) / (target.high - target.low)
        return scaled.astype(dtype)[:, None]
    y = np.zeros((len(labels), target.width), dtype)
    y[np.arange(len(labels)), labels] = 1
    return y


def _deal(records: Records, agents: Agents, target: Target, options: DataOptions) -> tuple[Shard, ...]:
    """Each agent's rows, as views of one array; the raw records are put in order first, being the smaller."""
    for agent, index in zip(agents.names, agents.records, strict=True):
        if not len(index):
            raise InputError(f"agent '{agent}' has no training records: every agent needs at least one")
    order = np.concatenate(agents.records)
    x, labels = _rows(records.x, order), _rows(records.labels, order)
    whole = encode_records(Records(x, labels, records.unit), target, options)
    ends = np.cumsum([len(index) for index in agents.records])[:-1]
    return tuple(Shard(*pair) for pair in zip(np.split(whole.x, ends), np.split(whole.y, ends), strict=True))


def _rows(array: NDArray[Any], order: Index) -> NDArray[Any]:
    first, count = int(order[0]), len(order)
    if np.array_equal(order, np.arange(first, first + count)):
        return array[first : first + count]
    return array[order]


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"two features are named '{name}': every feature needs a name of its own")
        seen.add(name)


def _check(what: str, records: Records, features: Sequence[str], target: Target) -> None:
    x, labels = records.x, records.labels
    if not len(x):
        raise InputError(f"there are no {what} records: there must be at least one")
    if x.ndim != 2 or x.shape[1] != len(features):
        raise InputError(f"the {what} features have shape {x.shape}: it must be (records, {len(features)})")
    if labels.shape != x.shape[:1]:
        raise InputError(f"there are {len(x)} {what} records but labels of shape {labels.shape}: one label each")
    if x.dtype.kind == "f" and not (finite := np.isfinite(x)).all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"feature '{features[column]}' of {what} record {row + 1} is {x[row, column]}: it must be a finite number"
        )
    _check_labels(what, labels, target)


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
