"""Memory layouts of records for the compiled pass: dense, or only the nonzero values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import Array
from taciturn.kernels.library import address, library

SPARSE_BELOW = 0.3  # share of nonzero values below which the sparse layout is faster (benchmarks: kernels)
INDEXED = 2**16  # features that a 16-bit index can address
CODES = 256  # values that an 8-bit code can address


@dataclass(frozen=True, eq=False)
class Dense:
    """All values of the records, x [n, J]."""

    x: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of records and features, (n, J)."""
        return self.x.shape

    @property
    def entries(self) -> int:
        """The number of multiplications per parameter column in one pass."""
        return self.x.size

    @property
    def nbytes(self) -> int:
        """The number of bytes that one pass reads."""
        return self.x.nbytes


@dataclass(frozen=True, eq=False)
class Sparse:
    """The nonzero values, row by row; 3 bytes per value if there are at most 256 distinct ones."""

    start: NDArray[np.int64]  # [n + 1]  where each row begins
    index: NDArray[np.uint16]  # [entries]  the feature of each value
    code: NDArray[np.uint8] | None  # [entries]  positions in `value`; None: one value per entry
    value: Array  # [256] the distinct values, or [entries] without codes
    features: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of records and features, (n, J)."""
        return len(self.start) - 1, self.features

    @property
    def entries(self) -> int:
        """The number of multiplications per parameter column in one pass."""
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """The number of bytes that one pass reads."""
        parts: list[NDArray[Any]] = [self.start, self.index, self.value]
        return sum(part.nbytes for part in parts) + (0 if self.code is None else self.code.nbytes)


Layout: TypeAlias = Dense | Sparse


def choose_layout(x: Array) -> Layout:
    """Return the records in the layout with the fastest pass; results are the same in both.

    Parameters
    ----------
    x
        Features [n, J].
    """
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
