"""One array namespace for numpy and torch, and arrays that are memory-mapped from files."""

from __future__ import annotations

import mmap
import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
"""Of either library; the types are numpy's."""


def namespace(array: Any) -> Any:
    """The library an array is of: torch for a tensor, numpy for everything else."""
    torch = sys.modules.get("torch")
    return np if torch is None or not isinstance(array, torch.Tensor) else torch


def to_numpy(array: Any) -> Array:
    """The same numbers on the host; a numpy array is returned as it is."""
    host: Array = np.asarray(array if namespace(array) is np else array.detach().cpu().numpy())
    return host


def as_like(values: Any, like: Array) -> Array:
    """Host numbers in the library, on the device and in the precision of `like`, copied only where they must be."""
    xp = namespace(like)
    if xp is np:
        same: Array = np.asarray(values, like.dtype)
        return same
    writable = np.require(values, requirements=("C", "W"))  # torch shares the memory of nothing else
    moved: Array = xp.as_tensor(writable, dtype=like.dtype, device=like.device)
    return moved


def double(array: Array) -> Array:
    """The same numbers in double precision, where they are."""
    wide: Array = array.astype(np.float64, copy=False) if namespace(array) is np else array.double()  # type: ignore[attr-defined]
    return wide


def in_precision_of(array: Array, like: Array) -> Array:
    """The same numbers, where they are, in the precision of `like`."""
    rounded: Array = array.astype(like.dtype, copy=False) if namespace(array) is np else array.to(like.dtype)  # type: ignore[attr-defined]
    return rounded


def spread(values: Any, like: Array) -> Array:
    """One number for every entry of `like`, or one for each."""
    return as_like(np.broadcast_to(values, tuple(like.shape)), like)


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
