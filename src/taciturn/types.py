"""Data types that pass between the layers: an agent's records, labels, and data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core import arrays
from taciturn.core.arrays import as_like, backing_file, namespace, release_memory, row_blocks
from taciturn.kernels.layout import Dense, Layout, choose_layout

Array: TypeAlias = arrays.Array

GRID = 4080  # 16 * 255: pixels of 8 and of 4 bits are multiples of 1/GRID, and so are 0, 1/2 and 1


@dataclass(frozen=True, eq=False)
class Shard:
    """The records of one agent, D_p = {(x_pi, y_pi)}.

    Parameters
    ----------
    x : Array
        Features [I_p, J].
    y : Array
        One-hot labels [I_p, K], or the values to predict [I_p, 1].
    weights : Array, optional
        The weight of every record, within [0, 1], by which its loss is multiplied, [I_p]; None: all are 1. A weight
        never increases a record's gradient or curvature, so all sensitivities are those of records without weights.

    Examples
    --------
    >>> shard = Shard(np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> shard.norm2.tolist()
    [5.0, 1.0]
    """

    x: Array
    y: Array
    weights: Array | None = None

    def rows(self, selection: Any) -> Shard:
        """Return some of the records: those that a slice or an index of the rows selects."""
        weights = None if self.weights is None else self.weights[selection]
        return Shard(self.x[selection], self.y[selection], weights)

    def with_features(self, x: Array) -> Shard:
        """Return the same records with other features [I_p, J']."""
        return replace(self, x=x)

    def copy(self) -> Shard:
        """Return a copy whose arrays belong to no larger array."""
        weights = None if self.weights is None else self.weights.copy()
        return Shard(self.x.copy(), self.y.copy(), weights)

    @cached_property
    def unweighted(self) -> Shard:
        """The same records, each with weight 1."""
        if self.weights is None:
            return self
        plain = replace(self, weights=None)
        vars(plain).update({name: vars(self)[name] for name in ("norm1", "norm2", "layout") if name in vars(self)})
        return plain

    def weighted(self, values: Array) -> Array:
        """Return a value of every record [I_p, ...], such as its loss or residual, times the record's weight."""
        if self.weights is None:
            return values
        product: Array = values * self.weights.reshape(-1, *[1] * (values.ndim - 1))
        return product

    def blocks(self) -> Iterator[Shard]:
        """Yield the records in order, in blocks.

        Records in memory are one block. Records in a memory-mapped file come in several blocks, each of which is
        dropped from memory after use.
        """
        for block in self._parts or (self,):
            try:
                yield block
            finally:
                if backing_file(block.x) is not None:
                    vars(block).pop("on_grid", None)  # as large as the block itself
                    release_memory(block.x)
                    release_memory(block.y)
                    if block.weights is not None:
                        release_memory(block.weights)

    @cached_property
    def _parts(self) -> tuple[Shard, ...]:
        """The blocks of a memory-mapped shard, if there are several; they are kept because they cache their norms."""
        if backing_file(self.x) is None:
            return ()
        cuts = row_blocks(len(self.x), self.x[:1].nbytes + self.y[:1].nbytes)
        return tuple(map(self.rows, cuts)) if len(cuts) > 1 else ()

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
        """The features in the layout that the compiled pass reads."""
        return Dense(self.x) if backing_file(self.x) is not None else choose_layout(self.x)

    @cached_property
    def on_grid(self) -> Shard:
        """The records with features rounded to multiples of 1/GRID, stored as integers in double precision."""
        steps = np.multiply(self.x, GRID, dtype=np.float64)
        return replace(self, x=np.rint(steps, out=steps), y=self.y.astype(np.float64, copy=False))


def slices(widths: Iterable[int]) -> list[slice]:
    """Return where neighbours of these widths are in an array that holds them one after the other.

    >>> slices([2, 3])
    [slice(0, 2, None), slice(2, 5, None)]
    """
    return [slice(*ends) for ends in pairwise(accumulate(widths, initial=0))]


def pool(shards: Sequence[Shard]) -> Shard:
    """Return the records of several agents as one shard, in their order."""
    if len(shards) == 1:
        return shards[0]
    xp, weights = namespace(shards[0].x), None
    if any(shard.weights is not None for shard in shards):
        each = (as_like(np.ones(len(shard.x)), shard.x) if shard.weights is None else shard.weights for shard in shards)
        weights = xp.concatenate(list(each))
    return Shard(xp.concatenate([s.x for s in shards]), xp.concatenate([s.y for s in shards]), weights)


class ColumnBlock(NamedTuple):
    """The features of one column of a table, or of a pair of columns; they are neighbours."""

    kind: str  # "numeric": its value; "ordered": levels in order; "categories": levels without an order; "pair"
    width: int  # the number of features; a pair has them only after the feature map
    missing: bool  # whether the last feature says that the value is missing; for numeric and ordered columns
    of: tuple[int, ...] = ()  # for a pair, also after the map: the positions of its two columns among the blocks


ALIKE = "equal rows"  # begins the note on a hold-out that they make far from its share
UNREADABLE = "most values of column"  # begins the note on a column of which most cells do not fit its declaration


@dataclass(frozen=True)
class Classes:
    """A label that is one of several classes; y holds one-hot rows.

    Examples
    --------
    >>> Classes(("no", "yes")).width
    2
    """

    names: tuple[str, ...]

    @property
    def width(self) -> int:
        """K, the number of columns of y."""
        return len(self.names)


@dataclass(frozen=True)
class Range:
    """A label that is a number with public bounds; y holds (value - low) / (high - low).

    Examples
    --------
    >>> Range(0.0, 50.0).predicted(np.array([-0.1, 0.5, 1.2])).tolist()
    [0.0, 25.0, 50.0]
    """

    low: float
    high: float

    @property
    def width(self) -> int:
        """K, the number of columns of y."""
        return 1

    def predicted(self, scores: Array) -> Array:
        """Return what a model with these scores predicts: a number within the bounds, which are public."""
        within: Array = namespace(scores).clip(scores, 0.0, 1.0)
        return self.low + (self.high - self.low) * within


Target: TypeAlias = Classes | Range


@dataclass(frozen=True, eq=False)
class Dataset:
    """The data of a study: records by agent, a test set, and names."""

    name: str
    agents: tuple[str, ...]  # P names, in the order in which agents are summed
    train: tuple[Shard, ...]  # one per agent; if several processes share the work, one per agent of this process
    test: Shard | None
    features: tuple[str, ...]  # J names; the intercept, if there is one, is the last
    target: Target
    notes: tuple[str, ...] = ()  # what loading changed in the records, for the owner only
    warnings: tuple[str, ...] = ()  # why the owner should doubt the results, for the owner only
    features_by: str = "none"  # the public feature map that was applied to the records
    held_out: tuple[int, ...] = ()  # how many test records each agent held out, in their order; empty: none did
    rows: int = 0  # of the table from which it was read, those that are no records included; 0: it was no table

    @property
    def records(self) -> int:
        """I, the number of training records of all agents."""
        return sum(len(shard.x) for shard in self.train)

    @property
    def left_out(self) -> str:
        """How many rows of the table are used if not all are, and why: for the owner of the records only."""
        used = self.records + sum(self.held_out)
        if used >= self.rows:
            return ""
        why = [note.split(" (")[0] for note in self.notes if "left out" in note and not note.startswith("test table: ")]
        return f"{used:,} of {self.rows:,} rows are used; {'; '.join(why)}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the owner of the records, and nobody else, should read at once.

        Those are unused rows, an odd hold-out, and columns that cannot be read.
        """
        odd = (note for note in self.notes if note.startswith((ALIKE, UNREADABLE)))
        return (*filter(None, [self.left_out]), *odd)

    @property
    def test_parties(self) -> dict[str, NDArray[np.intp]] | None:
        """The rows of the test records that each agent held out, by its name; None if they come from elsewhere."""
        if not self.held_out:
            return None
        own = slices(self.held_out)
        return {name: np.arange(rows.start, rows.stop) for name, rows in zip(self.agents, own, strict=True)}

    @cached_property
    def held_out_shards(self) -> tuple[Shard, ...]:
        """The held-out records of each agent, in the agents' order; a shard has no rows if its agent held out none."""
        if self.test is None or not self.held_out:
            x, y = self.train[0].x, self.train[0].y
            return (Shard(x[:0], y[:0]),) * len(self.agents)
        ends = np.cumsum((0, *self.held_out)).tolist()
        return tuple(self.test.rows(slice(*pair)) for pair in pairwise(ends))
