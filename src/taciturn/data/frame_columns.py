"""Columns of pandas and polars: their kinds, and their cells as numbers or texts. Neither library is imported here.

A library's own error about a cell that it cannot convert is not passed on, because its message may show the cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data.table_cells import Column, factorize
from taciturn.data.table_io import EXACT

NUMERIC, BOOLEAN, TEXT, DATES, OTHER = "numeric", "boolean", "text", "dates", "other"
NESTED = (list, dict, tuple, set, bytes, np.ndarray)


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


def read_column(series: Any) -> Column | None:
    """Convert a column; None if a value has no text. Numbers stay numbers if float64 represents them exactly."""
    try:
        return _pandas_column(series) if _is_pandas(series) else _polars_column(series)
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
    found = str(sys.modules["pandas"].api.types.infer_dtype(series, skipna=True))
    if found == "boolean":
        return BOOLEAN
    if found in ("integer", "floating", "mixed-integer-float", "decimal"):
        return NUMERIC
    if found.startswith(("date", "time", "period")):
        return DATES
    return OTHER if found in ("bytes", "complex") or any(isinstance(cell, NESTED) for cell in series) else TEXT


def _pandas_column(series: Any) -> Column:
    pandas = sys.modules["pandas"]
    kind, objects = _pandas_kind(series), pandas.api.types.is_object_dtype(series.dtype)
    if isinstance(series.dtype, pandas.CategoricalDtype):
        names = [_text(value) for value in series.cat.categories.tolist()]
        return Column(factorize(None if code < 0 else names[code] for code in series.cat.codes.tolist()))
    if kind == NUMERIC:
        numbers: NDArray[np.float64] = series.to_numpy(dtype=np.float64, na_value=np.nan)
        if not (_is_whole(series) and _is_inexact(numbers)):
            return Column(numbers)
    cells = series.astype(str) if kind == DATES and not objects else series
    return _text_column(series.isna().tolist(), cells.tolist())


def _polars_kind(series: Any) -> str:
    polars, kind = sys.modules["polars"], series.dtype
    if kind == polars.Boolean:
        return BOOLEAN
    if kind.is_numeric() or kind == polars.Null:
        return NUMERIC
    if kind.is_temporal():
        return DATES
    return TEXT if kind in (polars.String, polars.Categorical, polars.Enum) else OTHER


def _polars_column(series: Any) -> Column:
    polars, kind = sys.modules["polars"], _polars_kind(series)
    if kind == NUMERIC:
        numbers: NDArray[np.float64] = series.cast(polars.Float64).fill_null(np.nan).to_numpy()
        if not (_is_whole(series) and _is_inexact(numbers)):
            return Column(numbers)
    cells = series.cast(polars.String) if kind == DATES else series
    return _text_column(series.is_null().to_list(), cells.to_list())


def _is_whole(series: Any) -> bool:
    return any(word in str(series.dtype).lower() for word in ("int", "object", "decimal"))


def _is_inexact(numbers: NDArray[np.float64]) -> bool:
    """Return whether whole numbers are too large for float64, so that two of them could become one."""
    return bool(np.nanmax(np.abs(numbers), initial=0.0) > EXACT)


def _text_column(missing: Iterable[bool], cells: Iterable[Any]) -> Column:
    return Column(factorize(None if gone else _text(cell) for gone, cell in zip(missing, cells, strict=True)))


def _text(cell: Any) -> str:
    """Return a cell as text: whole numbers without a decimal point, booleans as false and true."""
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, float | np.floating):
        return str(int(cell)) if float(cell).is_integer() else repr(float(cell))
    return str(cell)
