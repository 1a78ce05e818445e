"""The values that pass between the layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from taciturn.core import arrays
from taciturn.core.arrays import file_of, give_back, namespace, row_blocks
from taciturn.kernels.layout import Dense, Layout, lay_out

Array: TypeAlias = arrays.Array

GRID = 4080  # 16 * 255: pixels of 8 and of 4 bits are multiples of 1/GRID, and so are 0, 1/2 and 1


@dataclass(frozen=True, eq=False)
class Shard:
    """The records of one agent, D_p = {(x_pi, y_pi)}."""

    x: Array  # [I_p, J]  features
    y: Array  # [I_p, K]  one-hot labels, or the values to predict (K = 1)

    def blocks(self) -> Iterator[Shard]:
        """The records in order: the shard itself, or, of one in a file, blocks whose memory is given back after use."""
        for block in self._parts or (self,):
            try:
                yield block
            finally:
                if file_of(block.x) is not None:
                    vars(block).pop("on_grid", None)  # as large as the block itself
                    give_back(block.x)
                    give_back(block.y)

    @cached_property
    def _parts(self) -> tuple[Shard, ...]:
        """The blocks of a shard that lies in a file, where there is more than one; they remember their norms."""
        if file_of(self.x) is None:
            return ()
        cuts = row_blocks(len(self.x), self.x[:1].nbytes + self.y[:1].nbytes)
        return tuple(Shard(self.x[rows], self.y[rows]) for rows in cuts) if len(cuts) > 1 else ()

    @cached_property
    def norm1(self) -> Array:
        """||x_pi||_1 of every record, [I_p]."""
        if self._parts:
            return np.concatenate([block.norm1 for block in self.blocks()])
        norms: Array = namespace(self.x).abs(self.x).sum(axis=1)
        return norms

    @cached_property
    def norm2(self) -> Array:
        """||x_pi||_2 of every record, [I_p]."""
        if self._parts:
            return np.concatenate([block.norm2 for block in self.blocks()])
        xp = namespace(self.x)
        norms: Array = xp.sqrt(xp.einsum("ij,ij->i", self.x, self.x))
        return norms

    @cached_property
    def layout(self) -> Layout:
        """The features as the compiled pass takes them."""
        return Dense(self.x) if file_of(self.x) is not None else lay_out(self.x)

    @cached_property
    def on_grid(self) -> Shard:
        """The same records with features rounded to whole multiples of 1/GRID, held as the whole numbers."""
        return Shard(np.rint(GRID * self.x.astype(np.float64)), self.y.astype(np.float64))


@dataclass(frozen=True)
class Classes:
    """The label is one of these classes."""

    names: tuple[str, ...]

    @property
    def width(self) -> int:
        """K, the number of columns of y."""
        return len(self.names)


@dataclass(frozen=True)
class Range:
    """The label is a number with public bounds; y holds (value - low) / (high - low)."""

    low: float
    high: float

    @property
    def width(self) -> int:
        """K, the number of columns of y."""
        return 1


Target: TypeAlias = Classes | Range


@dataclass(frozen=True, eq=False)
class Dataset:
    """What a study trains on: records by agent, a test set, and the names of things."""

    name: str
    agents: tuple[str, ...]  # P names, in the order the agents are summed
    train: tuple[Shard, ...]  # one for each agent; where several processes share the work, for each agent here
    test: Shard | None
    features: tuple[str, ...]  # J names; the intercept, where there is one, is the last
    target: Target
    notes: tuple[str, ...] = ()  # what loading had to do to the records, for the owner's eyes
    features_by: str = "none"  # the public feature map that the records went through

    @property
    def records(self) -> int:
        """I, the number of training records of all agents."""
        return sum(len(shard.x) for shard in self.train)
