"""Data frames of pandas and polars as tables, one frame or one for each party.

An error names columns of the schema and kinds of values, and nothing else of a frame: no cell, no row, and no column
name that the schema does not have, because a file read without its header gives the first row as column names. A
library's own error about a cell that it cannot convert is not passed on, because its message may show the cell.

A cell's number or text depends on that cell alone, never on the others of its column: records next to each other in a
frame must not change what one of them is. Neither library is imported here.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.data.schema import Categorical, ColumnRule, Numeric, Schema
from taciturn.data.table_cells import Column, Factorized, Table, TablePart, factorize, join_tables
from taciturn.data.table_io import EXACT, TableFile, TableFiles
from taciturn.errors import InputError, kind_of, unknown_column
from taciturn.types import Classes, Range, Target

NUMERIC, BOOLEAN, TEXT, DATES, OTHER = "numeric", "boolean", "text", "dates", "other"
NESTED = (list, dict, tuple, set, bytes, np.ndarray)
MIDNIGHT = " 00:00:00"
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


class Booleans(NamedTuple):
    """The texts of the two booleans."""

    false: str = "false"
    true: str = "true"


def frame_library(given: object) -> str | None:
    """Return "pandas" or "polars" for a frame of theirs, else None; a frame exists only if its library is loaded."""
    for name in ("pandas", "polars"):
        kind = getattr(sys.modules.get(name), "DataFrame", None)
        if isinstance(kind, type) and isinstance(given, kind):
            return name
    return None


def series_at(frame: Any, place: int) -> Any:
    """Return a column of a frame by its position."""
    return frame.iloc[:, place] if frame_library(frame) == "pandas" else frame[:, place]


def column_kind(series: Any) -> str:
    """Return NUMERIC, BOOLEAN, TEXT, DATES or OTHER for a column."""
    return _pandas_kind(series) if _is_pandas(series) else _polars_kind(series)


def read_column(series: Any, booleans: Booleans = Booleans()) -> Column | None:  # noqa: B008  it is immutable
    """Convert a column; None if it has values, but none with a text. A single value without a text is missing.

    Numbers stay numbers if float64 represents them exactly.
    """
    try:
        return _pandas_column(series, booleans) if _is_pandas(series) else _polars_column(series, booleans)
    except Exception:  # whatever it is, its message may show a cell
        return None


def _is_pandas(series: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(series, pandas.Series)


def _pandas_kind(series: Any) -> str:
    pandas, kind = sys.modules["pandas"], series.dtype
    types = pandas.api.types
    if types.is_object_dtype(kind):
        return _kind_of_objects(series)
    if types.is_bool_dtype(kind):
        return BOOLEAN
    if types.is_numeric_dtype(kind):
        return OTHER if types.is_complex_dtype(kind) else NUMERIC
    if types.is_datetime64_any_dtype(kind) or types.is_timedelta64_dtype(kind) or isinstance(kind, pandas.PeriodDtype):
        return DATES
    return TEXT if types.is_string_dtype(kind) or isinstance(kind, pandas.CategoricalDtype) else OTHER


def _kind_of_objects(series: Any) -> str:
    """Return the kind of a column of Python objects, from the types of its values."""
    present = [cell for cell, gone in zip(series.tolist(), _gone(series), strict=True) if not gone]
    found = str(sys.modules["pandas"].api.types.infer_dtype(present, skipna=False))
    if found == "boolean":
        return BOOLEAN
    if found in ("integer", "floating", "mixed-integer-float", "decimal"):
        return NUMERIC
    if found.startswith(("date", "time", "period")):
        return DATES
    nested = present and all(isinstance(cell, NESTED) for cell in present)
    return OTHER if found in ("bytes", "complex") or nested else TEXT


def _gone(series: Any) -> list[bool]:
    """Return which cells of a column of pandas are missing."""
    pandas = sys.modules["pandas"]

    def gone(cell: Any) -> bool:
        try:
            return not isinstance(cell, NESTED) and bool(pandas.isna(cell))
        except Exception:  # such as a signaling NaN
            return False

    if pandas.api.types.is_object_dtype(series.dtype):
        return [gone(cell) for cell in series.tolist()]
    found: list[bool] = series.isna().tolist()
    return found


def _pandas_column(series: Any, booleans: Booleans) -> Column | None:
    if isinstance(series.dtype, sys.modules["pandas"].CategoricalDtype):
        names = [_text(value, booleans) for value in series.cat.categories.tolist()]
        return Column(factorize(None if code < 0 else names[code] for code in series.cat.codes.tolist()))
    if _pandas_kind(series) == NUMERIC:
        numbers = _pandas_numbers(series)
        if numbers is not None and not (_is_whole(series) and _is_inexact(numbers)):
            return Column(numbers)
    return _text_column(_gone(series), series.tolist(), booleans)


def _pandas_numbers(series: Any) -> NDArray[np.float64] | None:
    """Return the numbers of a column; None if one of them is too large for float64."""
    try:
        numbers: NDArray[np.float64] = series.to_numpy(dtype=np.float64, na_value=np.nan)
    except (OverflowError, ValueError):
        return None
    return numbers


def _polars_kind(series: Any) -> str:
    polars, kind = sys.modules["polars"], series.dtype
    if kind == polars.Boolean:
        return BOOLEAN
    if kind.is_numeric() or kind == polars.Null:
        return NUMERIC
    if kind.is_temporal():
        return DATES
    return TEXT if kind in (polars.String, polars.Categorical, polars.Enum) else OTHER


def _polars_column(series: Any, booleans: Booleans) -> Column | None:
    polars, kind = sys.modules["polars"], _polars_kind(series)
    if kind == NUMERIC:
        numbers: NDArray[np.float64] = series.cast(polars.Float64).fill_null(np.nan).to_numpy()
        if not (_is_whole(series) and _is_inexact(numbers)):
            return Column(numbers)
    return _text_column(series.is_null().to_list(), series.to_list(), booleans)


def _is_whole(series: Any) -> bool:
    return any(word in str(series.dtype).lower() for word in ("int", "object", "decimal"))


def _is_inexact(numbers: NDArray[np.float64]) -> bool:
    """Return whether whole numbers are too large for float64, so that two of them could become one."""
    return bool(np.nanmax(np.abs(numbers), initial=0.0) > EXACT)


def _text_column(missing: Iterable[bool], cells: Iterable[Any], booleans: Booleans) -> Column | None:
    texts = [None if gone else _text(cell, booleans) for gone, cell in zip(missing, cells, strict=True)]
    if not all(missing) and not any(text is not None for text in texts):
        return None
    return Column(factorize(texts))


def _text(cell: Any, booleans: Booleans) -> str | None:
    """Return a cell as text, None if it has none: whole numbers without a decimal point, midnight without the time."""
    if isinstance(cell, bool | np.bool_):
        return booleans.true if cell else booleans.false
    if isinstance(cell, NESTED):
        return None
    try:
        if isinstance(cell, Decimal) and abs(float(cell)) <= EXACT:
            cell = float(cell)
        if isinstance(cell, float | np.floating):
            return str(int(cell)) if float(cell).is_integer() else repr(float(cell))
        text = str(cell)
    except Exception:  # whatever it is, its message may show the cell
        return None
    return text.removesuffix(MIDNIGHT) if isinstance(cell, datetime.datetime | datetime.timedelta) else text
