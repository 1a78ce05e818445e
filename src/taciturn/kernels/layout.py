"""How records lie in memory for the compiled pass: as they are, or only what is not zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import Array
from taciturn.kernels.library import address, library

SPARSE_BELOW = 0.3  # share of values that are not zero, below which gathering them pays (benchmarks: kernels)
INDEXED = 2**16  # features an index of 16 bits can name
CODES = 256  # values a code of 8 bits can name


@dataclass(frozen=True, eq=False)
class Dense:
    """Every value, [n, J]."""

    x: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """n and J."""
        return self.x.shape

    @property
    def entries(self) -> int:
        """How many values meet a parameter."""
        return self.x.size

    @property
    def nbytes(self) -> int:
        """What one pass reads."""
        return self.x.nbytes


@dataclass(frozen=True, eq=False)
class Sparse:
    """The values that are not zero, row by row: 3 bytes each where there are no more than 256 different ones."""

    start: NDArray[np.int64]  # [n + 1]
    index: NDArray[np.uint16]  # [entries]  features
    code: NDArray[np.uint8] | None  # [entries]  places in `value`
    value: Array  # [256] the different values; without codes [entries]
    features: int

    @property
    def shape(self) -> tuple[int, ...]:
        """n and J."""
        return len(self.start) - 1, self.features

    @property
    def entries(self) -> int:
        """How many values meet a parameter."""
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """What one pass reads."""
        parts: list[NDArray[Any]] = [self.start, self.index, self.value]
        return sum(part.nbytes for part in parts) + (0 if self.code is None else self.code.nbytes)


Layout: TypeAlias = Dense | Sparse


def lay_out(x: Array) -> Layout:
    """The layout that one pass over these records is fastest with; the numbers are the same in each."""
    lib = library()
    x = np.ascontiguousarray(x)
    if lib is None or x.shape[1] > INDEXED or not x.size:
        return Dense(x)
    start = np.empty(len(x) + 1, np.int64)
    entries = lib.taciturn_count(address(x), *x.shape, x.itemsize, address(start))
    if entries > SPARSE_BELOW * x.size:
        return Dense(x)
    index, code, table = np.empty(entries, np.uint16), np.empty(entries, np.uint8), np.zeros(CODES, x.dtype)
    if lib.taciturn_pack(address(x), *x.shape, x.itemsize, address(index), address(code), address(table)) >= 0:
        return Sparse(start, index, code, table, x.shape[1])
    rows, columns = np.nonzero(x)
    return Sparse(start, columns.astype(np.uint16), None, x[rows, columns], x.shape[1])
