"""Whose each row is: names that come in with the chunks of a table, kept as a number for each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import Table


class Roll:
    """The different names in the order of their first rows, and each row's place among them."""

    def __init__(self) -> None:
        """Empty."""
        self._places: dict[str, int] = {}
        self._of: list[NDArray[np.int32]] = []

    def call(self, table: Table, column: str, kept: NDArray[np.bool_]) -> None:
        """Add the rows of a chunk that are kept, by one of its columns, which names all of them."""
        names, of = table.places(column)
        used = np.unique(of[kept])
        ranks = np.zeros(len(names), dtype=np.intp)
        ranks[used] = np.arange(len(used))
        self.add([str(names[place]) for place in used], ranks[of[kept]])

    def add(self, names: Sequence[str], of: NDArray[np.intp]) -> None:
        """Add rows by their places among some names; a name may be without rows."""
        places = [self._places.setdefault(name, len(self._places)) for name in names]
        self._of.append(np.array(places, dtype=np.int32)[of])

    @property
    def names(self) -> tuple[str, ...]:
        """The different names."""
        return tuple(self._places)

    @property
    def of(self) -> NDArray[np.int32]:
        """Each row's place among the names, [n]."""
        return np.concatenate([np.empty(0, np.int32), *self._of])
