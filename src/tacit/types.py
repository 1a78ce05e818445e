"""The values that pass between the layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tacit import arrays
from tacit.arrays import namespace

Array: TypeAlias = arrays.Array

GRID = 4080  # 16 * 255: pixels of 8 and of 4 bits are multiples of 1/GRID, and so are 0, 1/2 and 1


@dataclass(frozen=True, eq=False)
class Shard:
    """The records of one agent, D_p = {(x_pi, y_pi)}."""

    x: Array  # [I_p, J]  features
    y: Array  # [I_p, K]  one-hot labels, or the values to predict (K = 1)

    @cached_property
    def norm1(self) -> Array:
        """||x_pi||_1 of every record, [I_p]."""
        norms: Array = namespace(self.x).abs(self.x).sum(axis=1)
        return norms

    @cached_property
    def norm2(self) -> Array:
        """||x_pi||_2 of every record, [I_p]."""
        xp = namespace(self.x)
        norms: Array = xp.sqrt(xp.einsum("ij,ij->i", self.x, self.x))
        return norms

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
    train: tuple[Shard, ...]  # one for each agent
    test: Shard | None
    features: tuple[str, ...]  # J names; the intercept, where there is one, is the last
    target: Target
    notes: tuple[str, ...] = ()  # what loading had to do to the records, for the owner's eyes

    @property
    def records(self) -> int:
        """I, the number of training records of all agents."""
        return sum(len(shard.x) for shard in self.train)
