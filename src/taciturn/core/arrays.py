"""Array helpers for numpy and torch, and for arrays that are memory-mapped from files."""

from __future__ import annotations

import mmap
import sys
import tempfile
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
"""A numpy array or a torch tensor; annotated with numpy's types."""

BLOCK = 32 * 2**20  # bytes of records that are processed together


def namespace(array: Any) -> Any:
    """Return the library an array belongs to: torch for a tensor, numpy for everything else.

    Examples
    --------
    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    torch = sys.modules.get("torch")
    return np if torch is None or not isinstance(array, torch.Tensor) else torch


def to_numpy(array: Any) -> Array:
    """Return an array's values in host memory; a numpy array is returned without a copy."""
    host: Array = np.asarray(array if namespace(array) is np else array.detach().cpu().numpy())
    return host


def as_like(values: Any, like: Array) -> Array:
    """Convert host values to the library, device and precision of another array, copying only if necessary.

    Parameters
    ----------
    values
        A numpy array, or anything `numpy.asarray` accepts.
    like
        The array whose library, device and dtype the result has.
    """
    xp = namespace(like)
    if xp is np:
        same: Array = np.asarray(values, like.dtype)
        return same
    writable = np.require(values, requirements=("C", "W"))  # torch can share memory only with such arrays
    tensor: Array = xp.as_tensor(writable, dtype=like.dtype, device=like.device)
    return tensor


def double(array: Array) -> Array:
    """Return an array in double precision, on the same device."""
    wide: Array = array.astype(np.float64, copy=False) if namespace(array) is np else array.double()  # type: ignore[attr-defined]
    return wide


def in_precision_of(array: Array, like: Array) -> Array:
    """Return an array in the precision of another one, on its own device."""
    rounded: Array = array.astype(like.dtype, copy=False) if namespace(array) is np else array.to(like.dtype)  # type: ignore[attr-defined]
    return rounded


def broadcast_like(values: Any, like: Array) -> Array:
    """Broadcast a number, or one number per entry, to the shape, library, device and precision of another array.

    Examples
    --------
    >>> broadcast_like(2.0, np.zeros(3))
    array([2., 2., 2.])
    """
    return as_like(np.broadcast_to(values, tuple(like.shape)), like)


def backing_file(array: Any) -> mmap.mmap | None:
    """Return the memory-mapped file that an array is a view of, or None for an array in ordinary memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def empty_beside(array: NDArray[Any]) -> NDArray[Any]:
    """Return an empty array of the same shape and precision, memory-mapped if the given one is."""
    if backing_file(array) is None:
        return np.empty_like(array)
    with tempfile.TemporaryFile(prefix="taciturn-") as file:  # unnamed: it ends with the process
        file.truncate(array.nbytes)
        return np.memmap(file, array.dtype, "r+", shape=array.shape)


def row_blocks(rows: int, row_bytes: int, most: int | None = None) -> list[slice]:
    """Cut rows into consecutive blocks of at most BLOCK bytes.

    Parameters
    ----------
    rows
        The number of rows.
    row_bytes
        The size of one row in bytes.
    most
        The largest number of rows in a block; None for no limit.

    Examples
    --------
    >>> row_blocks(5, 8, most=2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, BLOCK // max(1, row_bytes))
    step = step if most is None else min(step, most)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def release_memory(array: Any) -> None:
    """Drop the pages of a memory-mapped array from memory; the file keeps the values.

    Does nothing for an array in ordinary memory. The mapping must be shared: a private one would lose its changes.
    """
    file = backing_file(array)
    if file is None or not array.size or not hasattr(mmap, "MADV_DONTNEED"):
        return
    begin = np.frombuffer(file, np.uint8).ctypes.data
    low, high = byte_bounds(array)
    start = (low - begin) // mmap.PAGESIZE * mmap.PAGESIZE  # a page shared with the rows before is read again
    file.madvise(mmap.MADV_DONTNEED, start, high - begin - start)
