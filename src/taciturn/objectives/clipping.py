"""Limits on what one record can do to a gradient, from public bounds.

The gradient of one record is the rank-one matrix x r^T, so ||x r^T||_q = ||x||_q ||r||_q for q = 1 and 2: a limit costs
two norms a record, and no per-record gradient is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from taciturn.core.arrays import namespace
from taciturn.kernels.row_pass import PassOptions
from taciturn.types import Array, Shard

LARGEST_PARAMETER = 2.0**32
"""A public bound on |w|. No model needs more: features lie in [-1, 1], so that scores would reach it too.

It keeps a site's own state finite, whatever w it is sent. But for w and the clipped, noisy gradient an agent's step
does not lengthen its state: rho |lambda/rho|^2 + |z|^2/eta falls in every round, and projections add nothing to it. So
what comes in adds up at most round by round, and 2^20 rounds of 2^32 are far from the end of even single precision,
2^128; so are squares of such numbers, and their products with penalties and step sizes of 2^30.
"""


def admissible(w: Array) -> bool:
    """Whether parameters from another party are finite and within LARGEST_PARAMETER; nothing else may meet records."""
    return bool((np.abs(w) <= LARGEST_PARAMETER).all())  # False for nan


class Clipping(Protocol):
    """How records are held within a bound.

    A residual that is not a finite number within its bound counts as 0, whatever bit patterns made it: what a record
    adds is bounded for all parameters, and nothing that is not finite tells of a record.
    """

    def scores(self, scores: Array, shard: Shard) -> Array:
        """The scores of the records as the limit leaves them, [n, R, K]."""
        ...

    def residual(self, residual: Array, shard: Shard) -> Array:
        """The residuals of the records as they enter the sum x r^T, [n, R, K]."""
        ...

    def terms(self, shard: Shard) -> PassOptions:
        """The same in numbers, as the compiled pass takes it."""
        ...


@dataclass(frozen=True, eq=False)
class NoClipping:
    """Records as they are."""

    def scores(self, scores: Array, shard: Shard) -> Array:
        """The same."""
        return scores

    def residual(self, residual: Array, shard: Shard) -> Array:
        """The same."""
        return residual

    def terms(self, shard: Shard) -> PassOptions:
        """None."""
        return PassOptions()


@dataclass(frozen=True, eq=False)
class GradientClipping:
    """Every record's gradient shortened to ||x r^T||_2 <= l2, and to ||x r^T||_1 <= l1 where that is finite."""

    l2: Array  # [R]
    l1: Array  # [R]

    def scores(self, scores: Array, shard: Shard) -> Array:
        """The same: only the gradient is clipped."""
        return scores

    def residual(self, residual: Array, shard: Shard) -> Array:
        """r min(1, l2 / (||x||_2 ||r||_2), l1 / (||x||_1 ||r||_1))."""
        xp = namespace(residual)
        factor = self.l2 / xp.maximum(shard.norm2[:, None] * xp.sqrt((residual**2).sum(axis=-1)), self.l2)
        if self._bounds_l1:
            l1 = self._finite_l1
            length = shard.norm1[:, None] * xp.abs(residual).sum(axis=-1)
            factor = xp.minimum(factor, l1 / xp.maximum(length, l1))
        return finite(residual * factor[..., None])  # maximum and minimum hand nan on

    def terms(self, shard: Shard) -> PassOptions:
        """Both bounds."""
        return PassOptions(l2=self.l2, l1=self._finite_l1 if self._bounds_l1 else None)

    @cached_property
    def _finite_l1(self) -> Array:
        xp = namespace(self.l1)
        bound: Array = xp.clip(self.l1, None, xp.finfo(self.l1.dtype).max)  # inf stands for no bound
        return bound

    @cached_property
    def _bounds_l1(self) -> bool:
        return bool(namespace(self.l1).isfinite(self.l1).any())


@dataclass(frozen=True)
class RecordScaling:
    """Every record x scaled to ||x||_2 <= bound; unlike a clipped gradient, this is still a convex, smooth loss."""

    bound: float

    def scores(self, scores: Array, shard: Shard) -> Array:
        """The scores of the scaled records."""
        return scores * self.scale(shard)[:, None, None]

    def residual(self, residual: Array, shard: Shard) -> Array:
        """With the scale of x put onto r."""
        return finite(residual * self.scale(shard)[:, None, None])

    def terms(self, shard: Shard) -> PassOptions:
        """A factor for every record."""
        return PassOptions(scale=self.scale(shard))

    def scale(self, shard: Shard) -> Array:
        """min(1, bound / ||x||_2) of every record, [n]."""
        scale: Array = self.bound / namespace(shard.norm2).clip(shard.norm2, self.bound, None)
        return scale


NO_CLIPPING = NoClipping()


def finite(residual: Array) -> Array:
    """The same residuals, with 0 in the place of what is not finite."""
    kept: Array = namespace(residual).nan_to_num(residual, nan=0.0, posinf=0.0, neginf=0.0)
    return kept


MOST_SINGLE = 2**23
"""Records of an agent, in single precision, whose rounded sum is known to move by no more than the sensitivity."""


def rounding_slack(features: int, outputs: int, precision: str) -> float:
    """A factor a little below 1 for a clip bound, so that norms rounded in this precision still keep it.

    In single precision it also covers the sum over the records, which is made in double precision: the norms and the
    bound are off by at most (J/4 + 1) 2^-23, which leaves more than 8 2^-23, and the sums of neighbours with n records
    are off by at most n 2^-43 of a record's bound (see problems.passes), which is 8 2^-23 at n = MOST_SINGLE.
    """
    return 1.0 - (features + outputs + 8) * float(np.finfo(precision).eps)
