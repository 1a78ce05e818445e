"""One pass over an agent's records: the plain form, which defines it, and the compiled one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from taciturn.core.arrays import Array, double, namespace, row_blocks
from taciturn.kernels.layout import Dense
from taciturn.kernels.library import level, library
from taciturn.kernels.row_pass import Passed, PassRecords, run_pass
from taciturn.kernels.threads import side_by_side
from taciturn.objectives.clipping import NO_CLIPPING, Clipping
from taciturn.objectives.losses import Hinge, Loss, Softmax, Squared
from taciturn.types import Shard

COMPILED_LOSSES: dict[type, str] = {Softmax: "softmax", Hinge: "hinge", Squared: "squared"}
RANGE = 8192  # rows that are added up by themselves: sums do not depend on how many threads there are
RANGES = 32  # at most, so that their sums take little memory
NARROW = 16  # columns up to which the compiled pass wins on any processor
TOGETHER = 256  # rows whose products are added up by themselves
MOST_TOGETHER = 512  # such sums that are added up without care


class GradientSums(NamedTuple):
    """What a gradient and its noise need of an agent's records."""

    total: Array  # [J, R, K]  sum_i x_i r_i^T, every record within the limit; under a limit in double precision
    longest: Array  # [R]  max_i ||x_i r_i^T||_1


class Passes(Protocol):
    """How records are gone through."""

    def sums(self, loss: Loss, z: Array, shard: Shard, limit: Clipping) -> GradientSums:
        """Residuals r_i = dl/ds at s_i = x_i^T z, added up as x_i r_i^T."""
        ...

    def losses(self, loss: Loss, w: Array, shard: Shard) -> Array:
        """sum_i l(w; x_i, y_i) of every run, [R]."""
        ...


@dataclass(frozen=True)
class PlainPasses:
    """Matrix products and elementwise steps of the array library, block by block."""

    def sums(self, loss: Loss, z: Array, shard: Shard, limit: Clipping) -> GradientSums:
        """The equations as they are."""
        if _widens(z, limit):
            return _careful(z, (_wide_sums(loss, double(z), block, limit) for block in _wide_blocks(shard)))
        parts = [_plain_sums(loss, z, block, limit) for block in shard.blocks()]
        longest = namespace(z).amax(namespace(z).stack([part.longest for part in parts]), axis=0)
        return GradientSums(sum((part.total for part in parts[1:]), start=parts[0].total), longest)

    def losses(self, loss: Loss, w: Array, shard: Shard) -> Array:
        """The equations as they are."""
        parts: list[Array] = [loss.value(scores(w, block.x), block.y).sum(axis=0) for block in shard.blocks()]
        return sum(parts[1:], start=parts[0])


def scores(w: Array, x: Array) -> Array:
    """s_i = x_i^T w for every record and run, as one matrix product: w [J, R, K], x [n, J] -> [n, R, K]."""
    return (x @ w.reshape(len(w), -1)).reshape(len(x), *w.shape[1:])


def _plain_sums(loss: Loss, z: Array, shard: Shard, limit: Clipping) -> GradientSums:
    residual = loss.residual(limit.scores(scores(z, shard.x), shard), shard.y)
    residual = limit.residual(residual, shard)
    total = (shard.x.T @ residual.reshape(len(residual), math.prod(z.shape[1:]))).reshape(z.shape)
    xp = namespace(residual)
    lengths = shard.norm1[:, None] * xp.abs(residual).sum(axis=-1)  # [n, R]
    return GradientSums(total, xp.amax(lengths, axis=0) if len(lengths) else lengths.sum(axis=0))


def _widens(z: Array, limit: Clipping) -> bool:
    """Whether sums are made in a higher precision than the records': single precision under a limit.

    Rounding n records' sum in single precision moves it by n 2^-24 of a record, which for millions is more than the one
    record that noise must hide. In double precision, added up as below, it is at most n 2^-44, or n 2^-43 between
    neighbours: see rounding_slack.
    """
    return limit is not NO_CLIPPING and z.dtype == namespace(z).float32


def _wide_blocks(shard: Shard) -> Iterator[Shard]:
    """The records in double precision, so few at a time that they take little memory."""
    for block in shard.blocks():
        for rows in row_blocks(len(block.x), 8 * block.x.shape[1], TOGETHER * MOST_TOGETHER):
            part = Shard(double(block.x[rows]), double(block.y[rows]))
            vars(part).update(norm1=double(block.norm1[rows]), norm2=double(block.norm2[rows]))  # known already
            yield part


def _wide_sums(loss: Loss, z: Array, shard: Shard, limit: Clipping) -> GradientSums:
    """As _plain_sums, but products are added up in short sums first."""
    xp = namespace(z)
    residual = limit.residual(loss.residual(limit.scores(scores(z, shard.x), shard), shard.y), shard)
    flat, rest = residual.reshape(len(residual), -1), len(residual) // TOGETHER * TOGETHER
    short = shard.x[:rest].reshape(-1, TOGETHER, len(z)).swapaxes(1, 2) @ flat[:rest].reshape(
        -1, TOGETHER, flat.shape[1]
    )
    total = short.sum(axis=0) + shard.x[rest:].T @ flat[rest:]
    return GradientSums(total.reshape(z.shape), xp.amax(shard.norm1[:, None] * xp.abs(residual).sum(axis=-1), axis=0))


def _careful(like: Array, parts: Iterator[GradientSums]) -> GradientSums:
    """All parts added up as if in twice the precision: what every addition rounds off is kept (Knuth's two-sum)."""
    xp, total = namespace(like), double(namespace(like).zeros_like(like))
    lost, longest = xp.zeros_like(total), xp.zeros_like(total[0, :, 0])
    for part in parts:
        after = total + part.total
        added = after - total
        lost += (total - (after - added)) + (part.total - added)
        total, longest = after, xp.maximum(longest, part.longest)
    return GradientSums(total + lost, longest)


@dataclass(frozen=True)
class CompiledPasses:
    """The compiled pass where it was built, has the loss and is the faster; elsewhere the plain one."""

    def sums(self, loss: Loss, z: Array, shard: Shard, limit: Clipping) -> GradientSums:
        """The same sums, while the rows are in the cache."""
        if not _takes(loss, z, shard, limit):
            return PLAIN.sums(loss, z, shard, limit)
        if _widens(z, limit):
            parts = self._ranges(loss, double(z), shard, limit, gradient=True)
            return _careful(z, (GradientSums(part.total.reshape(z.shape), part.longest) for part in parts))
        total, longest = np.zeros_like(z), np.zeros(z.shape[1], z.dtype)
        for part in self._ranges(loss, z, shard, limit, gradient=True):
            total += part.total.reshape(z.shape)
            longest = np.maximum(longest, part.longest)
        return GradientSums(total, longest)

    def losses(self, loss: Loss, w: Array, shard: Shard) -> Array:
        """The same losses, added up in double precision."""
        if not _takes(loss, w, shard, NO_CLIPPING):
            return PLAIN.losses(loss, w, shard)
        parts = [part.losses for part in self._ranges(loss, w, shard, NO_CLIPPING, gradient=False)]
        total: Array = np.sum([np.zeros(w.shape[1]), *parts], axis=0).astype(w.dtype)
        return total

    def _ranges(self, loss: Loss, z: Array, shard: Shard, limit: Clipping, gradient: bool) -> Iterator[Passed]:
        flat = np.ascontiguousarray(z).reshape(len(z), -1)
        for block in shard.blocks():
            records = PassRecords(block.layout, np.ascontiguousarray(block.y), block.norm1, block.norm2)
            one = partial(
                run_pass,
                records,
                w=flat,
                runs=z.shape[1],
                loss=COMPILED_LOSSES[type(loss)],
                terms=limit.terms(block),
                gradient=gradient,
            )
            yield from side_by_side(one, _cuts(len(block.x)))


def _cuts(rows: int) -> list[slice]:
    """Ranges of rows that are added up by themselves; they depend on the number of rows alone."""
    step = max(RANGE, math.ceil(rows / RANGES))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _takes(loss: Loss, z: Array, shard: Shard, limit: Clipping) -> bool:
    """Whether the compiled pass knows the loss, and is the faster one.

    The two passes round differently, and which is faster depends on how many values are not zero: one record could
    change what all others add. Under a limit public facts alone decide.
    """
    if library() is None or type(loss) not in COMPILED_LOSSES or not isinstance(z, np.ndarray):
        return False
    if z.dtype.char not in "fd" or z.dtype != shard.x.dtype or z.dtype != shard.y.dtype:
        return False
    if limit is not NO_CLIPPING:
        return True
    return level() > 1 or z[0].size <= NARROW or not isinstance(shard.layout, Dense)


PLAIN = PlainPasses()
COMPILED = CompiledPasses()
