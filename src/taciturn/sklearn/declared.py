"""What is known about records without looking at them; what a budget needs and nobody declared is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data.schema import Numeric
from taciturn.errors import InputError, unknown_name
from taciturn.types import Range


def needed(name: str, budget: float, why: str) -> InputError:
    """Something that a finite budget needs was not declared."""
    return InputError(
        f"{name} is None and total_epsilon is {budget:g}: {why}; "
        f"give {name}, or total_epsilon=inf to train without privacy"
    )


def declared_bounds(given: Any, width: int, names: Sequence[str] | None) -> NDArray[np.float64]:
    """(low, high) of every feature, [J, 2]: one pair for all, one for each in order, or one for each by name."""
    if isinstance(given, Mapping):
        given = _by_name(given, names)
    try:
        pairs = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape not in ((2,), (width, 2)):
        raise InputError(
            f"bounds is {given!r}: it must be (low, high) for all features, or such a pair for each of the {width}"
        )
    pairs = np.broadcast_to(pairs, (width, 2)).copy()
    for feature, (low, high) in enumerate(pairs):
        _check_pair("bounds", low, high, f" of feature {feature if names is None else names[feature]}")
    return pairs


def seen_bounds(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """(low, high) of every feature as the records have them, [J, 2]: for training without privacy alone."""
    low, high = x.min(axis=0), x.max(axis=0)
    same = low == high
    return np.column_stack([low - same, high + same])


def rules(bounds: NDArray[np.float64], intercept: bool) -> tuple[Numeric, ...]:
    """The features as a table's schema has them; without an intercept their ranges lie around 0, which stays 0."""
    if not intercept:
        most = np.abs(bounds).max(axis=1)
        bounds = np.column_stack([-most, most])
    return tuple(Numeric(f"x{j}", float(low), float(high)) for j, (low, high) in enumerate(bounds))


def declared_range(given: Any) -> Range:
    """The range of a regressor's label."""
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        raise InputError(f"label_bounds is {given!r}: it must be (low, high)") from None
    _check_pair("label_bounds", low, high)
    return Range(low, high)


def seen_range(y: NDArray[np.float64]) -> Range:
    """The range the labels have: for training without privacy alone."""
    low, high = float(y.min()), float(y.max())
    return Range(low, high if high > low else low + 1.0)


def class_numbers(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """The place of every label among the classes."""
    places = {label: place for place, label in enumerate(classes)}
    found, of = np.unique(y, return_inverse=True)
    for label in found:
        if label not in places:
            raise unknown_name("class", label, map(str, classes))
    return np.array([places[label] for label in found], dtype=np.intp)[of]


def _by_name(given: Mapping[str, Any], names: Sequence[str] | None) -> list[Any]:
    if names is None:
        raise InputError("bounds are given by name, but the features have none: give a data frame, or pairs in order")
    for name in given:
        if name not in names:
            raise InputError(f"bounds: {unknown_name('feature', name, names)}")
    for name in names:
        if name not in given:
            raise InputError(f"bounds leave out feature '{name}': give every feature its (low, high)")
    return [given[name] for name in names]


def _check_pair(what: str, low: float, high: float, of: str = "") -> None:
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"{what}{of} is ({low:g}, {high:g}): both must be finite, and the first below the second")
