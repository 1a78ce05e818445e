"""Arrays for records, in memory or in memory-mapped files, and writing features and labels into them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import backing_file, release_memory, row_blocks
from taciturn.core.storage import format_bytes
from taciturn.data.dataset_source import PRECISIONS, DataOptions, memory_limit
from taciturn.data.partition import Index
from taciturn.errors import InputError
from taciturn.types import Array, Classes, Target

ADVICE = "set TMPDIR to a folder on a disk with more space, or raise memory"

RowSelection: TypeAlias = slice | Index
"""Rows of an array: a contiguous range, or an index."""


@dataclass(frozen=True)
class ArrayAllocator:
    """Allocates arrays for records.

    Parameters
    ----------
    dtype : type
        The precision of the arrays.
    folder : str
        The folder of the memory-mapped files; empty: arrays are in memory.
    notes : tuple of str
        What the owner of the records should know about their location.
    """

    dtype: type[np.floating[Any]]
    folder: str = ""
    notes: tuple[str, ...] = ()

    def empty(self, rows: int, width: int) -> Array:
        """Return an uninitialised array [rows, width]."""
        if not self.folder or not rows * width:
            return np.empty((rows, width), self.dtype)
        with tempfile.TemporaryFile(prefix="taciturn-", dir=self.folder) as file:  # unnamed: it ends with the process
            _reserve(file, rows * width * np.dtype(self.dtype).itemsize, self.folder)
            return np.memmap(file, self.dtype, "r+", shape=(rows, width))


def allocator_for(options: DataOptions, rows: int, width: int) -> ArrayAllocator:
    """Return an allocator for rows x width numbers: in memory if the option `memory` allows, else in files.

    Raises
    ------
    InputError
        If the records do not fit into the temporary folder.
    """
    dtype = PRECISIONS[options.precision]
    size, limit = rows * width * np.dtype(dtype).itemsize, memory_limit(options.memory)
    if size <= limit:
        return ArrayAllocator(dtype)
    folder = tempfile.gettempdir()
    _check_space(folder, size)
    note = (
        f"the records take {format_bytes(size)}, more than the memory limit of {format_bytes(limit)}:"
        f" they are memory-mapped from unnamed files in {folder} while the process runs"
    )
    return ArrayAllocator(dtype, folder, (note,))


def _reserve(file: IO[bytes], size: int, folder: str) -> None:
    """Extend a file and reserve its space: writing to a mapped file on a full disk would kill the process."""
    _check_space(folder, size)
    file.truncate(size)
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise InputError(
                f"{folder} cannot hold {format_bytes(size)} of records ({error.strerror}): {ADVICE}"
            ) from error


def _check_space(folder: str, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"the records need {format_bytes(size)} in {folder}, which has {format_bytes(free)} left: {ADVICE}"
        )


def join_rows(indexes: Sequence[Index]) -> RowSelection:
    """Join indexes into one selection; a slice if together they are a contiguous range.

    Examples
    --------
    >>> join_rows([np.array([2, 3]), np.array([4])])
    slice(2, 5, None)
    """
    first = end = next((int(index[0]) for index in indexes if len(index)), 0)
    for index in indexes:
        if len(index) and (index[0] != end or index[-1] != end + len(index) - 1 or (np.diff(index) != 1).any()):
            return np.concatenate(indexes)
        end += len(index)
    return slice(first, end)


def feature_rows(raw: NDArray[Any], unit: float, rows: RowSelection, width: int, allocator: ArrayAllocator) -> Array:
    """Return the features raw / unit of some rows, followed by ones up to the width.

    The result is a view of `raw` if the values, the precision and the storage are already right.
    """
    plain = raw.dtype == allocator.dtype and raw.shape[1] == width and unit == 1 and raw.flags.c_contiguous
    if plain and isinstance(rows, slice) and (not allocator.folder or backing_file(raw) is not None):
        return raw[rows]
    given, divisor = raw.shape[1], allocator.dtype(unit)
    x = allocator.empty(_count(rows), width)
    if isinstance(rows, slice):
        for block in row_blocks(len(x), x[:1].nbytes):
            np.divide(raw[_part(rows, block)], divisor, out=x[block, :given], dtype=x.dtype)
            x[block, given:] = 1
            release_memory(x[block])
            release_memory(raw)
        return x
    target = np.full(len(raw), -1)  # the row of x that each row of raw goes to
    target[rows] = np.arange(len(rows))
    for block in row_blocks(len(raw), x[:1].nbytes):  # reading in order reads a file only once
        selected = target[block] >= 0
        to = target[block][selected]
        x[to, :given] = np.divide(raw[block][selected], divisor, dtype=x.dtype)
        x[to, given:] = 1
        release_memory(x)
        release_memory(raw)
    return x


def label_rows(labels: NDArray[Any], target: Target, rows: RowSelection, allocator: ArrayAllocator) -> Array:
    """Return one-hot rows [n, K] for classes, or (value - low) / (high - low) [n, 1] for a number."""
    y = allocator.empty(_count(rows), target.width)
    for block in row_blocks(len(y), y[:1].nbytes):
        part = labels[_part(rows, block)]
        if isinstance(target, Classes):
            y[block] = part[:, None] == np.arange(target.width)
        else:
            y[block, 0] = (part.astype(np.float64) - target.low) / (target.high - target.low)
        release_memory(y[block])
    return y


def weight_rows(weights: NDArray[Any] | None, rows: RowSelection, allocator: ArrayAllocator) -> Array | None:
    """Return the weights of some rows, [n]; None if there are none."""
    if weights is None:
        return None
    found = allocator.empty(_count(rows), 1)[:, 0]
    for block in row_blocks(len(found), found.itemsize):
        found[block] = weights[_part(rows, block)]
        release_memory(found[block])
    return found


def _count(rows: RowSelection) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _part(rows: RowSelection, block: slice) -> RowSelection:
    return slice(rows.start + block.start, rows.start + block.stop) if isinstance(rows, slice) else rows[block]
