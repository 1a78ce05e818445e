"""The columns of X: their cells as a table, the rules that encode them, and the features that the model reads."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data.encoding import Tally, scale_columns
from taciturn.data.feature_mapping import mapped_rows, schema_shape
from taciturn.data.frames import read_column
from taciturn.data.schema import Numeric, Schema, feature_scaling
from taciturn.data.table_cells import Column, Factorized, Table, TablePart, factorize
from taciturn.errors import InputError, unknown_column
from taciturn.types import Array

NUMBERS, TEXTS, BOOLEANS = "numbers", "texts", "booleans"


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame, of pandas or another library, whose columns have names."""
    names = getattr(X, "columns", None)
    if names is None:
        return False
    found = list(names)
    if any(isinstance(name, tuple) for name in found):
        raise InputError("X has several levels of column names: give every column one name, a string")
    for place, name in enumerate(found):
        if name in found[:place]:
            raise InputError(f"columns {found.index(name) + 1} and {place + 1} of X have the same name")
    return all(isinstance(name, str) for name in found)


def column_kinds(X: Any, numeric: Container[str], textual: Container[str]) -> dict[str, str]:
    """Return which kind each column of a data frame has, in order: NUMBERS, TEXTS or BOOLEANS.

    Parameters
    ----------
    X : data frame
        The records.
    numeric, textual : container of str
        The columns that were declared as numbers and as texts; of all others, their type decides.
    """
    kinds: dict[str, str] = {}
    for name in X.columns:
        dtype = X[name].dtype
        kinds[name] = BOOLEANS if str(dtype).lower() in ("bool", "boolean") else NUMBERS if _is_number(dtype) else TEXTS
        kinds[name] = TEXTS if name in textual else NUMBERS if name in numeric else kinds[name]
    return kinds


def schema_kinds(schema: Schema) -> dict[str, str]:
    """Return which kind each column of a schema has."""
    return {rule.name: NUMBERS if isinstance(rule, Numeric) else TEXTS for rule in schema.columns}


def array_table(x: NDArray[np.float64], names: Sequence[str] | None) -> Table:
    """Return numbers [n, J] as a table; without names, columns are x0, x1, and so on."""
    known = [f"x{j}" for j in range(x.shape[1])] if names is None else names
    return _table({str(name): Column(x[:, j]) for j, name in enumerate(known)}, len(x))


def frame_table(X: Any, kinds: Mapping[str, str]) -> Table:
    """Return columns of a data frame as a table.

    Parameters
    ----------
    X : data frame
        The records.
    kinds : mapping
        The kind of each column to read.

    Raises
    ------
    InputError
        If there is no such column.
    """
    for name in kinds:
        if name not in X.columns:
            raise unknown_column(name, map(str, X.columns), "X")
    return _table({name: _column(name, X[name], kind == NUMBERS) for name, kind in kinds.items()}, len(X))


def owner_texts(X: Any, name: str) -> list[str | None]:
    """Return a column that names agents or units as `taciturn.run` reads it; None where it names none."""
    column = read_column(X[name]) or _column(name, X[name], False)
    return column.texts()


def cell_text(value: Any) -> str | None:
    """Return a cell as a table on disk would have it: true and false in small letters, None if it is missing.

    Examples
    --------
    >>> cell_text(True), cell_text(3), cell_text(None)
    ('true', '3', None)
    """
    if value is None or str(value) == "<NA>":
        return None
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def refuse_missing(table: Table, kinds: Mapping[str, str], declared: Container[str]) -> None:
    """Raise InputError if a numeric column has a cell that is not a number; only a schema says what replaces it.

    Only declared names are shown: those of a file without a header are its first record.
    """
    for place, (name, kind) in enumerate(kinds.items(), 1):
        if kind == NUMBERS and not np.isfinite(table.column(name).numbers()).all():
            which = f"'{name}'" if name in declared else place
            raise InputError(
                f"column {which} of X has a missing or infinite value, or text: fill it with a number of your "
                "choice, or give a schema that declares what replaces it"
            )


def refuse_unreadable(what: str, given: Any, dimensions: int) -> None:
    """Raise InputError where an argument of `fit` is of such a kind that scikit-learn's refusal would show cells.

    Those are text in place of numbers, complex numbers, and a wrong number of dimensions. Our error is raised after
    theirs was dropped, so that no traceback has it as its cause.
    """
    if given is None or hasattr(given, "toarray"):
        return
    try:
        numbers = np.asarray(given)
    except (TypeError, ValueError):  # rows of several lengths, which scikit-learn refuses in its own words
        return
    if numbers.dtype.kind == "c":
        raise InputError(f"{what} holds complex numbers. Complex data not supported: give real numbers")
    if numbers.ndim < dimensions:
        raise InputError(
            f"{what} has the shape {numbers.shape}: it must have {dimensions} dimensions. Reshape your data"
        )
    if numbers.dtype.kind in "OUS" and not _converts(numbers):
        raise InputError(f"{what} has text that is not a number: convert it, or give a data frame")


def _converts(cells: NDArray[Any]) -> bool:
    """Return whether no cell is a text that is not a number; scikit-learn says of other objects only their type."""
    try:
        cells.astype(np.float64)
    except TypeError:
        return True
    except ValueError:
        return False
    return True


def raw_rows(table: Table) -> NDArray[np.float64]:
    """Return the cells as numbers [n, columns], equal where the cells are: a text becomes its rank among all texts."""
    return np.column_stack([_ranks(column) for column in table.columns.values()])


@dataclass(frozen=True, eq=False)
class Encoder:
    """How the cells of a table become the features of the model.

    Parameters
    ----------
    schema : Schema
        The rules of the columns.
    features : str
        The public feature map.
    intercept : bool
        Whether the model has a constant.
    bounds : array [numeric columns, 2], optional
        To which numbers are clipped before they are encoded; None: as the schema says.
    extrapolates : bool
        Whether numbers beyond the schema's bounds, which nobody declared, count in full.
    """

    schema: Schema
    features: str
    intercept: bool
    bounds: NDArray[np.float64] | None = None
    extrapolates: bool = False

    def encoded(self, table: Table) -> NDArray[np.float64]:
        """Return the scaled numbers and the categories, before the feature map and without the intercept."""
        numeric = [rule for rule in self.schema.columns if isinstance(rule, Numeric)]
        if self.bounds is not None:
            clipped = {
                rule.name: Column(np.clip(table.column(rule.name).numbers(), low, high))
                for rule, (low, high) in zip(numeric, self.bounds, strict=True)
            }
            table = replace(table, columns=table.columns | clipped)
        x = scale_columns(table, self.schema, Tally())
        if self.extrapolates:
            places = {name: place for place, name in enumerate(self.schema.features)}
            for rule in numeric:
                a, b = rule.scaling(self.schema.scale)
                x[:, places[rule.name]] = a * table.column(rule.name).numbers() + b
        return x

    def mapped(self, encoded: NDArray[np.float64]) -> Array:
        """Return encoded records after the feature map, with the intercept, [n, J]."""
        whole = np.column_stack([encoded, np.ones(len(encoded))]) if self.intercept else encoded
        return mapped_rows(whole, self.features, schema_shape(self.schema), self.intercept)

    def in_user_units(self, w: Array) -> tuple[Array, Array]:
        """Return parameters [J, K] without a feature map as coefficients [K, J] and constants [K] of unscaled numbers.

        A column with a scale other than linear has a coefficient of its stretched numbers.
        """
        scaled = w[: len(self.schema.features)]
        a, b = feature_scaling(self.schema)
        constants = b @ scaled
        return (a[:, None] * scaled).T, constants + w[-1] if self.intercept else constants


def _column(name: str, values: Any, numbers: bool) -> Column:
    try:
        if numbers and (_is_number(values.dtype) or np.asarray(values).dtype.kind == "b"):
            return Column(_floats(values))
        cells = np.asarray(values, dtype=object).tolist()
        plain = all(type(cell) is str for cell in cells)
        return Column(factorize(cells if plain else map(cell_text, cells)))
    except Exception:
        pass
    raise InputError(f"column '{name}' of X cannot be read: convert its values to numbers or strings")


def _is_number(dtype: Any) -> bool:
    kind = getattr(dtype, "kind", None)  # of numpy and pandas; polars has a method
    return bool(dtype.is_numeric()) if kind is None else kind in "iuf"


def _floats(values: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # pandas' NA is not a number
        texts = map(cell_text, np.asarray(values, dtype=object))
        return np.array([math.nan if text is None else float(text) for text in texts])


def _ranks(column: Column) -> NDArray[np.float64]:
    if not isinstance(column.values, Factorized):
        return column.numbers()
    names, codes = column.factorized
    order = sorted(range(len(names)), key=lambda place: (names[place] is not None, names[place] or ""))
    ranks = np.empty(len(names))
    ranks[order] = np.arange(len(names))
    return np.asarray(ranks[codes], np.float64)


def _table(columns: dict[str, Column], rows: int) -> Table:
    return Table(columns, (TablePart("X", "X", None, rows),))
