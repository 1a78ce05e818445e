"""Data frames of pandas and polars as tables, one frame or one for each party.

An error names columns of the schema and kinds of values, and nothing else of a frame: no cell, no row, and no column
name that the schema does not have, because a file read without its header gives the first row as column names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from taciturn.data.frame_columns import (
    BOOLEAN,
    DATES,
    OTHER,
    Booleans,
    column_kind,
    frame_library,
    read_column,
    series_at,
)
from taciturn.data.schema import Categorical, ColumnRule, Numeric, Schema
from taciturn.data.table_cells import Column, Factorized, Table, TablePart, join_tables
from taciturn.data.table_io import TableFile, TableFiles
from taciturn.errors import InputError, kind_of, unknown_column
from taciturn.types import Classes, Range, Target

TRAINING, TESTING, PREDICTION = "training", "testing", "prediction"


class DataFrame(Protocol):
    """A data frame: pandas.DataFrame or polars.DataFrame."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""


Frames: TypeAlias = DataFrame | Sequence[DataFrame] | Mapping[str, DataFrame]
"""One frame, or one for each party: a list, or a dict by the parties' names."""

Needed: TypeAlias = Mapping[str, ColumnRule | Target | None]
"""The columns that a frame must have, with their rules; None: any value."""


def is_frame(given: object) -> bool:
    """Return whether a value is a data frame of pandas or polars."""
    return frame_library(given) is not None


def needed_columns(schema: Schema, use: str) -> Needed:
    """Return the columns that records need for a use: TRAINING, TESTING or PREDICTION.

    Examples
    --------
    >>> from taciturn.data.schema import Numeric
    >>> schema = Schema("ill", Classes(("no", "yes")), (Numeric("age", 0, 120),), agent="clinic")
    >>> list(needed_columns(schema, TRAINING)), list(needed_columns(schema, PREDICTION))
    (['age', 'ill', 'clinic'], ['age'])
    """
    needed: dict[str, ColumnRule | Target | None] = {rule.name: rule for rule in schema.columns}
    if use != PREDICTION:
        needed[schema.label] = schema.target
    if use == TRAINING:
        groups = (schema.agent, schema.unit.column if schema.unit else None)
        needed |= {name: None for name in groups if name and name not in needed}
        needed |= {schema.weight.column: Range(0.0, schema.weight.largest)} if schema.weight else {}
    return needed


def open_frames(what: str, given: Any, needed: Needed) -> TableFiles:
    """Return one or more frames as a table whose records have not been read.

    Parameters
    ----------
    what : str
        The name of the argument, for error messages.
    given : Frames
        A frame; or a list or dict of frames, one for each party, which a list names agent-1, agent-2 and so on.
    needed : Needed
        The columns that every frame must have.

    Raises
    ------
    InputError
        If a frame lacks a column, or a column has a kind of values that its rule cannot take.
    """
    if is_frame(given):
        return TableFiles((_open_frame(f"{what}: the frame", "frame", given, needed),), folder=False)
    if not isinstance(given, Mapping | list | tuple):
        raise InputError(
            f"{what} is {kind_of(given)}: it must be a path, a pandas or polars DataFrame, or a list or dict of "
            "frames, one for each party"
        )
    parties = given if isinstance(given, Mapping) else {f"agent-{p + 1}": frame for p, frame in enumerate(given)}
    if not parties:
        raise InputError(f"{what} is empty: give one frame for each party")
    files = []
    for number, (party, frame) in enumerate(parties.items(), 1):
        if not isinstance(party, str) or not party or "/" in party:
            raise InputError(f"{what}: key {number} is not the name of a party: it must be a string without a slash")
        if not is_frame(frame):
            raise InputError(f"{what} holds {kind_of(frame)}: it must hold one DataFrame for each party")
        files.append(_open_frame(f"{what}: frame {number}", party, frame, needed))
    return TableFiles(tuple(files), folder=True)


def read_frame(what: str, given: Any, needed: Needed) -> Table:
    """Return a frame, or several, as a table in memory with the columns that are needed; see `open_frames`."""
    table = open_frames(what, given, needed)
    return join_tables(list(table.chunks(tuple(needed), sys.maxsize)), table.folder)


def column_kinds(frame: Any) -> dict[str, str]:
    """Return each column's kind of values, by its type; in columns of Python objects, by the types of the objects.

    Raises
    ------
    InputError
        If it is not a frame, or two columns have one name.
    """
    if not is_frame(frame):
        raise InputError(f"the frame is {kind_of(frame)}: it must be a pandas or polars DataFrame")
    names = _names(frame)
    if len(set(names)) < len(names):
        raise InputError("two columns of the frame have the same name")
    return {name: column_kind(series_at(frame, place)) for place, name in enumerate(names)}


def _names(frame: Any) -> list[str]:
    return [str(name).strip() for name in frame.columns]


def _open_frame(where: str, name: str, frame: Any, needed: Needed) -> TableFile:
    names, rows = _names(frame), frame.shape[0]
    booleans: dict[str, Booleans | None] = {}
    for own, rule in needed.items():
        _check_name(where, own, names)
        kind, place = column_kind(series_at(frame, names.index(own))), f"{where}: column '{own}'"
        _check_kind(place, kind, rule)
        booleans[own] = _booleans(rule)
        if kind == BOOLEAN and booleans[own] is None:
            raise InputError(
                f"{place} is boolean, but the schema's values are {', '.join(_choices(rule))}: declare false and true "
                "instead, or convert the column"
            )

    def column(own: str) -> Column:
        found = read_column(series_at(frame, names.index(own)), booleans.get(own) or Booleans())
        if found is None:
            which = f"column '{own}'" if own in needed else "a column that the schema does not name"
            raise InputError(f"{where}: {which} cannot be read: convert its values to numbers or text")
        return found

    return TableFile(f"{name}.frame", tuple(dict.fromkeys(names)), rows, partial(_chunks, name, rows, column))


def _check_name(where: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise InputError(f"{where}: {unknown_column(name, names, 'the frame')}")
    if names.count(name) > 1:
        raise InputError(f"{where} has two columns named '{name}'")


def _check_kind(where: str, kind: str, rule: ColumnRule | Target | None) -> None:
    if kind == OTHER:
        raise InputError(f"{where} has values that are neither numbers nor text: convert them")
    if kind == DATES and isinstance(rule, Numeric | Range):
        raise InputError(f"{where} has dates, but the schema gives it bounds: convert it to numbers")


def _booleans(rule: ColumnRule | Target | None) -> Booleans | None:
    """Return how the schema spells false and true: 0 and 1 within bounds, and names among categories or classes.

    None if they are neither, of a column with categories or classes.
    """
    if isinstance(rule, Numeric | Range):
        return Booleans("0", "1")
    own = {text.lower(): text for text in _choices(rule)}
    if own and not own.keys() & {"false", "true"}:
        return None
    return Booleans(own.get("false", "false"), own.get("true", "true"))


def _choices(rule: ColumnRule | Target | None) -> tuple[str, ...]:
    return rule.categories if isinstance(rule, Categorical) else rule.names if isinstance(rule, Classes) else ()


def _chunks(
    name: str, rows: int, column: Callable[[str], Column], wanted: Collection[str], most: int
) -> Iterator[Table]:
    columns = {own: column(own) for own in wanted}
    for first in range(0, max(rows, 1), most):
        part = slice(first, min(first + most, rows))
        yield Table(
            {own: _part(found, part) for own, found in columns.items()},
            (TablePart(name, name, None, part.stop - part.start, first),),
        )


def _part(column: Column, rows: slice) -> Column:
    values = column.values
    return Column(Factorized(values.names, values.codes[rows]) if isinstance(values, Factorized) else values[rows])
