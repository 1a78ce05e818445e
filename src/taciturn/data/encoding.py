"""A table's rows as features and labels, by its schema.

Encoding is total: every cell has a value by a rule that the schema makes public. A number outside its bounds is
clipped; what is no value of its column (a text where a number belongs, a category that is not declared) counts as
missing, and missing values are what the schema says. A record without a label that the schema allows is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data.allocation import ArrayAllocator, feature_rows, label_rows
from taciturn.data.dataset_source import PRECISIONS
from taciturn.data.schema import Categorical, Numeric, Schema
from taciturn.data.table_cells import Table
from taciturn.errors import InputError, unknown_name
from taciturn.types import Array, Classes, Range

PLACES = 5  # of what was done to a column that are named
OUTSIDE, MISSING, WRONG, LEFT_OUT = "outside", "missing", "wrong", "left out"


@dataclass(frozen=True)
class Tally:
    """What had to be done to the values of each column, counted over all chunks of a table: for its owner alone."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (column, what was done)
    places: defaultdict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, table: Table, column: str, what: str, rows: NDArray[np.bool_]) -> None:
        """Count these rows of a chunk."""
        found = np.flatnonzero(rows)
        self.add_places(column, what, len(found), [table.where(int(row)) for row in found[:PLACES]])

    def add_places(self, column: str, what: str, count: int, places: list[str]) -> None:
        """Count some rows, the first of which are at these places."""
        if count:
            self.counts[column, what] += count
            kept = self.places[column, what]
            kept += places[: PLACES - len(kept)]

    def notes(self, schema: Schema) -> list[str]:
        """In words, in the schema's order."""
        found: list[str] = []
        for rule in schema.columns:
            if isinstance(rule, Numeric):
                found += self._clipped(rule.name, rule)
            became = f"became {_became(rule)}"
            wrong = "text where a number belongs" if isinstance(rule, Numeric) else "unknown category"
            plural = "texts where a number belongs" if isinstance(rule, Numeric) else "unknown categories"
            found += self._note(rule.name, MISSING, "missing value", "missing values", became, became)
            found += self._note(rule.name, WRONG, wrong, plural, became, became)
        if isinstance(schema.target, Range):
            found += self._clipped(schema.label, schema.target)
        unit = [(schema.unit.column, "a unit")] if schema.unit else []
        agent = [(schema.agent, "an agent")] if schema.agent else []
        for name, what in ((schema.label, "a label that the schema allows"), *unit, *agent):
            found += self._left_out(name, f"record without {what}", f"records without {what}")
        return found + self._left_out("", "line that is no row of the table", "lines that are no rows of the table")

    def _clipped(self, name: str, bounds: Numeric | Range) -> list[str]:
        beyond = f"outside [{bounds.low:.12g}, {bounds.high:.12g}]"
        return self._note(name, OUTSIDE, f"value {beyond}", f"values {beyond}", "was clipped", "were clipped")

    def _left_out(self, name: str, one: str, several: str) -> list[str]:
        return self._note(name, LEFT_OUT, one, several, "was left out", "were left out")

    def _note(self, name: str, what: str, one: str, several: str, was: str, were: str) -> list[str]:
        count, places = self.counts[name, what], self.places.get((name, what), [])
        if not count:
            return []
        words = f"{count} {one} {was}" if count == 1 else f"{count} {several} {were}"
        more = ", …" if count > len(places) else ""
        return [f"{f'{name}: ' if name else ''}{words} ({', '.join(places)}{more})"]


def encode(
    table: Table, schema: Schema, intercept: bool, precision: str, with_label: bool
) -> tuple[Array, Array | None]:
    """A table for prediction: features [n, J], and labels [n, K] if asked for, which every record must have."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    rows, room, tally = slice(0, table.rows), ArrayAllocator(PRECISIONS[precision]), Tally()
    x = feature_rows(scale_columns(table, schema, tally), 1, rows, len(schema.features) + intercept, room)
    if not with_label:
        return x, None
    labels, labelled = read_label(table, schema, tally)
    if not labelled.all():
        _refuse_label(table, schema, int(np.argmin(labelled)))
    return x, label_rows(labels, schema.target, rows, room)


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


def read_label(table: Table, schema: Schema, tally: Tally) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Class numbers [n], or values [n] within the bounds; and which records have a label, [n]."""
    name, target = schema.label, schema.target
    if isinstance(target, Classes):
        codes, _ = _codes(table, name, target.names)
        return codes, codes >= 0
    values = table.column(name).numbers()
    there = np.isfinite(values)
    tally.add(table, name, OUTSIDE, there & _outside(values, target))
    return np.clip(np.where(there, values, target.low), target.low, target.high), there


def _refuse_label(table: Table, schema: Schema, row: int) -> None:
    target, text = schema.target, table.texts(schema.label)[row]
    allowed = (
        f"one of {', '.join(target.names)}"
        if isinstance(target, Classes)
        else f"a number, as in [{target.low:.12g}, {target.high:.12g}]"
    )
    is_what = "is missing" if text is None else f"is '{text}'"
    raise InputError(f"column '{schema.label}': the label {table.where(row)} {is_what}: it must be {allowed}")


def _numeric(table: Table, rule: Numeric, scale: str, tally: Tally) -> NDArray[np.float64]:
    values = table.column(rule.name).numbers()
    if not rule.low <= values.min() <= values.max() <= rule.high:  # or one is no number
        values = _filled(table, rule, values, tally)
    return rule.scaled(values, scale)


def _filled(table: Table, rule: Numeric, values: NDArray[np.float64], tally: Tally) -> NDArray[np.float64]:
    """A column's numbers without gaps; what had to be done to them is counted."""
    missing, wrong = np.isnan(values), np.isinf(values)
    tally.add(table, rule.name, MISSING, missing)
    tally.add(table, rule.name, WRONG, wrong)
    tally.add(table, rule.name, OUTSIDE, ~wrong & _outside(values, rule))
    return np.where(missing | wrong, rule.fill, values)


def _categorical(table: Table, rule: Categorical, tally: Tally) -> NDArray[np.intp]:
    """Each value's place among the categories, -1 for none of them."""
    codes, missing = _codes(table, rule.name, rule.categories)
    none = codes < 0
    if none.any():
        tally.add(table, rule.name, MISSING, missing)
        tally.add(table, rule.name, WRONG, none & ~missing)
        codes[none] = rule.fill
    return codes


def _became(rule: Numeric | Categorical) -> str:
    if isinstance(rule, Numeric):
        return f"{rule.fill:.12g}"
    return "no category" if rule.missing == "none" else f"'{rule.missing}'"


def _codes(table: Table, name: str, choices: tuple[str, ...]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Each value's place among the choices, -1 where it is none of them; and where there is no value, [n]."""
    codes = {choice: place for place, choice in enumerate(choices)}
    names, of = table.places(name)
    found = np.array([-1 if text is None else codes.get(text, -1) for text in names], dtype=np.intp)
    return found[of], np.array([text is None for text in names], dtype=np.bool_)[of]


def _outside(values: NDArray[np.float64], bounds: Numeric | Range) -> NDArray[np.bool_]:
    outside: NDArray[np.bool_] = (values < bounds.low) | (values > bounds.high)
    return outside
