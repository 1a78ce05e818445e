"""Bounds on a record's contribution to a gradient, from public numbers.

The gradient of one record is the rank-one matrix x r^T, so ||x r^T||_q = ||x||_q ||r||_q for q = 1 and 2: clipping
needs two norms per record and never forms a per-record gradient.
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
"""A public bound on |w|. No model needs more: features are within [-1, 1], so scores would be as large.

It keeps a site's state finite for every w it receives. Apart from w and the clipped, noisy gradient, an agent's step
does not increase its state: rho |lambda/rho|^2 + |z|^2/eta falls in every round, and projections add nothing. Inputs
therefore add up at most round by round, and 2^20 rounds of 2^32 are far below the limit of even single precision,
2^128; so are squares of such numbers, and their products with penalties and step sizes of 2^30.
"""

MAX_SINGLE = 2**23
"""The most records of an agent, in single precision, whose rounded sum provably changes by at most the sensitivity."""


def admissible(w: Array) -> bool:
    """Return whether parameters from another party are finite and within LARGEST_PARAMETER; check before use."""
    return bool((np.abs(w) <= LARGEST_PARAMETER).all())  # False for nan


class Clipping(Protocol):
    """A bound on each record's contribution to a gradient.

    A residual that is not finite counts as 0, whatever produced it: every record's contribution is bounded for all
    parameters, and no NaN or infinity reveals a record.
    """

    def scores(self, scores: Array, shard: Shard) -> Array:
        """Return the scores [n, R, K] after the bound was applied to the records."""

    def residual(self, residual: Array, shard: Shard) -> Array:
        """Return the residuals [n, R, K] as they enter the sum of x r^T."""

    def pass_options(self, shard: Shard) -> PassOptions:
        """Return the same bound as parameters of the compiled pass."""


@dataclass(frozen=True, eq=False)
class NoClipping:
    """No bound: records enter unchanged."""

    def scores(self, scores: Array, shard: Shard) -> Array:
        """Return the scores unchanged."""
        return scores

    def residual(self, residual: Array, shard: Shard) -> Array:
        """Return the residuals unchanged."""
        return residual

    def pass_options(self, shard: Shard) -> PassOptions:
        """Return options without bounds."""
        return PassOptions()


NO_CLIPPING = NoClipping()


@dataclass(frozen=True, eq=False)
class GradientClipping:
    """Scale every record's gradient to ||x r^T||_2 <= l2, and to ||x r^T||_1 <= l1 if that is finite.

    Parameters
    ----------
    l2, l1 : Array
        The bounds of every run, [R]; an infinite l1 means no L1 bound.

    Examples
    --------
    >>> clipping = GradientClipping(np.array([1.0]), np.array([np.inf]))
    >>> record = Shard(np.array([[3.0, 4.0]]), np.zeros((1, 1)))
    >>> clipping.residual(np.array([[[1.0]]]), record).tolist()  # ||x||_2 = 5
    [[[0.2]]]
    """

    l2: Array
    l1: Array

    def scores(self, scores: Array, shard: Shard) -> Array:
        """Return the scores unchanged; only the gradient is clipped."""
        return scores

    def residual(self, residual: Array, shard: Shard) -> Array:
        """Return r min(1, l2 / (||x||_2 ||r||_2), l1 / (||x||_1 ||r||_1))."""
        xp = namespace(residual)
        factor = self.l2 / xp.maximum(shard.norm2[:, None] * xp.sqrt((residual**2).sum(axis=-1)), self.l2)
        if self._bounds_l1:
            l1 = self._finite_l1
            length = shard.norm1[:, None] * xp.abs(residual).sum(axis=-1)
            factor = xp.minimum(factor, l1 / xp.maximum(length, l1))
        return finite(residual * factor[..., None])  # maximum and minimum propagate nan

    def pass_options(self, shard: Shard) -> PassOptions:
        """Return options with both bounds."""
        return PassOptions(l2=self.l2, l1=self._finite_l1 if self._bounds_l1 else None)

    @cached_property
    def _finite_l1(self) -> Array:
        xp = namespace(self.l1)
        bound: Array = xp.clip(self.l1, None, xp.finfo(self.l1.dtype).max)
        return bound

    @cached_property
    def _bounds_l1(self) -> bool:
        return bool(namespace(self.l1).isfinite(self.l1).any())


@dataclass(frozen=True)
class RecordScaling:
    """Scale every record to ||x||_2 <= bound; unlike with gradient clipping, the loss stays convex and smooth."""

    bound: float

    def scores(self, scores: Array, shard: Shard) -> Array:
        """Return the scores of the scaled records."""
        return scores * self.scale(shard)[:, None, None]

    def residual(self, residual: Array, shard: Shard) -> Array:
        """Return the residuals times the factors of the records, so that x r^T is that of the scaled record."""
        return finite(residual * self.scale(shard)[:, None, None])

    def pass_options(self, shard: Shard) -> PassOptions:
        """Return options with a factor for every record."""
        return PassOptions(scale=self.scale(shard))

    def scale(self, shard: Shard) -> Array:
        """Return min(1, bound / ||x||_2) for every record, [n]."""
        scale: Array = self.bound / namespace(shard.norm2).clip(shard.norm2, self.bound, None)
        return scale


def finite(residual: Array) -> Array:
    """Replace NaN and infinities by 0."""
    kept: Array = namespace(residual).nan_to_num(residual, nan=0.0, posinf=0.0, neginf=0.0)
    return kept


def rounding_slack(features: int, outputs: int, precision: str) -> float:
    """Return a factor slightly below 1 for a clipping bound, so that norms rounded in this precision still respect it.

    In single precision it also covers the sum over the records, which is computed in double precision: the norms and
    the bound are off by at most (J/4 + 1) 2^-23, which leaves more than 8 2^-23, and the sums of neighbouring data sets
    with n records are off by at most n 2^-43 of a record's bound (see objectives.passes), which is 8 2^-23 at
    n = MAX_SINGLE.

    Parameters
    ----------
    features, outputs
        J and K.
    precision
        "float32" or "float64".
    """
    return 1.0 - (features + outputs + 8) * float(np.finfo(precision).eps)
