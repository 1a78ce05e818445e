"""A table's rows as features and labels, by its schema."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.base import PRECISIONS
from tacit.data.cells import Table
from tacit.data.room import Room
from tacit.data.rows import feature_rows, label_rows
from tacit.data.schema import Categorical, Numeric, Schema
from tacit.errors import InputError, no_such
from tacit.types import Array, Classes, Range


@dataclass(frozen=True)
class Tally:
    """What had to be done to the values of each column, counted over all chunks of a table."""

    clipped: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)

    def notes(self, schema: Schema) -> list[str]:
        """In words, in the schema's order."""
        found: list[str] = []
        for rule in schema.columns:
            if isinstance(rule, Numeric):
                found += self._clipped(rule.name, rule)
            if count := self.missing[rule.name]:
                found.append(f"{rule.name}: {_count(count, 'missing value')} became {_became(rule)}")
        return found + ([] if isinstance(schema.target, Classes) else self._clipped(schema.label, schema.target))

    def _clipped(self, name: str, bounds: Numeric | Range) -> list[str]:
        if not (count := self.clipped[name]):
            return []
        was = "was" if count == 1 else "were"
        return [f"{name}: {_count(count, 'value')} outside [{bounds.low:.12g}, {bounds.high:.12g}] {was} clipped"]


def encode(
    table: Table, schema: Schema, intercept: bool, precision: str, with_label: bool
) -> tuple[Array, Array | None]:
    """A table for prediction: features [n, J], and labels [n, K] if asked for."""
    if precision not in PRECISIONS:
        raise no_such("precision", precision, PRECISIONS)
    rows, room, tally = slice(0, table.rows), Room(PRECISIONS[precision]), Tally()
    x = feature_rows(scale_columns(table, schema, tally), 1, rows, len(schema.features) + intercept, room)
    return x, label_rows(read_label(table, schema, tally), schema.target, rows, room) if with_label else None


def scale_columns(table: Table, schema: Schema, tally: Tally) -> NDArray[np.float64]:
    """The features [n, J] in the schema's order."""
    x = np.empty((table.rows, len(schema.features)))
    at = 0
    for rule in schema.columns:
        table.column(rule.name)
        if isinstance(rule, Categorical):
            codes = _categorical(table, rule, tally)
            x[:, at : at + len(rule.categories)] = codes[:, None] == np.arange(len(rule.categories))
        else:
            x[:, at] = _numeric(table, rule, schema.scale, tally)
        at += len(rule.features)
    return x


def read_label(table: Table, schema: Schema, tally: Tally) -> NDArray[Any]:
    """Class numbers [n], or values [n] within the bounds."""
    name, target = schema.label, schema.target
    if isinstance(target, Classes):
        _refuse_missing(table, name, _absent(table, name), "every record needs its label")
        return _codes(table, name, target.names)
    values = table.numbers(name)
    _refuse_missing(table, name, np.isnan(values), "every record needs its label")
    _count_outside(name, values, target, tally)
    return np.clip(values, target.low, target.high)


def _numeric(table: Table, rule: Numeric, scale: str, tally: Tally) -> NDArray[np.float64]:
    values = table.column(rule.name).numbers()
    if not rule.low <= values.min() <= values.max() <= rule.high:  # or one is missing
        values = _filled(table, rule, tally)
    return rule.scaled(values, scale)


def _filled(table: Table, rule: Numeric, tally: Tally) -> NDArray[np.float64]:
    """A column's numbers without gaps; what had to be done to them is counted."""
    values = table.numbers(rule.name)
    _count_outside(rule.name, values, rule, tally)
    missing = np.isnan(values)
    if missing.any():
        if rule.missing == "error":
            _refuse_missing(table, rule.name, missing)
        values = np.where(missing, rule.fill, values)
        tally.missing[rule.name] += int(np.count_nonzero(missing))
    return values


def _categorical(table: Table, rule: Categorical, tally: Tally) -> NDArray[np.intp]:
    """Each value's place among the categories, -1 for none of them."""
    missing = _absent(table, rule.name)
    if missing.any():
        if rule.missing == "error":
            _refuse_missing(table, rule.name, missing)
        tally.missing[rule.name] += int(np.count_nonzero(missing))
    codes = _codes(table, rule.name, rule.categories)
    if rule.missing not in ("error", "none"):
        codes[missing] = rule.categories.index(rule.missing)
    return codes


def _became(rule: Numeric | Categorical) -> str:
    if isinstance(rule, Numeric):
        return f"{rule.fill:.12g}"
    return "no category" if rule.missing == "none" else f"'{rule.missing}'"


def _absent(table: Table, name: str) -> NDArray[np.bool_]:
    """Which rows have no value, [n]."""
    names, of = table.places(name)
    return np.array([text is None for text in names])[of]


def _codes(table: Table, name: str, choices: tuple[str, ...]) -> NDArray[np.intp]:
    """Each value's place among the choices, -1 where missing."""
    codes: dict[str | None, int] = {choice: place for place, choice in enumerate(choices)}
    codes[None] = -1
    names, of = table.places(name)
    for place, text in enumerate(names):
        if text not in codes:
            where = table.where(int(np.argmax(of == place)))
            raise InputError(f"column '{name}': '{text}' {where} is not one of {', '.join(choices)}")
    return np.array([codes[text] for text in names], dtype=np.intp)[of]


def _refuse_missing(
    table: Table, name: str, missing: NDArray[np.bool_], rule: str = "the schema has no rule for it"
) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        raise InputError(f"column '{name}': the value {table.where(rows[0])} is missing: {rule}")


def _count_outside(name: str, values: NDArray[np.float64], bounds: Numeric | Range, tally: Tally) -> None:
    tally.clipped[name] += int(np.count_nonzero((values < bounds.low) | (values > bounds.high)))


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
