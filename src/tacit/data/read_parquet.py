"""Parquet files, where pyarrow is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.cells import Column, Part, Table, text_column
from tacit.errors import InputError

EXACT = 2**53  # beyond it, float64 cannot tell whole numbers apart


def read_parquet(path: Path) -> Table:
    """The table in a Parquet file."""
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise InputError(f"reading {path} needs pyarrow: pip install pyarrow") from None
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    names = [name.strip() for name in table.column_names]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f"{path}: two columns are named '{name}'")
    if not table.num_rows:
        raise InputError(f"{path} has columns but no records")
    columns = {name: _column(values) for name, values in zip(names, table.columns, strict=True)}
    return Table(columns, (Part(path.name, path.stem, None, table.num_rows),), folder=False)


def _column(values: Any) -> Column:
    """Numbers where float64 holds them exactly, text otherwise."""
    import pyarrow as pa  # noqa: PLC0415

    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numbers(values)
    if pa.types.is_integer(kind):
        integers = values.to_pylist()
        if all(v is None or abs(v) <= EXACT for v in integers):
            return _numbers(values)
        return text_column([None if v is None else str(v) for v in integers])
    if pa.types.is_boolean(kind):
        return text_column([None if v is None else str(v).lower() for v in values.to_pylist()])
    return text_column([None if v is None else str(v) for v in values.to_pylist()])


def _numbers(values: Any) -> Column:
    import pyarrow as pa  # noqa: PLC0415

    return Column(np.array(values.cast(pa.float64()).to_numpy(), dtype=np.float64))
