"""Gradients of random samples of an agent's records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import namespace
from tacit.problems.limits import NO_LIMIT, Limit
from tacit.problems.passes import PLAIN
from tacit.problems.problem import Problem
from tacit.types import Array, Shard


def sampled_gradient(
    problem: Problem,
    z: Array,
    shard: Shard,
    chosen: NDArray[np.bool_],  # [n, R]
    rate: float,  # q, the probability of being chosen
    limit: Callable[[int], Limit] = lambda run: NO_LIMIT,  # of every run
) -> Array:
    """(1/(q I)) sum over the chosen records of x_i r_i^T + (beta/P) r'(z), whose mean is f'_p(z), [J, R, K]."""
    xp, parts = namespace(z), []
    for r in range(z.shape[1]):
        rows = np.flatnonzero(chosen[:, r])
        one = z[:, r : r + 1]
        total = PLAIN.sums(problem.loss, one, _rows(shard, rows), limit(r)).total if len(rows) else xp.zeros_like(one)
        parts.append(total / (rate * problem.records) + problem.shrinkage(one))
    gradient: Array = xp.concatenate(parts, axis=1)
    return gradient


def _rows(shard: Shard, rows: NDArray[np.intp]) -> Shard:
    xp = namespace(shard.x)
    index = rows if xp is np else xp.as_tensor(rows, device=shard.x.device)
    return Shard(shard.x[index], shard.y[index])
