"""Parquet files, where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.cells import Column, Part, Table, TableFile, text_column
from tacit.data.texts import clean_places
from tacit.errors import InputError

EXACT = 2**53  # beyond it, float64 cannot tell whole numbers apart
UNKNOWN = "\ufffd"  # in the place of a value that Python cannot hold
BUFFER = 2**16  # bytes of each column that are read at a time; without one, arrow keeps whole row groups


def open_parquet(path: Path, strict: bool) -> TableFile:
    """A Parquet file."""
    with _open(path) as file:
        names, count = tuple(name.strip() for name in file.schema_arrow.names), file.metadata.num_rows
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f"{path}: two columns are named '{name}'")
    if strict and not count:
        raise InputError(f"{path} has columns but no records")
    return TableFile(path.name, names, count, partial(_chunks, path, count))


def _chunks(path: Path, count: int, wanted: Collection[str], rows: int) -> Iterator[Table]:
    first = 0
    with _open(path) as file:
        names = [name for name in file.schema_arrow.names if name.strip() in wanted]
        for batch in file.iter_batches(max(1, min(rows, count)), columns=names, use_threads=False):
            part = Part(path.name, path.stem, None, batch.num_rows, first)
            yield Table({name.strip(): _column(batch[name]) for name in batch.schema.names}, (part,))
            first += batch.num_rows


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise InputError(f"reading {path} needs pyarrow: pip install pyarrow") from None
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _column(values: Any) -> Column:
    """Numbers where float64 holds them exactly, text otherwise."""
    import pyarrow as pa  # noqa: PLC0415

    kind = values.type
    if pa.types.is_decimal(kind):
        values, kind = values.cast(pa.float64()), pa.float64()
    if pa.types.is_floating(kind) or (pa.types.is_integer(kind) and _exact(values)):
        return Column(values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        values = values.cast(pa.string())  # dates that Python does not know, too
    try:
        coded = values.dictionary_encode("encode")
    except pa.ArrowNotImplementedError:  # lists and the like
        return text_column([_text(value) for value in _values(values)])
    names = [_text(value) for value in _values(coded.dictionary)]
    return Column(clean_places(names, coded.indices.to_numpy().astype(np.intp)))


def _values(found: Any) -> list[Any]:
    """As Python's values; a mark in the place of what Python cannot hold, and of bytes that are not UTF-8."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        return list(found.to_pylist())
    except (ValueError, OverflowError):
        pass
    if pa.types.is_string(found.type) or pa.types.is_large_string(found.type):
        raw = found.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in raw]
    return [_value(one) for one in found]


def _value(one: Any) -> Any:
    try:
        return one.as_py()
    except (ValueError, OverflowError):
        return UNKNOWN


def _exact(values: Any) -> bool:
    import pyarrow.compute as pc  # noqa: PLC0415

    ends = pc.min_max(values).as_py()
    return ends["min"] is None or -EXACT <= ends["min"] <= ends["max"] <= EXACT


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
