"""The distributed empirical risk (eq. ERM_0): objective, gradient and smoothness of each agent's part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import in_precision_of, namespace
from taciturn.errors import InputError
from taciturn.objectives.clipping import NO_CLIPPING, Clipping
from taciturn.objectives.constraints import FeasibleSet
from taciturn.objectives.losses import Loss
from taciturn.objectives.passes import COMPILED, PLAIN, Passes
from taciturn.objectives.regularizers import Regulariser
from taciturn.types import Array, Shard


class Gradient(NamedTuple):
    """A gradient and the largest contribution of one record; record i contributes x_i r_i^T / I."""

    value: Array  # [J, R, K]  f'_p(z)
    longest: Array  # [R]  max_i ||x_i r_i^T||_1 / I, after clipping


@dataclass(frozen=True)
class Problem:
    """min_{w in W} sum_p f_p(w),  f_p(w) = (1/I) sum_i m_pi l(w; x_pi, y_pi) + (beta/P) r(w)  (eq. def_fn_f).

    m_pi is the record's weight within [0, 1]; in the paper, and without weights, it is 1.

    Parameters
    ----------
    loss : Loss
        The loss l.
    regulariser : Regulariser
        The regulariser r.
    beta : float
        The weight of the regulariser.
    feasible : FeasibleSet
        The feasible set W.
    records : int
        I, the number of records of all agents, or the public number declared for it; it only normalises.
    agents : int
        P, the number of agents.
    passes : Passes
        The implementation of sums over records.
    """

    loss: Loss
    regulariser: Regulariser
    beta: float
    feasible: FeasibleSet
    records: int
    agents: int
    passes: Passes = COMPILED

    def objective(self, w: Array, shard: Shard) -> Array:
        """Return f_p for every run: w [J, R, K] -> [R]."""
        loss = self.passes.losses(self.loss, w, shard) / self.records
        value: Array = loss + self.beta / self.agents * self.regulariser.value(w)
        return value

    def total(self, w: Array, shards: Sequence[Shard]) -> Array:
        """Return F(w) = sum_p f_p(w) for every run, [R]."""
        total: Array = namespace(w).stack([self.objective(w, shard) for shard in shards]).sum(axis=0)
        return total

    def gradient(self, z: Array, shard: Shard, clipping: Clipping = NO_CLIPPING) -> Gradient:
        """Return f'_p(z) = (1/I) sum_i x_i r_i^T + (beta/P) r'(z)  (eq. gradient), with r_i = m_i dl/ds.

        Parameters
        ----------
        z
            Parameters [J, R, K].
        shard
            The agent's records.
        clipping
            The bound on each record's contribution.
        """
        total, longest = self.passes.sums(self.loss, z, shard, clipping)
        value = in_precision_of(total / self.records + self.shrinkage(z), z)
        return Gradient(value, in_precision_of(longest / self.records, z))

    def shrinkage(self, z: Array) -> Array:
        """Return (beta/P) r'(z), the part of the gradient that does not depend on the records."""
        return self.beta / self.agents * self.regulariser.gradient(z)

    def smoothness(self, shards: Sequence[Shard]) -> float:
        """Return L of all f_p from the data: max_p curvature(l) ||X_p||_2^2 / I + (beta/P) curvature(r).

        Weights can only reduce it.
        """
        return self._smoothness(max(_largest_eigenvalue(shard) for shard in shards))

    def public_smoothness(self, bound: float, records_max: int) -> float:
        """Return L of any f_p with at most `records_max` records of ||x||_2 <= bound.

        It uses ||X_p||_2^2 <= records_max bound^2 and no data.
        """
        return self._smoothness(records_max * bound**2)

    def _smoothness(self, largest: float) -> float:
        return self.loss.curvature * largest / self.records + self.beta / self.agents * self.regulariser.curvature

    @property
    def is_smooth(self) -> bool:
        """Whether every f_p has an L."""
        return math.isfinite(self.loss.curvature + self.regulariser.curvature)

    @property
    def is_bounded(self) -> bool:
        """Whether the gradient of a record of bounded length is bounded."""
        return math.isfinite(self.loss.residual_bound)

    @property
    def strong_convexity(self) -> float:
        """alpha such that every f_p is alpha-strongly convex for all data: (beta/P) alpha(r)."""
        return self.beta / self.agents * self.regulariser.strong_convexity


def not_smooth(name: str) -> InputError:
    """Return the error of a method whose guarantee the problem does not allow."""
    return InputError(f"{name} needs a smooth loss with bounded gradient, and a smooth regulariser: softmax with l2")


def _largest_eigenvalue(shard: Shard) -> float:
    """Return ||X||_2^2, from the smaller of the two Gram matrices."""
    rows, features = shard.x.shape
    gram = shard.x @ shard.x.T if rows <= features else sum(block.x.T @ block.x for block in shard.blocks())
    return float(namespace(gram).linalg.eigvalsh(gram)[-1])


def sampled_gradient(
    problem: Problem,
    z: Array,
    shard: Shard,
    chosen: NDArray[np.bool_],
    rate: float,
    clipping: Callable[[int], Clipping] = lambda run: NO_CLIPPING,
) -> Array:
    """Return (1/(q I)) sum over the chosen records of x_i r_i^T + (beta/P) r'(z), whose mean is f'_p(z).

    Parameters
    ----------
    problem
        The problem.
    z
        Parameters [J, R, K].
    shard
        The agent's records.
    chosen
        Which records are in the sample of which run, [n, R].
    rate
        q, the probability that a record is in the sample.
    clipping
        The bound on a record's contribution, by run.

    Returns
    -------
    Array
        The gradients [J, R, K].
    """
    xp, parts = namespace(z), []
    for r in range(z.shape[1]):
        rows, z_run = np.flatnonzero(chosen[:, r]), z[:, r : r + 1]
        total = xp.zeros_like(z_run)
        if len(rows):
            total = PLAIN.sums(problem.loss, z_run, _rows(shard, rows), clipping(r)).total
        parts.append(total / (rate * problem.records) + problem.shrinkage(z_run))
    gradient: Array = xp.concatenate(parts, axis=1)
    return gradient


def _rows(shard: Shard, rows: NDArray[np.intp]) -> Shard:
    xp = namespace(shard.x)
    index = rows if xp is np else xp.as_tensor(rows, device=shard.x.device)
    return shard.rows(index)
