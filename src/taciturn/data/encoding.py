"""Encode a table's rows as features and labels, by its schema.

Encoding is total: every cell gets a value by a rule that the schema makes public. A number outside its bounds is
clipped. Text in a numeric column and an undeclared category count as missing, and the schema says what replaces missing
values. A record without a label that the schema allows is left out, and one without a weight has the weight 0.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data.allocation import ArrayAllocator, feature_rows, label_rows
from taciturn.data.dataset_source import PRECISIONS
from taciturn.data.schema import INDICATOR, Categorical, Numeric, Schema
from taciturn.data.table_cells import Place, Table, places_in_words, whole_number
from taciturn.errors import InputError, unknown_name
from taciturn.types import UNREADABLE, Array, Classes, Range, slices

MAX_PLACES = 5  # of the rows named in a note
MARKED = "was|were marked as missing"  # in a feature of its own
OUTSIDE, MISSING, WRONG, LEFT_OUT = "outside", "missing", "wrong", "left out"


@dataclass(frozen=True)
class Tally:
    """What encoding changed in each column, counted over all chunks of a table; for its owner only."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (column, change)
    places: defaultdict[tuple[str, str], list[Place]] = field(default_factory=lambda: defaultdict(list))

    def add(self, table: Table, column: str, change: str, rows: NDArray[np.bool_]) -> None:
        """Count the rows of a chunk in which a column was changed."""
        found = np.flatnonzero(rows)
        self.add_places(column, change, len(found), [table.place(int(row)) for row in found[:MAX_PLACES]])

    def add_places(self, column: str, change: str, count: int, places: list[Place]) -> None:
        """Count some rows, of which the first are at the given places."""
        if count:
            self.counts[column, change] += count
            kept = self.places[column, change]
            kept += places[: MAX_PLACES - len(kept)]

    def notes(self, schema: Schema) -> list[str]:
        """Describe the changes in words, in the schema's order."""
        found: list[str] = []
        for rule in schema.columns:
            if isinstance(rule, Numeric):
                wrong, missing = "value|values that is|are not a finite number", f"became {rule.fill:.12g}"
                found += self._clipped(rule.name, rule)
            else:
                wrong, missing = "unknown category|categories", f"became {_level(rule, rule.fill)}"
            unknown = missing = MARKED if rule.missing == INDICATOR else missing
            if isinstance(rule, Categorical) and rule.unknown_fill != rule.fill:
                unknown = f"became {_level(rule, rule.unknown_fill)}"
            found += self._note(rule.name, MISSING, "missing value|values", missing)
            found += self._note(rule.name, WRONG, wrong, unknown)
        if isinstance(schema.target, Range):
            found += self._clipped(schema.label, schema.target)
        if schema.weight:
            name, bounds = schema.weight.column, Range(0.0, schema.weight.largest)
            found += self._clipped(name, bounds)
            found += self._note(name, MISSING, "missing weight|weights", "became 0")
            found += self._note(name, WRONG, "value|values that is|are not a finite number", "became 0")
        needed = [(schema.label, "a label that the schema allows")]
        needed += [(schema.unit.column, "a unit")] if schema.unit else []
        needed += [(schema.agent, "an agent")] if schema.agent else []
        for name, what in needed:
            found += self._note(name, LEFT_OUT, f"record|records without {what} was|were left out")
        return found + self._note("", LEFT_OUT, "line|lines that is|are not a row|rows of the table was|were left out")

    def unreadable(self, schema: Schema, rows: int) -> list[str]:
        """Name the columns of which most cells that are not empty do not fit their declaration, of so many rows."""
        found: list[str] = []
        weight = [Numeric(schema.weight.column, 0.0, schema.weight.largest)] if schema.weight else []
        for rule in (*schema.columns, *weight):
            wrong, filled = self.counts[rule.name, WRONG], rows - self.counts[rule.name, MISSING]
            if wrong > filled / 2:
                why = (
                    "are texts where a number belongs; decimals have a point, as in 45.5, not a comma"
                    if isinstance(rule, Numeric)
                    else "are none of its categories; compare their spelling with the schema's"
                )
                found.append(f"{UNREADABLE} '{rule.name}' do not fit its declaration: {wrong:,} of {filled:,} {why}")
        return found

    def _clipped(self, name: str, bounds: Numeric | Range) -> list[str]:
        return self._note(
            name, OUTSIDE, f"value|values outside [{bounds.low:.12g}, {bounds.high:.12g}] was|were clipped"
        )

    def _note(self, name: str, change: str, words: str, ending: str = "") -> list[str]:
        """Return a note if there is anything to count; in `words`, "one|several" is singular|plural."""
        count, places = self.counts[name, change], self.places.get((name, change), [])
        if not count:
            return []
        said = re.sub(r"(\w+)\|(\w+)", r"\1" if count == 1 else r"\2", f"{count} {words} {ending}".strip())
        return [f"{f'{name}: ' if name else ''}{said} ({places_in_words(places, count)})"]


def _level(rule: Categorical, position: int) -> str:
    return "no category" if position < 0 else f"'{rule.values[position]}'"


def encode(
    table: Table, schema: Schema, intercept: bool, precision: str, with_label: bool
) -> tuple[Array, Array | None]:
    """Encode a table for prediction.

    Parameters
    ----------
    table, schema
        The table and its schema.
    intercept
        Whether to append a feature that is always 1.
    precision
        "float64" or "float32".
    with_label
        Whether to encode labels, which every record must then have.

    Returns
    -------
    Array
        Features [n, J].
    Array or None
        Labels [n, K], if requested.

    Raises
    ------
    InputError
        If a column does not exist, or a record has no valid label.
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    rows, allocator, tally = slice(0, table.rows), ArrayAllocator(PRECISIONS[precision]), Tally()
    x = feature_rows(scale_columns(table, schema, tally), 1, rows, len(schema.features) + intercept, allocator)
    if not with_label:
        return x, None
    labels, labelled = read_label(table, schema, tally)
    if not labelled.all():
        row, target = int(np.argmin(labelled)), schema.target
        allowed = (
            f"a number, as in [{target.low:.12g}, {target.high:.12g}]"
            if isinstance(target, Range)
            else (f"one of {', '.join(target.names)}")
        )
        raise InputError(f"column '{schema.label}': the label {table.where(row)} must be {allowed}")
    return x, label_rows(labels, schema.target, rows, allocator)


def scale_columns(table: Table, schema: Schema, tally: Tally) -> NDArray[np.float64]:
    """Return the features [n, J] in the schema's order, and count what was changed."""
    x = np.empty((table.rows, len(schema.features)))
    for rule, own in zip(schema.columns, slices(len(rule.features) for rule in schema.columns), strict=True):
        if isinstance(rule, Categorical):
            x[:, own] = _categories(table, rule, tally)[:, None] == np.arange(len(rule.values))
        else:
            values, absent = _numbers(table, rule, tally)
            x[:, own.start], x[:, own.start + 1 : own.stop] = rule.scaled(values, schema.scale), absent[:, None]
    return x


def drawn_features(table: Table, schema: Schema, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the features [n, J] whose bits decide a record's draw: x, with every numeric column on a linear scale.

    Sums and quotients are rounded exactly, so their bits are the same everywhere. The last bit of a logarithm depends
    on the processor and on the release of numpy, and a record that is held out must be held out everywhere.

    Parameters
    ----------
    table, schema
        The table and its schema.
    x
        Its features on the schema's own scales, [n, J]; see `scale_columns`.
    """
    if not schema.stretched:
        return x
    rules = (replace(rule, scale="linear") if isinstance(rule, Numeric) else rule for rule in schema.columns)
    return scale_columns(table, replace(schema, columns=tuple(rules)), Tally())


def read_label(table: Table, schema: Schema, tally: Tally) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Read the label's column.

    Returns
    -------
    NDArray
        Class numbers [n], or values within the bounds [n].
    NDArray[np.bool_]
        Which records have a label, [n].
    """
    name, target = schema.label, schema.target
    if isinstance(target, Classes):
        codes, _ = _codes(table, name, target.names)
        return codes, codes >= 0
    values = table.column(name).numbers()
    present = np.isfinite(values)
    tally.add(table, name, OUTSIDE, present & _outside(values, target))
    return np.clip(np.where(present, values, target.low), target.low, target.high), present


def read_weights(table: Table, schema: Schema, labels: NDArray[Any], tally: Tally) -> NDArray[np.float64] | None:
    """Return how much each record counts, within [0, 1], [n]; None if the schema has no weights.

    It is the number in the weight column over the largest that the schema allows, times the weight of the record's
    class over the largest of a class. A missing weight, and text that is not a number, count as 0.

    Parameters
    ----------
    table, schema
        The table and its schema.
    labels
        The class number of each record, [n]; those of records without a label do not matter.
    tally
        Counts what was changed.
    """
    if not schema.weighted:
        return None
    weights = np.ones(table.rows)
    if schema.weight:
        name, bounds = schema.weight.column, Range(0.0, schema.weight.largest)
        values = table.column(name).numbers()
        missing, wrong = np.isnan(values), np.isinf(values)
        tally.add(table, name, MISSING, missing)
        tally.add(table, name, WRONG, wrong)
        tally.add(table, name, OUTSIDE, ~wrong & _outside(values, bounds))
        weights = np.where(missing | wrong, 0.0, np.clip(values, 0.0, bounds.high) / bounds.high)
    return weights * class_factors(schema.class_weights)[labels] if schema.class_weights else weights


def class_factors(class_weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the weights of classes over the largest one, [K]."""
    factors: NDArray[np.float64] = np.array(class_weights) / max(class_weights)
    return factors


def _numbers(table: Table, rule: Numeric, tally: Tally) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a column's numbers with missing and wrong values replaced, and which ones were, [n]."""
    values = table.column(rule.name).numbers()
    if not len(values) or rule.low <= values.min() <= values.max() <= rule.high:  # false if one is NaN
        return values, np.zeros(len(values), np.bool_)
    missing, wrong = np.isnan(values), np.isinf(values)
    tally.add(table, rule.name, MISSING, missing)
    tally.add(table, rule.name, WRONG, wrong)
    tally.add(table, rule.name, OUTSIDE, ~wrong & _outside(values, rule))
    absent: NDArray[np.bool_] = missing | wrong
    return np.where(absent, rule.fill, values), absent


def _categories(table: Table, rule: Categorical, tally: Tally) -> NDArray[np.intp]:
    """Return the position of each value's feature, -1 for none."""
    if rule.buckets:
        names, codes = table.column(rule.name).factorized
        missing = np.array([text is None for text in names], dtype=np.bool_)[codes]
        tally.add(table, rule.name, MISSING, missing)
        places = [rule.fill if text is None else rule.bucket(text) for text in names]
        return np.array(places, dtype=np.intp)[codes]
    codes, missing = _codes(table, rule.name, rule.categories)
    unknown = codes < 0
    if unknown.any():
        tally.add(table, rule.name, MISSING, missing)
        tally.add(table, rule.name, WRONG, unknown & ~missing)
        codes[unknown] = np.where(missing[unknown], rule.fill, rule.unknown_fill)
    return codes


def _codes(table: Table, name: str, choices: tuple[str, ...]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return each value's position among the choices, -1 for none of them, and which values are missing, [n].

    A text that is no choice but a whole number, such as 1.0, counts as that number, 1.
    """
    positions = {choice: position for position, choice in enumerate(choices)}
    by_number = {whole_number(choice): position for position, choice in enumerate(choices)} | {None: -1}

    def position(text: str | None) -> int:
        if text is None:
            return -1
        return positions[text] if text in positions else by_number.get(whole_number(text), -1)

    names, codes = table.column(name).factorized
    found = np.array([position(text) for text in names], dtype=np.intp)
    return found[codes], np.array([text is None for text in names], dtype=np.bool_)[codes]


def _outside(values: NDArray[np.float64], bounds: Numeric | Range) -> NDArray[np.bool_]:
    outside: NDArray[np.bool_] = (values < bounds.low) | (values > bounds.high)
    return outside
