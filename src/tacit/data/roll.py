"""Whose each row is: names that come in with the chunks of a table, kept as a number for each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import Table
from tacit.errors import InputError


class Roll:
    """The different names in the order of their first rows, and each row's place among them."""

    def __init__(self) -> None:
        """Empty."""
        self._places: dict[str, int] = {}
        self._of: list[NDArray[np.int32]] = []

    def call(self, table: Table, column: str, what: str, rule: str = "") -> None:
        """Add the rows of a chunk by one of its columns; a row without a name is an error."""
        names, of = table.places(column)
        if None in names:
            where = table.where(int(np.argmax(of == names.index(None))))
            raise InputError(f"column '{column}': the {what} {where} is missing{rule}")
        self.add([name for name in names if name is not None], of)

    def add(self, names: Sequence[str], of: NDArray[np.intp]) -> None:
        """Add rows by their places among some names."""
        places = [self._places.setdefault(name, len(self._places)) for name in names]
        self._of.append(np.array(places, dtype=np.int32)[of])

    @property
    def names(self) -> tuple[str, ...]:
        """The different names."""
        return tuple(self._places)

    @property
    def of(self) -> NDArray[np.int32]:
        """Each row's place among the names, [n]."""
        return np.concatenate(self._of)
