"""Arrays that lie in files: their rows block by block, and their memory given back."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

BLOCK = 32 * 2**20  # bytes of records that are looked at together


def file_of(array: Any) -> mmap.mmap | None:
    """The file, mapped into memory, that an array is a view of; None for an array of its own, or of torch's."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def row_blocks(rows: int, row_bytes: int, most: int | None = None) -> list[slice]:
    """Consecutive rows, so many at a time that they take a BLOCK, and no more than `most`."""
    step = max(1, BLOCK // max(1, row_bytes))
    step = step if most is None else min(step, most)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def give_back(array: Any) -> None:
    """Let go of the memory a mapped array's values were read into or written from; the file keeps them.

    The mapping must be a shared one: of a private one, changes would be lost.
    """
    file = file_of(array)
    if file is None or not array.size or not hasattr(mmap, "MADV_DONTNEED"):
        return
    begin = np.frombuffer(file, np.uint8).ctypes.data
    low, high = byte_bounds(array)
    start = (low - begin) // mmap.PAGESIZE * mmap.PAGESIZE  # a page shared with the rows before is read again
    file.madvise(mmap.MADV_DONTNEED, start, high - begin - start)
