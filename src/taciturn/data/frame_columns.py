"""Columns of pandas and polars: their kinds, and their cells as numbers or texts. Neither library is imported here.

A cell's number or text depends on that cell alone, never on the others of its column: records next to each other in a
frame must not change what one of them is. A library's own error about a cell that it cannot convert is not passed on,
because its message may show the cell.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data.table_cells import Column, factorize
from taciturn.data.table_io import EXACT

NUMERIC, BOOLEAN, TEXT, DATES, OTHER = "numeric", "boolean", "text", "dates", "other"
NESTED = (list, dict, tuple, set, bytes, np.ndarray)
MIDNIGHT = " 00:00:00"


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
