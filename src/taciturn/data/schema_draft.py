"""Draft a schema from a table, for its owner to correct."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from taciturn.data.schema import INDICATOR, MISSING_NAME, Categorical, ColumnRule, Numeric, Schema, comment, dump_schema
from taciturn.data.schema_parser import schema_text
from taciturn.data.table_cells import Table, parse_number, whole_number
from taciturn.data.table_io import read_table
from taciturn.errors import InputError, TaciturnError
from taciturn.types import Classes, Range, Target

MAX_CATEGORIES = 50
MAX_NUMERIC_CLASSES = 20
MAX_CODES = 8  # different whole numbers of a column that are drafted as categories
SKEWED = 10.0  # the largest number over the median, from which a scale is suggested

WARNING = """\
# WARNING: BOUNDS, CATEGORIES, CLASSES, NAMES AND RULES FOR MISSING VALUES WERE READ OFF THE DATA AND ARE NOT PRIVATE.
# Each one can reveal a record: a largest value is one person's value. Replace all of them by what is known
# without looking at the records (a scale's limits, a code book, common knowledge) before training.
# Remove columns that will not be known when the model is used, and everything that names a person.
"""

READ_OFF = "read off the data"  # the comment after every value that a person has to replace


def is_draft(schema: str | Path) -> bool:
    """Return whether a schema still has values that `draft_schema` took from the records."""
    return READ_OFF in schema_text(schema)


def draft_schema(table: Table | str | Path, label: str, agent: str | None = None) -> str:
    """Draft a schema with a rule for each column, from the data, and a warning that says so.

    Parameters
    ----------
    table
        A table, or the path of one.
    label
        The label's column.
    agent
        The column that names each record's agent, if there is one.

    Returns
    -------
    str
        TOML text.

    Raises
    ------
    InputError
        If a column does not exist or cannot be a label, or no column is left to learn from.
    """
    if not isinstance(table, Table):
        table = read_table(table)
    for name in (label, *([agent] if agent else [])):
        table.column(name)
    if agent == label:
        raise InputError(f"column '{label}' cannot be both the label and the agent")
    target = _target(table, label)
    drafts = {name: _draft(table, name) for name in table.columns if name not in (label, agent)}
    rules = tuple(rule for rule, _ in drafts.values() if rule is not None)
    if not rules:
        raise InputError("no column is left to learn from: a table needs one besides the label and the agent")
    remarks = {name: remark for name, (_, remark) in drafts.items()} | {label: READ_OFF}
    names: tuple[str, ...] = ()
    if agent:
        names = tuple(sorted(_distinct(table, agent)))
        remarks[agent] = READ_OFF
        if not names:
            raise InputError(f"column '{agent}' is empty: every record needs an agent")
    left_out = [f"column '{name}' is left out: {remark}" for name, (rule, remark) in drafts.items() if not rule]
    text = dump_schema(Schema(label, target, rules, agent or None, agents=names), remarks, left_out)
    return "\n".join([WARNING, comment('scale: "unit" makes numbers 0..1, "symmetric" makes them -1..1'), text])


def draft_rule(table: Table, name: str, label: bool = False) -> dict[str, list[float] | list[str]]:
    """Return the bounds or the categories of one column, read from the records, by their key in a schema file.

    Parameters
    ----------
    table, name
        The table, and the column.
    label
        Whether it is the label's column.

    Raises
    ------
    InputError
        If it has no values, too many different ones, or looks like an identifier.
    """
    rule = _target(table, name) if label else _draft(table, name)[0]
    match rule:
        case Classes(names):
            return {"categories": list(names)}
        case Categorical(categories=names):
            return {"categories": list(names)}
        case Numeric() | Range():
            return {"bounds": [rule.low, rule.high]}
    raise InputError(
        f"column '{name}' cannot be drafted: it has no values, too many different strings, or looks like an identifier"
    )


def _target(table: Table, label: str) -> Target:
    values = _values(table, label)
    if len(values) < 2:
        raise InputError(f"column '{label}' holds {len(values)} different values: a label needs at least two")
    numbers = _numbers(table, label)
    if numbers is None and len(values) > MAX_CATEGORIES:
        raise InputError(f"column '{label}' holds {len(values)} different strings: that is too many for a label")
    if numbers is None or (len(set(numbers)) <= MAX_NUMERIC_CLASSES and all(map(float.is_integer, numbers))):
        return Classes(tuple(sorted(values)))
    return Range(*_bounds(label, numbers))


def _draft(table: Table, name: str) -> tuple[ColumnRule | None, str]:
    """Return a column's rule with a comment, or None with the reason."""
    values = _values(table, name)
    if not values:
        return None, "it has no values"
    numbers = _numbers(table, name)
    if numbers is not None:
        if len(numbers) > MAX_CATEGORIES and len(set(numbers)) == len(numbers) and all(map(float.is_integer, numbers)):
            return None, "it is a whole number that no two records share, so it looks like an ID"
        missing = INDICATOR if len(numbers) < table.rows else Numeric.missing
        low, high = _bounds(name, numbers)
        if 1 < len(set(numbers)) <= MAX_CODES and all(map(float.is_integer, numbers)):
            codes = tuple(str(int(number)) for number in sorted(set(numbers)))
            rule = Categorical(name, codes, INDICATOR if missing == INDICATOR else Categorical.missing)
            advice = f'; ordered = true or kind = "numeric", bounds = [{low:g}, {high:g}] if their order has a meaning'
            return rule, READ_OFF + (advice if len(codes) > 2 else "")
        remark = READ_OFF if min(numbers) < max(numbers) else f"the data has the one value {low!r}"
        return Numeric(name, low, high, missing), remark + _scale_advice(numbers)
    if len(values) > MAX_CATEGORIES:
        words = sorted(value for value in values if not math.isfinite(parse_number(value)))
        return None, f"it has {len(values)} different values, {len(words)} of them not numbers ('{words[0]}')"
    missing = INDICATOR if None in table.column(name).factorized.names else Categorical.missing
    named = tuple(sorted(values))
    rule = Categorical(name, named, Categorical.missing if MISSING_NAME in named else missing)
    return rule, READ_OFF


def _scale_advice(numbers: list[float]) -> str:
    """Return a suggestion for numbers that are not negative and of which most are far below the largest."""
    smallest, largest, median = min(numbers), max(numbers), float(np.median(numbers))
    if smallest < 0.0 or largest <= SKEWED * median or median == largest:
        return ""
    scale = "log" if smallest > 0.0 else "asinh"
    return f'; most values are small: consider scale = "{scale}"'


def _distinct(table: Table, name: str) -> set[str]:
    return {text for text in table.column(name).factorized.names if text is not None}


def _values(table: Table, name: str) -> set[str]:
    """Return the different values; of several texts for one whole number, such as 1 and 1.0, the shortest."""
    found: dict[int | str, str] = {}
    for text in sorted(_distinct(table, name), key=lambda text: (len(text), text)):
        number = whole_number(text)
        found.setdefault(text if number is None else number, text)
    return set(found.values())


def _numbers(table: Table, name: str) -> list[float] | None:
    """Return the values that are not missing, if all of them are numbers."""
    try:
        numbers = table.numbers(name)
    except TaciturnError:
        return None
    present: list[float] = numbers[~np.isnan(numbers)].tolist()
    return present


def _bounds(name: str, numbers: list[float]) -> tuple[float, float]:
    """Return the smallest and the largest number; a single value gets a larger upper bound."""
    low, high = min(numbers), max(numbers)
    if low == high:
        high = max(low + 1, math.nextafter(low, math.inf))
    if not math.isfinite(high - low):
        raise InputError(f"column '{name}': its values are too far apart to scale")
    return low, high
