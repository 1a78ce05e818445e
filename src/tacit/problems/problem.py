"""The distributed empirical risk (eq. ERM_0) as every agent sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tacit.arrays import namespace
from tacit.problems.limits import NO_LIMIT, Limit
from tacit.problems.losses import Loss
from tacit.problems.regularisers import Regulariser
from tacit.problems.sets import FeasibleSet
from tacit.types import Array, Shard


class Gradient(NamedTuple):
    """A gradient with what it was made of: record i contributed x_i r_i^T / I."""

    value: Array  # [J, R, K]  f'_p(z)
    residual: Array  # [I_p, R, K]  r_i = dl/ds, as limited


@dataclass(frozen=True)
class Problem:
    """min_{w in W} sum_p f_p(w),  f_p(w) = (1/I) sum_i l(w; x_pi, y_pi) + (beta/P) r(w)  (eq. def_fn_f)."""

    loss: Loss
    regulariser: Regulariser
    beta: float
    feasible: FeasibleSet
    records: int  # I, or the public number declared for it: a normaliser
    agents: int  # P

    def objective(self, w: Array, shard: Shard) -> Array:
        """f_p of every run: w [J, R, K] -> [R]."""
        loss = self.loss.value(scores(w, shard.x), shard.y).sum(axis=0) / self.records
        value: Array = loss + self.beta / self.agents * self.regulariser.value(w)
        return value

    def total(self, w: Array, shards: Sequence[Shard]) -> Array:
        """F(w) = sum_p f_p(w) of every run, [R]."""
        total: Array = namespace(w).stack([self.objective(w, shard) for shard in shards]).sum(axis=0)
        return total

    def gradient(self, z: Array, shard: Shard, limit: Limit = NO_LIMIT) -> Gradient:
        """f'_p(z) = (1/I) sum_i x_i r_i^T + (beta/P) r'(z)  (eq. gradient), each record held within the limit."""
        residual = self.loss.residual(limit.scores(scores(z, shard.x), shard), shard.y)
        residual = limit.residual(residual, shard)
        mean = (shard.x.T @ residual.reshape(len(residual), -1)).reshape(z.shape) / self.records
        return Gradient(mean + self.shrinkage(z), residual)

    def shrinkage(self, z: Array) -> Array:
        """(beta/P) r'(z), the part of the gradient that no record enters."""
        return self.beta / self.agents * self.regulariser.gradient(z)

    def smoothness(self, shards: Sequence[Shard]) -> float:
        """L of all f_p, from the data: max_p curvature(l) ||X_p||_2^2 / I + (beta/P) curvature(r)."""
        return self._smoothness(max(_largest_eigenvalue(shard.x) for shard in shards))

    def public_smoothness(self, bound: float, records_max: int) -> float:
        """L of any f_p of at most records_max records with ||x||_2 <= bound: ||X_p||_2^2 <= records_max bound^2."""
        return self._smoothness(records_max * bound**2)

    def _smoothness(self, largest: float) -> float:
        return self.loss.curvature * largest / self.records + self.beta / self.agents * self.regulariser.curvature

    @property
    def strong_convexity(self) -> float:
        """alpha such that every f_p is alpha-strongly convex, whatever the data: (beta/P) alpha(r)."""
        return self.beta / self.agents * self.regulariser.strong_convexity


def scores(w: Array, x: Array) -> Array:
    """s_i = x_i^T w for every record and run, as one matrix product: w [J, R, K], x [n, J] -> [n, R, K]."""
    return (x @ w.reshape(len(w), -1)).reshape(len(x), *w.shape[1:])


def _largest_eigenvalue(x: Array) -> float:
    """||X||_2^2, from the smaller of the two Gram matrices."""
    gram = x.T @ x if x.shape[0] > x.shape[1] else x @ x.T
    return float(namespace(x).linalg.eigvalsh(gram)[-1])
