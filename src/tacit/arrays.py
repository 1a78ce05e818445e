"""One array namespace: the steps are written once and run on numpy arrays and on torch tensors, on any device.

Both libraries know exp, abs, amax, clip, stack and the like under the same names, and take axis and keepdims. torch is
never imported here: an array can only be a tensor where somebody has imported it already.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
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
