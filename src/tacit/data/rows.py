"""Raw records become features and labels, block by block, in the order they are dealt in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.data.partition import Index
from tacit.data.room import Room
from tacit.mapped import file_of, give_back, row_blocks
from tacit.types import Array, Classes, Target

Chosen: TypeAlias = slice | Index
"""Which rows: a stretch of them, or one by one."""


def chosen(indexes: Sequence[Index]) -> Chosen:
    """All of these rows, one index after the other; a stretch where they are one."""
    first = at = next((int(index[0]) for index in indexes if len(index)), 0)
    for index in indexes:
        if len(index) and (index[0] != at or index[-1] != at + len(index) - 1 or (np.diff(index) != 1).any()):
            return np.concatenate(indexes)
        at += len(index)
    return slice(first, at)


def feature_rows(raw: NDArray[Any], unit: float, rows: Chosen, width: int, room: Room) -> Array:
    """The features raw / unit of some rows, and ones up to the width; a view where nothing has to be done."""
    plain = raw.dtype == room.dtype and raw.shape[1] == width and unit == 1 and raw.flags.c_contiguous
    if plain and isinstance(rows, slice) and (not room.folder or file_of(raw) is not None):
        return raw[rows]
    x = room.empty(_count(rows), width)
    if isinstance(rows, slice):
        _copy(raw, room.dtype(unit), rows, x)
    else:
        _deal(raw, room.dtype(unit), rows, x)
    return x


def _copy(raw: NDArray[Any], unit: np.floating[Any], rows: slice, x: Array) -> None:
    """A stretch of rows, in order."""
    given = raw.shape[1]
    for block in row_blocks(len(x), x[:1].nbytes):
        np.divide(raw[_part(rows, block)], unit, out=x[block, :given], dtype=x.dtype)
        x[block, given:] = 1
        give_back(x[block])
        give_back(raw)


def _deal(raw: NDArray[Any], unit: np.floating[Any], rows: Index, x: Array) -> None:
    """Row by row to its place; read in order, so that a file is read once and every agent's stretch is written once."""
    given, place = raw.shape[1], np.full(len(raw), -1)
    place[rows] = np.arange(len(rows))
    for block in row_blocks(len(raw), x[:1].nbytes):
        here = place[block] >= 0
        there = place[block][here]
        x[there, :given] = np.divide(raw[block][here], unit, dtype=x.dtype)
        x[there, given:] = 1
        give_back(x)
        give_back(raw)


def label_rows(labels: NDArray[Any], target: Target, rows: Chosen, room: Room) -> Array:
    """One-hot rows [n, K] for classes; (value - low) / (high - low) [n, 1] for a number."""
    y = room.empty(_count(rows), target.width)
    for block in row_blocks(len(y), y[:1].nbytes):
        part = labels[_part(rows, block)]
        if isinstance(target, Classes):
            y[block] = part[:, None] == np.arange(target.width)
        else:
            y[block, 0] = (part.astype(np.float64) - target.low) / (target.high - target.low)
        give_back(y[block])
    return y


def _count(rows: Chosen) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _part(rows: Chosen, block: slice) -> Chosen:
    return slice(rows.start + block.start, rows.start + block.stop) if isinstance(rows, slice) else rows[block]
