"""Passes over an agent's records that sum gradients and losses: the plain form, which defines them, and the compiled.

Both give the same sums up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from taciturn.core.arrays import Array, double, namespace, row_blocks
from taciturn.kernels.layout import Dense
from taciturn.kernels.library import level, library
from taciturn.kernels.row_pass import PassRecords, PassResult, run_pass
from taciturn.kernels.threads import parallel_map
from taciturn.objectives.clipping import NO_CLIPPING, Clipping
from taciturn.objectives.losses import Hinge, Loss, Softmax, Squared
from taciturn.types import Shard

COMPILED_LOSSES: dict[type, str] = {Softmax: "softmax", Hinge: "hinge", Squared: "squared"}
ROWS_PER_RANGE = 8192  # rows summed separately, so that sums do not depend on the number of threads
MAX_RANGES = 32  # at most, so that the partial sums take little memory
NARROW_COLUMNS = 16  # columns up to which the compiled pass is faster on every processor
ROWS_PER_SUM = 256  # rows whose products are summed separately
MAX_SUMS = 512  # such sums that are added without compensation


class GradientSums(NamedTuple):
    """Sums over an agent's records from which a gradient and its noise are computed."""

    total: Array  # [J, R, K]  sum_i x_i r_i^T of the clipped records; with clipping, in double precision
    longest: Array  # [R]  max_i ||x_i r_i^T||_1


class Passes(Protocol):
    """An implementation of passes over records."""

    def sums(self, loss: Loss, z: Array, shard: Shard, clipping: Clipping) -> GradientSums:
        """Sum x_i r_i^T over the records, with residuals r_i = m_i dl/ds at the scores s_i = x_i^T z.

        m_i is the record's weight, 1 if it has none. The bound applies to the weighted residual.

        Parameters
        ----------
        loss
            The loss.
        z
            Parameters [J, R, K].
        shard
            The records.
        clipping
            The bound on a record's contribution.
        """

    def losses(self, loss: Loss, w: Array, shard: Shard) -> Array:
        """Return sum_i m_i l(w; x_i, y_i) for every run, [R]."""

    def losses_and_sums(self, loss: Loss, w: Array, shard: Shard) -> tuple[Array, Array]:
        """Return the losses [R] and their gradients sum_i x_i r_i^T [J, R, K], not clipped, as solvers need them."""


@dataclass(frozen=True)
class PlainPasses:
    """Matrix products and elementwise operations of the array library, block by block."""

    def sums(self, loss: Loss, z: Array, shard: Shard, clipping: Clipping) -> GradientSums:
        """Compute the sums as the equations state them."""
        if _needs_double(z, clipping):
            return _compensated_sum(z, (_blocked_sums(loss, double(z), b, clipping) for b in _double_blocks(shard)))
        parts = [_plain_sums(loss, z, block, clipping) for block in shard.blocks()]
        longest = namespace(z).amax(namespace(z).stack([part.longest for part in parts]), axis=0)
        return GradientSums(sum((part.total for part in parts[1:]), start=parts[0].total), longest)

    def losses(self, loss: Loss, w: Array, shard: Shard) -> Array:
        """Compute the losses as the equations state them."""
        values = (block.weighted(loss.value(scores(w, block.x), block.y)) for block in shard.blocks())
        parts: list[Array] = [each.sum(axis=0) for each in values]
        return sum(parts[1:], start=parts[0])

    def losses_and_sums(self, loss: Loss, w: Array, shard: Shard) -> tuple[Array, Array]:
        """Compute both in turn."""
        return self.losses(loss, w, shard), self.sums(loss, w, shard, NO_CLIPPING).total


def scores(w: Array, x: Array) -> Array:
    """Return s_i = x_i^T w for every record and run, as one matrix product: w [J, R, K], x [n, J] -> [n, R, K].

    Examples
    --------
    >>> scores(np.ones((2, 1, 3)), np.array([[1.0, 2.0]])).tolist()
    [[[3.0, 3.0, 3.0]]]
    """
    return (x @ w.reshape(len(w), -1)).reshape(len(x), *w.shape[1:])


def _residual(loss: Loss, z: Array, shard: Shard, clipping: Clipping) -> Array:
    """Return the residuals of the weighted losses as they enter the sum: a record's weight counts before its bound."""
    residual = loss.residual(clipping.scores(scores(z, shard.x), shard), shard.y)
    return clipping.residual(shard.weighted(residual), shard)


def _plain_sums(loss: Loss, z: Array, shard: Shard, clipping: Clipping) -> GradientSums:
    residual = _residual(loss, z, shard, clipping)
    total = (shard.x.T @ residual.reshape(len(residual), math.prod(z.shape[1:]))).reshape(z.shape)
    xp = namespace(residual)
    lengths = shard.norm1[:, None] * xp.abs(residual).sum(axis=-1)  # [n, R]
    return GradientSums(total, xp.amax(lengths, axis=0) if len(lengths) else lengths.sum(axis=0))


def _needs_double(z: Array, clipping: Clipping) -> bool:
    """Return whether sums need double precision: single-precision records with clipping.

    Rounding a sum of n records in single precision changes it by n 2^-24 of a record. For millions of records that is
    more than the one record that the noise must hide. In double precision, summed as below, the error is at most
    n 2^-44, or n 2^-43 between neighbouring data sets; see `rounding_slack`.
    """
    return clipping is not NO_CLIPPING and z.dtype == namespace(z).float32


def _double_blocks(shard: Shard) -> Iterator[Shard]:
    """Yield the records in double precision, in blocks that take little memory."""
    for block in shard.blocks():
        for rows in row_blocks(len(block.x), 8 * block.x.shape[1], ROWS_PER_SUM * MAX_SUMS):
            chosen = block.rows(rows)
            part = replace(chosen, x=double(chosen.x), y=double(chosen.y))
            vars(part).update(norm1=double(block.norm1[rows]), norm2=double(block.norm2[rows]))  # known already
            yield part


def _blocked_sums(loss: Loss, z: Array, shard: Shard, clipping: Clipping) -> GradientSums:
    """Compute the same as _plain_sums, adding the products in short sums first."""
    xp = namespace(z)
    residual = _residual(loss, z, shard, clipping)
    flat, rest = residual.reshape(len(residual), -1), len(residual) // ROWS_PER_SUM * ROWS_PER_SUM
    x_parts = shard.x[:rest].reshape(-1, ROWS_PER_SUM, len(z)).swapaxes(1, 2)
    short = x_parts @ flat[:rest].reshape(-1, ROWS_PER_SUM, flat.shape[1])
    total = short.sum(axis=0) + shard.x[rest:].T @ flat[rest:]
    return GradientSums(total.reshape(z.shape), xp.amax(shard.norm1[:, None] * xp.abs(residual).sum(axis=-1), axis=0))


def _compensated_sum(like: Array, parts: Iterator[GradientSums]) -> GradientSums:
    """Add all parts as if in twice the precision, keeping the rounding error of every addition (Knuth's two-sum)."""
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
    """The compiled pass if it was built, supports the loss and is faster; otherwise the plain one."""

    def sums(self, loss: Loss, z: Array, shard: Shard, clipping: Clipping) -> GradientSums:
        """Compute the sums while the rows are in the processor's cache."""
        if not _supports(loss, z, shard, clipping):
            return PLAIN.sums(loss, z, shard, clipping)
        if _needs_double(z, clipping):
            parts = self._ranges(loss, double(z), shard, clipping, gradient=True)
            return _compensated_sum(z, (GradientSums(part.total.reshape(z.shape), part.longest) for part in parts))
        total, longest = np.zeros_like(z), np.zeros(z.shape[1], z.dtype)
        for part in self._ranges(loss, z, shard, clipping, gradient=True):
            total += part.total.reshape(z.shape)
            longest = np.maximum(longest, part.longest)
        return GradientSums(total, longest)

    def losses(self, loss: Loss, w: Array, shard: Shard) -> Array:
        """Compute the losses, summed in double precision."""
        if not _supports(loss, w, shard, NO_CLIPPING):
            return PLAIN.losses(loss, w, shard)
        parts = [part.losses for part in self._ranges(loss, w, shard, NO_CLIPPING, gradient=False)]
        total: Array = np.sum([np.zeros(w.shape[1]), *parts], axis=0).astype(w.dtype)
        return total

    def losses_and_sums(self, loss: Loss, w: Array, shard: Shard) -> tuple[Array, Array]:
        """Compute both in one pass."""
        if not _supports(loss, w, shard, NO_CLIPPING):
            return PLAIN.losses_and_sums(loss, w, shard)
        losses, total = np.zeros(w.shape[1]), np.zeros_like(w)
        for part in self._ranges(loss, w, shard, NO_CLIPPING, gradient=True, losses_too=True):
            losses += part.losses
            total += part.total.reshape(w.shape)
        return losses.astype(w.dtype), total

    def _ranges(
        self, loss: Loss, z: Array, shard: Shard, clipping: Clipping, gradient: bool, losses_too: bool = False
    ) -> Iterator[PassResult]:
        name, flat = COMPILED_LOSSES[type(loss)], np.ascontiguousarray(z).reshape(len(z), -1)
        for block in shard.blocks():
            records = PassRecords(block.layout, np.ascontiguousarray(block.y), block.norm1, block.norm2, block.weights)
            options = clipping.pass_options(block)
            run = partial(run_pass, records, w=flat, runs=z.shape[1], loss=name, options=options)
            run = partial(run, gradient=gradient, losses_too=losses_too)
            yield from parallel_map(run, _row_ranges(len(block.x)))


def _row_ranges(rows: int) -> list[slice]:
    """Return ranges of rows that are summed separately; they depend only on the number of rows."""
    step = max(ROWS_PER_RANGE, math.ceil(rows / MAX_RANGES))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _supports(loss: Loss, z: Array, shard: Shard, clipping: Clipping) -> bool:
    """Return whether the compiled pass supports the loss and is the faster one.

    The two passes round differently, and which one is faster depends on the number of nonzero values, so one record
    could change the contributions of all others. With clipping, the choice therefore depends on public facts only.
    """
    if library() is None or type(loss) not in COMPILED_LOSSES or not isinstance(z, np.ndarray):
        return False
    if z.dtype.char not in "fd" or z.dtype != shard.x.dtype or z.dtype != shard.y.dtype:
        return False
    if clipping is not NO_CLIPPING:
        return True
    return level() > 1 or z[0].size <= NARROW_COLUMNS or not isinstance(shard.layout, Dense)


PLAIN = PlainPasses()
COMPILED = CompiledPasses()
