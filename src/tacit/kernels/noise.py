"""Noise from a key and a counter, written in place in the precision it is wanted in."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from tacit.arrays import Array
from tacit.kernels.library import address, level, library

KINDS = ("laplace", "gaussian")


def fill(out: Array, kind: str, key: NDArray[np.uint64], counter: NDArray[np.uint64], scale: float) -> None:
    """out [J, K] = scale times standard numbers of Generator(Philox(key, counter)); rows may lie apart.

    Compiled and numpy's numbers are the same to 14 digits.
    """
    lib = library()
    rows, columns = out.shape
    step, rest = divmod(out.strides[0], out.itemsize)
    if lib is None or rest or out.strides[1] != out.itemsize or out.dtype.char not in "fd":
        generator = Generator(Philox(key=key, counter=counter))
        draw = generator.standard_normal if kind == "gaussian" else generator.laplace
        np.multiply(draw(size=out.shape), scale, out=out, casting="same_kind")
        return
    at = out.ctypes.data
    lib.tacit_noise(
        KINDS.index(kind), address(key), address(counter), scale, rows, columns, step, out.itemsize, level(), at
    )
