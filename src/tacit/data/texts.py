"""The texts of a table: which stand for no value, which are numbers, and columns of them by their places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MISSING = frozenset({"", "na", "nan", "null"})  # in any case


def is_missing(text: str) -> bool:
    """Whether a cell's text stands for no value."""
    return text.strip().lower() in MISSING


class Places(NamedTuple):
    """A column's different texts in the order of their first rows, and each row's place among them."""

    names: tuple[str | None, ...]  # None: missing
    of: NDArray[np.intp]  # [n]


def text_places(cells: Iterable[str | None]) -> Places:
    """Texts without the blanks around them; those that stand for no value become None."""
    found: dict[str | None, int] = {}
    of = np.array([found.setdefault(cell, len(found)) for cell in cells], dtype=np.intp)
    return clean_places(tuple(found), of)


def clean_places(names: Sequence[str | None], of: NDArray[np.intp]) -> Places:
    """The same for texts by their places; what becomes one text becomes one place."""
    found: dict[str | None, int] = {}
    clean = (None if name is None or is_missing(name) else name.strip() for name in names)
    places = np.array([found.setdefault(name, len(found)) for name in clean], dtype=np.intp)
    return Places(tuple(found), places[of])


def is_number(text: str) -> bool:
    """Whether a cell's text is a finite number."""
    return math.isfinite(number_in(text))


def number_places(numbers: NDArray[np.float64]) -> Places:
    """Numbers as texts; whole ones without a decimal point, NaN as None."""
    values, first, of = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return Places(tuple(None if math.isnan(v) else _plain(v) for v in values[order].tolist()), ranks[of])


def numbers_in(cells: tuple[str, ...]) -> NDArray[np.float64] | None:
    """Numbers where every cell is one; None where a cell has to be looked at by itself."""
    text = "".join(cells)
    if "_" in text or not text.isascii():
        return None
    try:
        numbers = np.array([float(cell) for cell in cells])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def number_in(text: str | None) -> float:
    """NaN for a missing value, and infinity for what is not a number: neither can stand in a table."""
    if text is None:
        return math.nan
    if "_" in text or not text.isascii():  # float() takes 1_000 and the digits of every script
        return math.inf
    try:
        value = float(text)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
