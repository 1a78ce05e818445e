"""Bounds and classes: declared by the user or, for training without privacy, observed in the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data.schema import Categorical, Numeric, Schema
from taciturn.data.schema_parser import class_weights, distinct_names, read_schema
from taciturn.data.table_cells import Table
from taciturn.errors import InputError, shown, unknown_column
from taciturn.sklearn.columns import BOOLEANS, TEXTS, cell_text
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
        The number of features that are numbers, J.
    names : sequence of str or None
        The names of these features, if they have any.

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
    named = names if isinstance(given, Mapping) else None  # names of a frame are shown only if they were declared
    if isinstance(given, Mapping):
        given = _in_order(given, names)
    try:
        pairs = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape not in ((2,), (width, 2)):
        raise InputError(
            f"bounds is {shown(given)}: it must be (low, high) for all features, or such a pair for each of the {width}"
        )
    pairs = np.broadcast_to(pairs, (width, 2)).copy()
    for feature, (low, high) in enumerate(pairs):
        _check_pair(f"bounds of feature {feature}" if named is None else f"bounds of '{named[feature]}'", low, high)
    return pairs


def observed_bounds(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return low and high of every feature in the records, [J, 2]; only for training without privacy."""
    low, high = x.min(axis=0), x.max(axis=0)
    constant = low == high
    return np.column_stack([low - constant, high + constant])


def numeric_rules(bounds: NDArray[np.float64], names: Sequence[str], symmetric: bool) -> dict[str, Numeric]:
    """Return numbers as columns of a schema; with symmetric ranges, 0 stays 0."""
    if symmetric:
        largest = np.abs(bounds).max(axis=1)
        bounds = np.column_stack([-largest, largest])
    return {name: Numeric(name, float(low), float(high)) for name, (low, high) in zip(names, bounds, strict=True)}


def declared_categories(given: Any) -> dict[str, Categorical]:
    """Return the declared text columns by name.

    Parameters
    ----------
    given : mapping or None
        The values that can occur, by column.

    Raises
    ------
    InputError
        If it is not a mapping, or a column's values are not valid names.

    Examples
    --------
    >>> declared_categories({"sex": ["f", "m"], "smokes": [False, True]})["smokes"].categories
    ('false', 'true')
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"categories is {shown(given)}: it must be a dict with the values of each column by its name")
    found: dict[str, Categorical] = {}
    for name, values in given.items():
        where = f"categories of column '{name}'"
        if isinstance(values, str) or not np.iterable(values):
            raise InputError(f"{where} is {shown(values)}: it must be a list of its values")
        texts = [cell_text(value) or "" for value in values]
        if len(set(texts)) < len(texts):  # it may be a column of records, so the value is not shown
            raise InputError(f"{where} holds one value twice: list every category once")
        found[name] = Categorical(str(name), distinct_names(where, texts))
    return found


def categorical_rules(
    kinds: Mapping[str, str], declared: Mapping[str, Categorical], observed: Table | None, budget: float
) -> dict[str, Categorical]:
    """Return the text columns: as declared, of two values, or as observed where there is no privacy.

    Parameters
    ----------
    kinds : mapping
        The kind of each column.
    declared : mapping
        The columns that were declared.
    observed : Table or None
        The records, if they may be looked at.
    budget : float
        For the error message.

    Raises
    ------
    InputError
        If a column was declared that is not there, or needs to be declared.
    """
    for name in declared:
        if name not in kinds:
            raise InputError(f"categories: {unknown_column(name, kinds, 'X')}")
    rules = dict(declared)
    for name, kind in kinds.items():
        if kind == BOOLEANS and name not in rules:
            rules[name] = Categorical(name, ("false", "true"))
        elif kind == TEXTS and name not in rules:
            if observed is None:
                why = "which values occur among the records is private"
                place = list(kinds).index(name) + 1
                raise undeclared(f"categories of column {place} of X", budget, why)
            rules[name] = _observed_categories(observed, name)
    return rules


def _observed_categories(table: Table, name: str) -> Categorical:
    """Return the values that occur in a column, sorted; only for training without privacy."""
    found = tuple(sorted(text for text in table.column(name).factorized.names if text is not None))
    if not found:
        raise InputError("a text column of X has no values: leave it out, or declare its categories")
    return Categorical(name, found)


def given_schema(schema: Any, others: Mapping[str, object]) -> Schema | None:
    """Return a declared schema: the object itself, or the one that a file holds.

    Raises
    ------
    InputError
        If one of the other declarations, by their names, is given too.
    """
    if schema is None:
        return None
    for name, value in others.items():
        if value is not None:
            raise InputError(f"schema and {name} are both given: the schema declares it, so leave {name} None")
    return schema if isinstance(schema, Schema) else read_schema(schema)


def classes_in_type_of(names: Sequence[str], y: NDArray[Any]) -> NDArray[Any]:
    """Return the names of classes in a schema in the type of the labels.

    Examples
    --------
    >>> classes_in_type_of(("0", "1"), np.array([1, 0]))
    array([0, 1])
    """
    try:
        return np.array(names).astype(y.dtype if y.dtype.kind in "iuf" else object)
    except ValueError as error:
        raise InputError(f"y holds numbers, but the schema's classes are {', '.join(names)}") from error


def declared_range(given: Any) -> Range:
    """Return the range of a regressor's label from a pair (low, high)."""
    try:
        pair = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):  # its message may show a record that was given by mistake
        pair = np.empty(0)
    if pair.shape != (2,):
        raise InputError(f"label_bounds is {shown(given)}: it must be (low, high)")
    low, high = pair.tolist()
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
    if any(label not in numbers for label in labels):
        raise InputError(f"y has a label that is not among the classes: {', '.join(map(str, classes))}")
    return np.array([numbers[label] for label in labels], dtype=np.intp)[inverse]


def declared_class_weights(given: Any, classes: NDArray[Any]) -> tuple[float, ...] | None:
    """Return the weight of every class, in the order of the classes; 1 for those that are not given.

    Parameters
    ----------
    given : mapping or None
        The weights by class; None: all classes count equally.
    classes : array [K]
        The classes.

    Raises
    ------
    InputError
        If it is not a mapping, there is no such class, or a weight is not a positive number.

    Examples
    --------
    >>> declared_class_weights({1: 3}, np.array([0, 1]))
    (1.0, 3.0)
    """
    if given is None:
        return None
    if isinstance(given, str) and given == "balanced":
        raise InputError(
            "class_weight is 'balanced', which would count the classes, and the counts are private: give numbers that "
            "are known without looking at the records, such as {0: 1, 1: 3}"
        )
    if not isinstance(given, Mapping):
        raise InputError(f"class_weight is {shown(given)}: it must be None, or a dict with a number for each class")
    names = [str(label) for label in classes.tolist()]
    by_label = dict(zip(classes.tolist(), names, strict=True))
    return class_weights("class_weight", {by_label.get(key, str(key)): given[key] for key in given}, names)


def weight_limit(given: Any, largest: float | None, budget: float) -> float:
    """Return the number to which sample weights are clipped, and by which they are divided.

    Parameters
    ----------
    given : float or None
        What was declared.
    largest : float or None
        The largest weight of the records, to be used without privacy; None with privacy.
    budget : float
        For the error message.

    Raises
    ------
    InputError
        If it is needed and None, or not a positive number.
    """
    if given is None and largest is None:
        raise undeclared("sample_weight_max", budget, "the largest weight among the records is private")
    limit = largest if given is None else given
    if not isinstance(limit, Real) or isinstance(limit, bool) or not 0.0 < float(limit) < np.inf:
        raise InputError(f"sample_weight_max is {shown(limit)}: it must be a finite number above 0")
    return float(limit)


def _in_order(given: Mapping[str, object], names: Sequence[str] | None) -> list[Any]:
    if names is None:
        raise InputError("bounds are given by name, but the features have no names: give a data frame, or pairs")
    for name in given:
        if name not in names:
            raise InputError(f"bounds: {unknown_column(name, names, 'X')}")
    if missing := len(set(names) - set(given)):
        raise InputError(
            f"bounds lacks {missing} of the {len(names)} numeric columns of X: give (low, high) for each of them"
        )
    return [given[name] for name in names]


def _check_pair(name: str, low: float, high: float) -> None:
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"{name} is ({low:g}, {high:g}): both must be finite, and the first below the second")
