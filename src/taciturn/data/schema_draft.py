"""A first schema for a table, for its owner to correct."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taciturn.data.schema import Categorical, ColumnRule, Numeric, Schema, comment, dump_schema
from taciturn.data.table_cells import Table, is_number
from taciturn.data.table_io import read_table
from taciturn.errors import InputError, TaciturnError
from taciturn.types import Classes, Range, Target

MAX_CATEGORIES = 50
MAX_NUMERIC_CLASSES = 20

WARNING = """\
# WARNING: THE BOUNDS, CATEGORIES, CLASSES AND NAMES BELOW WERE READ OFF THE DATA AND ARE NOT PRIVATE.
# Each one can give a record away: a largest value is somebody's value. Replace every one of them by what
# is known without looking at the records (a scale's limits, a code book, common knowledge) before training.
# Take out columns that will not be known when the model is used, and whatever names a person.
"""

READ_OFF = "read off the data"  # the remark beside every value that a person has to replace


def is_draft(schema: Path) -> bool:
    """Whether a schema still has values as `draft` read them off the records."""
    return READ_OFF in schema.read_text(encoding="utf-8", errors="replace")


class Draft(NamedTuple):
    """A column's rule with a remark, or the reason it has none."""

    rule: ColumnRule | None
    remark: str


def draft_schema(table: Table | str | Path, label: str, agent: str | None = None) -> str:
    """TOML text with a rule for each column, read off the data, and a warning that says so."""
    if not isinstance(table, Table):
        table = read_table(table)
    for name in (label, *([agent] if agent else [])):
        table.column(name)
    if agent == label:
        raise InputError(f"column '{label}' cannot be both the label and the agent")
    target = _target(table, label)
    drafts = {name: _draft(table, name) for name in table.columns if name not in (label, agent)}
    rules = tuple(draft.rule for draft in drafts.values() if draft.rule is not None)
    if not rules:
        raise InputError("no column is left to learn from: a table needs one besides the label and the agent")
    remarks = {name: draft.remark for name, draft in drafts.items()} | {label: READ_OFF}
    names: tuple[str, ...] = ()
    if agent:
        names = tuple(sorted({text for text in table.texts(agent) if text is not None}))
        remarks[agent] = READ_OFF
        if not names:
            raise InputError(f"column '{agent}' names no agent: every record needs one")
    left_out = [f"column '{name}' is left out: {draft.remark}" for name, draft in drafts.items() if not draft.rule]
    text = dump_schema(Schema(label, target, rules, agent or None, agents=names), remarks, left_out)
    return "\n".join([WARNING, comment('scale: "unit" makes numbers 0..1, "symmetric" makes them -1..1'), text])


def _target(table: Table, label: str) -> Target:
    values = {text for text in table.texts(label) if text is not None}
    if len(values) < 2:
        raise InputError(f"column '{label}' holds {len(values)} different values: a label needs at least two")
    numbers = _numbers(table, label)
    if numbers is None:
        if len(values) > MAX_CATEGORIES:
            raise InputError(f"column '{label}' holds {len(values)} different texts: that is no label to learn")
        return Classes(tuple(sorted(values)))
    whole = all(number.is_integer() for number in numbers)
    if whole and len(set(numbers)) <= MAX_NUMERIC_CLASSES:
        return Classes(tuple(sorted(values)))
    return Range(*_bounds(label, numbers))


def _draft(table: Table, name: str) -> Draft:
    values = {text for text in table.texts(name) if text is not None}
    if not values:
        return Draft(None, "it has no values")
    numbers = _numbers(table, name)
    if numbers is not None:
        if len(numbers) > MAX_CATEGORIES and len(set(numbers)) == len(numbers) and all(map(float.is_integer, numbers)):
            return Draft(None, "it is a whole number that no two records share, so it looks like an ID")
        low, high = _bounds(name, numbers)
        remark = READ_OFF if min(numbers) < max(numbers) else f"the data has the one value {low!r}"
        return Draft(Numeric(name, low, high), remark)
    if len(values) > MAX_CATEGORIES:
        words = sorted(value for value in values if not is_number(value))
        return Draft(None, f"it has {len(values)} different values, {len(words)} of them no number ('{words[0]}')")
    return Draft(Categorical(name, tuple(sorted(values))), READ_OFF)


def _numbers(table: Table, name: str) -> list[float] | None:
    """The values that are there, if all of them are numbers."""
    try:
        numbers = table.numbers(name)
    except TaciturnError:
        return None
    present: list[float] = numbers[~np.isnan(numbers)].tolist()
    return present


def _bounds(name: str, numbers: list[float]) -> tuple[float, float]:
    """The least and the greatest; a single value gets some room above."""
    low, high = min(numbers), max(numbers)
    if low == high:
        high = max(low + 1, math.nextafter(low, math.inf))
    if not math.isfinite(high - low):
        raise InputError(f"column '{name}': the values {low:g} and {high:g} are too far apart to scale")
    return low, high
