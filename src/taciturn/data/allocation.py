"""Where records are stored (in memory, or in memory-mapped files), and how features and labels are written there."""

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
from taciturn.data.dataset_source import PRECISIONS, DataOptions, memory_limit, size_text
from taciturn.data.partition import Index
from taciturn.errors import InputError
from taciturn.types import Array, Classes, Target

ADVICE = "set TMPDIR to a folder on a disk with more space, or raise memory"


@dataclass(frozen=True)
class ArrayAllocator:
    """Room for records in one precision."""

    dtype: type[np.floating[Any]]
    folder: str = ""  # of the files; empty: in memory
    notes: tuple[str, ...] = ()  # what the owner should know of it

    def empty(self, rows: int, width: int) -> Array:
        """An array to fill, [rows, width]."""
        if not self.folder or not rows * width:
            return np.empty((rows, width), self.dtype)
        with tempfile.TemporaryFile(
            prefix="taciturn-", dir=self.folder
        ) as file:  # has no name: it goes with the process
            _reserve(file, rows * width * np.dtype(self.dtype).itemsize, self.folder)
            return np.memmap(file, self.dtype, "r+", shape=(rows, width))


def allocator_for(options: DataOptions, rows: int, width: int) -> ArrayAllocator:
    """Room for so many numbers: in files where `memory` does not allow them."""
    dtype = PRECISIONS[options.precision]
    size, limit = rows * width * np.dtype(dtype).itemsize, memory_limit(options.memory)
    if size <= limit:
        return ArrayAllocator(dtype)
    folder = tempfile.gettempdir()
    _check_space(folder, size)
    note = (
        f"the records take {size_text(size)} and memory allows {size_text(limit)}:"
        f" they lie in files without a name in {folder} as long as the process runs"
    )
    return ArrayAllocator(dtype, folder, (note,))


def _reserve(file: IO[bytes], size: int, folder: str) -> None:
    """Make the file so long, and sure of its space: to write to a mapped file on a full disk would end the process."""
    _check_space(folder, size)
    file.truncate(size)
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise InputError(
                f"{folder} cannot hold {size_text(size)} of records ({error.strerror}): {ADVICE}"
            ) from None


def _check_space(folder: str, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(f"the records need {size_text(size)} in {folder}, which has {size_text(free)} left: {ADVICE}")


Chosen: TypeAlias = slice | Index
"""Which rows: a stretch of them, or one by one."""


def chosen(indexes: Sequence[Index]) -> Chosen:
    """All of these rows, one index after the other; a stretch where they are one."""
    first = at = next((int(index[0]) for index in indexes if len(index)), 0)
    for index in indexes:
        if len(index) and (index[0] != at or index[-1] != at + len(index) - 1 or (np.diff(index) != 1).any()):
            return np.concatenate(indexes)
        at += len(index)
    return slice(first, at)


def feature_rows(raw: NDArray[Any], unit: float, rows: Chosen, width: int, room: ArrayAllocator) -> Array:
    """The features raw / unit of some rows, and ones up to the width; a view where nothing has to be done."""
    plain = raw.dtype == room.dtype and raw.shape[1] == width and unit == 1 and raw.flags.c_contiguous
    if plain and isinstance(rows, slice) and (not room.folder or backing_file(raw) is not None):
        return raw[rows]
    x = room.empty(_count(rows), width)
    if isinstance(rows, slice):
        _copy(raw, room.dtype(unit), rows, x)
    else:
        _deal(raw, room.dtype(unit), rows, x)
    return x


def _copy(raw: NDArray[Any], unit: np.floating[Any], rows: slice, x: Array) -> None:
    """A stretch of rows, in order."""
    given = raw.shape[1]
    for block in row_blocks(len(x), x[:1].nbytes):
        np.divide(raw[_part(rows, block)], unit, out=x[block, :given], dtype=x.dtype)
        x[block, given:] = 1
        release_memory(x[block])
        release_memory(raw)


def _deal(raw: NDArray[Any], unit: np.floating[Any], rows: Index, x: Array) -> None:
    """Row by row to its place; read in order, so that a file is read once and every agent's stretch is written once."""
    given, place = raw.shape[1], np.full(len(raw), -1)
    place[rows] = np.arange(len(rows))
    for block in row_blocks(len(raw), x[:1].nbytes):
        here = place[block] >= 0
        there = place[block][here]
        x[there, :given] = np.divide(raw[block][here], unit, dtype=x.dtype)
        x[there, given:] = 1
        release_memory(x)
        release_memory(raw)


def label_rows(labels: NDArray[Any], target: Target, rows: Chosen, room: ArrayAllocator) -> Array:
    """One-hot rows [n, K] for classes; (value - low) / (high - low) [n, 1] for a number."""
    y = room.empty(_count(rows), target.width)
    for block in row_blocks(len(y), y[:1].nbytes):
        part = labels[_part(rows, block)]
        if isinstance(target, Classes):
            y[block] = part[:, None] == np.arange(target.width)
        else:
            y[block, 0] = (part.astype(np.float64) - target.low) / (target.high - target.low)
        release_memory(y[block])
    return y


def _count(rows: Chosen) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _part(rows: Chosen, block: slice) -> Chosen:
    return slice(rows.start + block.start, rows.start + block.stop) if isinstance(rows, slice) else rows[block]
