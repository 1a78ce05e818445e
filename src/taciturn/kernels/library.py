"""Access to the compiled C library, if it was built, and its seeded noise generator."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int, c_int64, c_void_p
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from taciturn.core.arrays import Array

FOLDER = Path(__file__).parent
LEVELS = {1: "any processor", 3: "AVX2", 4: "AVX-512"}  # x86-64-v3, x86-64-v4


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library, or None if the package was installed without a C compiler."""
    for suffix in EXTENSION_SUFFIXES:
        path = FOLDER / f"_compiled{suffix}"
        if path.exists():
            return _declared(ctypes.CDLL(str(path)))
    return None


@cache
def level() -> int:
    """Return the processor's instruction set as a key of LEVELS, or 0 without a compiled library."""
    found = library()
    return 0 if found is None else int(found.taciturn_level())


def address(array: Any) -> int | None:
    """Return the memory address of a contiguous array; None for None."""
    return None if array is None else array.__array_interface__["data"][0]  # .ctypes.data, but three times as fast


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    shape: list[Any] = [c_int64, c_int64, c_int64, c_int, c_int]
    lib.taciturn_pass.argtypes = [c_void_p, c_int, c_int]
    lib.taciturn_count.argtypes, lib.taciturn_count.restype = [c_void_p, c_int64, c_int64, c_int, c_void_p], c_int64
    lib.taciturn_pack.argtypes = [c_void_p, c_int64, c_int64, c_int, c_void_p, c_void_p, c_void_p]
    lib.taciturn_noise.argtypes = [c_int, c_void_p, c_void_p, c_double, *shape, c_void_p]
    lib.taciturn_noise.restype = None
    sampled: list[Any] = [c_int64, c_double, c_double, c_double, c_int, c_void_p, c_void_p]
    lib.taciturn_propose.argtypes, lib.taciturn_propose.restype = [c_void_p, c_void_p, *sampled], None
    lib.taciturn_accept.argtypes, lib.taciturn_accept.restype = [c_void_p, c_void_p, c_void_p, *sampled], None
    lib.taciturn_keep.argtypes, lib.taciturn_keep.restype = [*[c_void_p] * 3, c_int64, c_void_p], c_int64
    lib.taciturn_prepare_noise()
    return lib


KINDS = ("laplace", "gaussian")


def fill_noise(out: Array, kind: str, key: NDArray[np.uint64], counter: NDArray[np.uint64], scale: float) -> None:
    """Fill an array with scaled random numbers of `Generator(Philox(key, counter))`.

    The compiled generator and numpy's agree to 14 digits.

    Parameters
    ----------
    out
        The array to fill, [J, K]; its rows need not be adjacent in memory.
    kind
        "laplace" or "gaussian".
    key, counter
        Philox's key and counter.
    scale
        The factor on the standard distribution's numbers.
    """
    lib = library()
    rows, columns = out.shape
    step, rest = divmod(out.strides[0], out.itemsize)
    if lib is None or rest or out.strides[1] != out.itemsize or out.dtype.char not in "fd":
        generator = Generator(Philox(key=key, counter=counter))
        draw = generator.standard_normal if kind == "gaussian" else generator.laplace
        np.multiply(draw(size=out.shape), scale, out=out, casting="same_kind")
        return
    shape = rows, columns, step, out.itemsize, level()
    lib.taciturn_noise(KINDS.index(kind), address(key), address(counter), scale, *shape, out.ctypes.data)
