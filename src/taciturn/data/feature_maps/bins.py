"""Piecewise-linear features of a table: a linear model of them is additive, with one curve for each column.

A numeric column becomes hat functions over knots that divide its declared range: the value between two knots is a
mixture of both. The knots are even, with more of them near the ends, where the values of skewed columns are. A
categorical column keeps one feature for each category. A pair of columns that the schema declares has one feature for
each pair of levels, where numbers have few knots: the model then has a surface for the pair. Every column and every
pair has the same weight in a record's norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taciturn.data.feature_maps.feature_map import BINS, MAPS, FeatureMap, InputShape
from taciturn.errors import InputError
from taciturn.types import GRID, Array, ColumnBlock, slices

EVEN = np.arange(49) / 48.0
NEAR = 2.0 ** -np.arange(7, 17)  # distances from the lower end; those from the upper end are the first four
KNOTS: NDArray[np.float64] = np.unique(np.concatenate([EVEN, NEAR, 1.0 - NEAR[:4]]))
"""The knots of a numeric column, as shares of its range, in order."""

PAIR_KNOTS: NDArray[np.float64] = np.arange(24) / 23.0
"""The knots of a numeric column in a pair."""

MAX_PAIR = 1024  # features of a pair


def hat_functions(u: NDArray[np.float64], knots: NDArray[np.float64] = KNOTS) -> NDArray[np.float64]:
    """Return the hat functions [n, knots] of positions u [n] in [0, 1], in multiples of 1/GRID that sum to 1.

    Examples
    --------
    >>> hats = hat_functions(np.array([0.0, 0.25]))
    >>> hats.sum(axis=1).tolist(), (hats @ KNOTS).tolist()
    ([1.0, 1.0], [0.0, 0.25])
    """
    left = np.clip(np.searchsorted(knots, u, side="right") - 1, 0, len(knots) - 2)
    share = (u - knots[left]) / (knots[left + 1] - knots[left])
    steps = np.rint(GRID * np.clip(share, 0.0, 1.0))
    hats, rows = np.zeros((len(u), len(knots))), np.arange(len(u))
    hats[rows, left], hats[rows, left + 1] = (GRID - steps) / GRID, steps / GRID
    return hats


def pair_features(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the products [n, a b] of the levels of two columns, [n, a] and [n, b], in multiples of 1/GRID.

    Running sums are rounded rather than products, so that the features of a record add up to 1 if its levels do.

    Examples
    --------
    >>> pair_features(np.array([[0.5, 0.5]]), np.array([[0.0, 1.0]])).tolist()
    [[0.0, 0.5, 0.0, 0.5]]
    """
    steps = np.rint(GRID * left)[:, :, None] * np.rint(GRID * right)[:, None, :]
    sums = np.rint(np.cumsum(steps.reshape(len(left), -1), axis=1) / GRID)
    found: NDArray[np.float64] = np.diff(sums, axis=1, prepend=0.0) / GRID
    return found


def level_positions(levels: int) -> NDArray[np.float64]:
    """Return where the levels of an ordered column are on its range: a number's at the knots, others evenly.

    Examples
    --------
    >>> level_positions(5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return KNOTS if levels == len(KNOTS) else np.linspace(0.0, 1.0, levels)


def levels(block: ColumnBlock) -> int:
    """Return how many levels a column has in a pair."""
    return len(PAIR_KNOTS) + block.missing if block.kind == "numeric" else block.width


def mapped_blocks(blocks: tuple[ColumnBlock, ...]) -> tuple[ColumnBlock, ...]:
    """Return the columns' features after the map.

    A numeric column has ordered ones, one for each knot, and a pair has categories, one for each pair of levels.
    """
    return tuple(_mapped(block, blocks) for block in blocks)


def _mapped(block: ColumnBlock, blocks: tuple[ColumnBlock, ...]) -> ColumnBlock:
    if block.kind == "pair":
        return ColumnBlock("categories", math.prod(levels(blocks[position]) for position in block.of), False, block.of)
    return ColumnBlock("ordered", len(KNOTS) + block.missing, block.missing) if block.kind == "numeric" else block


@dataclass(frozen=True)
class Bins:
    """phi(x) = the hat functions and categories of every column, over the root of the number of columns and pairs."""

    blocks: tuple[ColumnBlock, ...]
    low: float  # of a numeric feature: 0 on the unit scale, -1 on the symmetric one

    def __call__(self, x: Array) -> NDArray[np.float64]:
        """Map every record: [n, J] -> [n, width]."""
        own = [np.asarray(x[:, columns], np.float64) for columns in self.columns]
        parts = [
            pair_features(*(self._levels(own[position], self.blocks[position], PAIR_KNOTS) for position in block.of))
            if block.kind == "pair"
            else self._levels(values, block, KNOTS)
            for values, block in zip(own, self.blocks, strict=True)
        ]
        found: NDArray[np.float64] = np.concatenate(parts, axis=1) / math.sqrt(len(self.blocks))
        return found

    @property
    def columns(self) -> list[slice]:
        """Where the features of each block are before the map."""
        return slices(block.width for block in self.blocks)

    def _levels(self, own: NDArray[np.float64], block: ColumnBlock, knots: NDArray[np.float64]) -> NDArray[np.float64]:
        if block.kind != "numeric":
            return own
        hats, absent = hat_functions((own[:, 0] - self.low) / (1.0 - self.low), knots), own[:, 1:]
        return np.concatenate([hats * (1.0 - absent), absent], axis=1) if block.missing else hats


def _width(shape: InputShape) -> int:
    return sum(block.width for block in mapped_blocks(shape.blocks))


def _build(shape: InputShape) -> Bins:
    if not shape.blocks:
        raise InputError("features is bins, which is for tables with a schema: these records have no columns")
    return Bins(shape.blocks, -1.0 if shape.symmetric else 0.0)


def _names(shape: InputShape, names: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    columns = Bins(shape.blocks, 0.0).columns
    for block, own in zip(shape.blocks, columns, strict=True):
        if block.kind == "pair":
            left, right = (_level_names(names[columns[k]], shape.blocks[k], PAIR_KNOTS) for k in block.of)
            found += [f"{one}*{other}" for one in left for other in right]
        else:
            found += _level_names(names[own], block, KNOTS)
    return tuple(found)


def _level_names(own: tuple[str, ...], block: ColumnBlock, knots: NDArray[np.float64]) -> tuple[str, ...]:
    if block.kind != "numeric":
        return own
    return (*(f"{own[0]}[{knot}]" for knot in range(len(knots))), *own[1:])


SUMMARY = f"for tables: numbers as {len(KNOTS)} piecewise-linear features each, so that a model is one curve per column"
MAPS.register(BINS)(FeatureMap(SUMMARY, _width, _build, names=_names, tables=True))
