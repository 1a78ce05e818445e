"""Bounds and classes: declared by the user or, for training without privacy, observed in the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data.schema import Numeric
from taciturn.errors import InputError, unknown_name
from taciturn.types import Range


def undeclared(name: str, budget: float, why: str) -> InputError:
    """Return the error that a finite budget needs a parameter which is None."""
    return InputError(
        f"{name} is None and total_epsilon is {budget:g}: {why}; "
        f"give {name}, or total_epsilon=inf to train without privacy"
    )


def declared_bounds(given: Any, width: int, names: Sequence[str] | None) -> NDArray[np.float64]:
    """Return the bounds of every feature.

    Parameters
    ----------
    given : pair, sequence of pairs, or mapping
        (low, high) of all features, one pair for each feature in order, or one for each by name.
    width : int
        The number of features, J.
    names : sequence of str or None
        The names of the features, if they have any.

    Returns
    -------
    array [J, 2]
        Low and high of each feature.

    Raises
    ------
    InputError
        If a pair is missing, unknown, not finite, or not increasing.

    Examples
    --------
    >>> declared_bounds((0, 1), 2, None)
    array([[0., 1.],
           [0., 1.]])
    """
    if isinstance(given, Mapping):
        given = _in_order(given, names)
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
        _check_pair(f"bounds of feature {feature if names is None else names[feature]}", low, high)
    return pairs


def observed_bounds(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return low and high of every feature in the records, [J, 2]; only for training without privacy."""
    low, high = x.min(axis=0), x.max(axis=0)
    constant = low == high
    return np.column_stack([low - constant, high + constant])


def numeric_rules(bounds: NDArray[np.float64], intercept: bool) -> tuple[Numeric, ...]:
    """Return the features as columns of a schema; without an intercept, ranges are symmetric, so that 0 stays 0."""
    if not intercept:
        largest = np.abs(bounds).max(axis=1)
        bounds = np.column_stack([-largest, largest])
    return tuple(Numeric(f"x{j}", float(low), float(high)) for j, (low, high) in enumerate(bounds))


def declared_range(given: Any) -> Range:
    """Return the range of a regressor's label from a pair (low, high)."""
    try:
        low, high = map(float, given)
    except (TypeError, ValueError) as error:
        raise InputError(f"label_bounds is {given!r}: it must be (low, high)") from error
    _check_pair("label_bounds", low, high)
    return Range(low, high)


def observed_range(y: NDArray[np.float64]) -> Range:
    """Return the range of the labels; only for training without privacy."""
    low, high = float(y.min()), float(y.max())
    return Range(low, high if high > low else low + 1.0)


def class_numbers(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of every label among the classes, [n].

    Raises
    ------
    InputError
        If a label is not one of them.
    """
    numbers = {label: number for number, label in enumerate(classes)}
    labels, inverse = np.unique(y, return_inverse=True)
    for label in labels:
        if label not in numbers:
            raise unknown_name("class", label, map(str, classes))
    return np.array([numbers[label] for label in labels], dtype=np.intp)[inverse]


def _in_order(given: Mapping[str, Any], names: Sequence[str] | None) -> list[Any]:
    if names is None:
        raise InputError("bounds are given by name, but the features have no names: give a data frame, or pairs")
    for name in given:
        if name not in names:
            raise InputError(f"bounds: {unknown_name('feature', name, names)}")
    for name in names:
        if name not in given:
            raise InputError(f"bounds has no feature '{name}': give (low, high) for every feature")
    return [given[name] for name in names]


def _check_pair(name: str, low: float, high: float) -> None:
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"{name} is ({low:g}, {high:g}): both must be finite, and the first below the second")
