"""A table's rows as features and labels, by its schema."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.assemble import encode_features, encode_labels
from tacit.data.base import PRECISIONS
from tacit.data.cells import Table
from tacit.data.schema import Categorical, Numeric, Schema
from tacit.errors import InputError, no_such
from tacit.types import Array, Classes, Range


class Encoded(NamedTuple):
    """Encoded values, and what had to be done to them."""

    values: NDArray[Any]
    notes: list[str]


def encode(
    table: Table, schema: Schema, intercept: bool, precision: str, with_label: bool
) -> tuple[Array, Array | None]:
    """A table for prediction: features [n, J], and labels [n, K] if asked for."""
    if precision not in PRECISIONS:
        raise no_such("precision", precision, PRECISIONS)
    x = encode_features(scale_columns(table, schema).values, 1, intercept, precision)
    if not with_label:
        return x, None
    return x, encode_labels(read_label(table, schema).values, schema.target, precision)


def scale_columns(table: Table, schema: Schema) -> Encoded:
    """The features [n, J] in the schema's order."""
    x = np.zeros((table.rows, len(schema.features)))
    notes: list[str] = []
    at = 0
    for rule in schema.columns:
        table.column(rule.name)
        block, more = (
            _categorical(table, rule) if isinstance(rule, Categorical) else _numeric(table, rule, schema.scale)
        )
        x[:, at : at + block.shape[1]] = block
        at += block.shape[1]
        notes += more
    return Encoded(x, notes)


def read_label(table: Table, schema: Schema) -> Encoded:
    """Class numbers [n], or values [n] within the bounds."""
    name, target = schema.label, schema.target
    if isinstance(target, Classes):
        missing = np.array([text is None for text in table.texts(name)])
        _refuse_missing(table, name, missing, "every record needs its label")
        return Encoded(_codes(table, name, target.names), [])
    values = table.numbers(name)
    _refuse_missing(table, name, np.isnan(values), "every record needs its label")
    return Encoded(np.clip(values, target.low, target.high), _clip_notes(name, values, target))


def ignored_columns(table: Table, schema: Schema) -> list[str]:
    """The table's columns the schema says nothing about."""
    known = {schema.label, schema.agent, schema.unit and schema.unit.column, *(rule.name for rule in schema.columns)}
    return [name for name in table.columns if name not in known]


def _numeric(table: Table, rule: Numeric, scale: str) -> Encoded:
    values = table.numbers(rule.name)
    missing = np.isnan(values)
    notes = _clip_notes(rule.name, values, rule)
    if missing.any():
        if rule.missing == "error":
            _refuse_missing(table, rule.name, missing)
        values = np.where(missing, rule.fill, values)
        notes.append(f"{rule.name}: {_count(missing, 'missing value')} became {rule.fill:.12g}")
    return Encoded(rule.scaled(values, scale)[:, None], notes)


def _categorical(table: Table, rule: Categorical) -> Encoded:
    missing = np.array([text is None for text in table.texts(rule.name)])
    notes = []
    if missing.any():
        if rule.missing == "error":
            _refuse_missing(table, rule.name, missing)
        became = "no category" if rule.missing == "none" else f"'{rule.missing}'"
        notes.append(f"{rule.name}: {_count(missing, 'missing value')} became {became}")
    codes = _codes(table, rule.name, rule.categories)
    if rule.missing not in ("error", "none"):
        codes[missing] = rule.categories.index(rule.missing)
    return Encoded((codes[:, None] == np.arange(len(rule.categories))).astype(np.float64), notes)


def _codes(table: Table, name: str, choices: tuple[str, ...]) -> NDArray[np.intp]:
    """Each value's place among the choices, -1 where missing."""
    places: dict[str | None, int] = {choice: place for place, choice in enumerate(choices)}
    places[None] = -1
    texts = table.texts(name)
    try:
        return np.array([places[text] for text in texts], dtype=np.intp)
    except KeyError:
        row = next(row for row, text in enumerate(texts) if text not in places)
        raise InputError(
            f"column '{name}': '{texts[row]}' {table.where(row)} is not one of {', '.join(choices)}"
        ) from None


def _refuse_missing(
    table: Table, name: str, missing: NDArray[np.bool_], rule: str = "the schema has no rule for it"
) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        raise InputError(f"column '{name}': the value {table.where(rows[0])} is missing: {rule}")


def _clip_notes(name: str, values: NDArray[np.float64], bounds: Numeric | Range) -> list[str]:
    outside = (values < bounds.low) | (values > bounds.high)
    if not outside.any():
        return []
    was = "was" if np.count_nonzero(outside) == 1 else "were"
    return [f"{name}: {_count(outside, 'value')} outside [{bounds.low:.12g}, {bounds.high:.12g}] {was} clipped"]


def _count(mask: NDArray[np.bool_], what: str) -> str:
    count = np.count_nonzero(mask)
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
