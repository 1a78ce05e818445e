"""The constants of the theorems (eq. def_upper): numbers that hold over the whole of W."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tacit.arrays import to_numpy
from tacit.errors import InputError
from tacit.problems import FeasibleSet, Loss, Problem, Regulariser
from tacit.problems.losses.hinge import Hinge
from tacit.problems.losses.softmax import Softmax
from tacit.problems.regularisers.l1 import L1
from tacit.types import Array, Shard

MASS = 2.0  # ||r||_1 of residuals that are the difference of two distributions: h - y, e_k - y


class Constants(NamedTuple):
    """What the right-hand sides are made of."""

    agents: int  # P
    parameters: int  # J K
    gradient: float  # U_1 >= ||f_p'(u)|| for all u in W and all p; H of assumption 1 (iii) too
    diameter: float  # U_2 >= ||u - v|| for all u, v in W
    change: float  # U_3 >= ||f_p'(u; D_p) - f_p'(u; D_p')||_1, one record of D_p removed
    smoothness: float  # L, inf where some f_p is not smooth
    strong_convexity: float  # alpha, 0 where there is none


def constants(problem: Problem, shards: Sequence[Shard]) -> Constants:
    """The constants of a problem.

    Every record's gradient is x r^T, so it is as long as its two factors are, and over W neither x nor the bound on r
    changes. What holds for every u in W holds for the maximum over W.
    """
    parameters = shards[0].x.shape[1] * shards[0].y.shape[1]
    reach = compact(problem.feasible, parameters)
    pull = problem.beta / problem.agents * regulariser_bound(problem.regulariser, reach, parameters)
    return Constants(
        problem.agents,
        parameters,
        max(_gradient(problem, shard, reach) for shard in shards) + pull,
        problem.feasible.diameter(parameters),
        max(_change(problem.loss, shard, reach) for shard in shards) / problem.records,
        problem.smoothness(shards),
        problem.strong_convexity,
    )


def compact(feasible: FeasibleSet, parameters: int) -> float:
    """How far W reaches, which must be finite."""
    reach = feasible.reach(parameters)
    if not math.isfinite(reach):
        raise InputError("the theorems need a compact W, and the set 'all' has no diameter: use --set box or l2-ball")
    return reach


def residual_bounds(loss: Loss, shard: Shard, reach: float) -> Array:
    """For every record the largest ||dl/ds||_2 over W, [n].

    The loss's own bound, or ||dl/ds(0)|| + curvature ||s||: scores s = u^T x of u in W are no longer than reach ||x||.
    """
    if math.isfinite(loss.residual_bound):
        return np.full(len(shard.x), loss.residual_bound)
    y = to_numpy(shard.y)
    at_zero = np.linalg.norm(loss.residual(np.zeros_like(y)[:, None], y)[:, 0], axis=1)
    found: Array = at_zero + loss.curvature * reach * to_numpy(shard.norm2)
    return found


def regulariser_bound(regulariser: Regulariser, reach: float, parameters: int) -> float:
    """The largest ||r'(u)||_2 over W: ||r'(0)|| + curvature reach, or sqrt(J K) of the signs."""
    if isinstance(regulariser, L1):
        return math.sqrt(parameters)
    if not math.isfinite(regulariser.curvature):
        raise InputError("the theorems' U_1 is known for the regularisers l1 and l2, and for smooth ones")
    at_zero = regulariser.gradient(np.zeros((parameters, 1, 1)))
    return float(np.linalg.norm(at_zero)) + regulariser.curvature * reach


def _gradient(problem: Problem, shard: Shard, reach: float) -> float:
    """The largest ||(1/I) sum_i x_i r_i^T||_2 of an agent over W: the smallest of three bounds.

    Record by record: sum_i ||x_i|| ||r_i||. As matrices: ||X||_2 ||R||_F. And, where the loss is smooth, from the
    gradient at 0, which changes by at most L ||u|| on the way to u.
    """
    norms, residuals = to_numpy(shard.norm2), residual_bounds(problem.loss, shard, reach)
    largest = float(np.linalg.norm(to_numpy(shard.x), 2))
    found = [float(norms @ residuals), largest * float(np.linalg.norm(residuals))]
    if math.isfinite(problem.loss.curvature):
        x, y = to_numpy(shard.x), to_numpy(shard.y)
        at_zero = x.T @ problem.loss.residual(np.zeros_like(y)[:, None], y)[:, 0]
        found.append(float(np.linalg.norm(at_zero)) + problem.loss.curvature * largest**2 * reach)
    return min(found) / problem.records


def _change(loss: Loss, shard: Shard, reach: float) -> float:
    """The largest ||x_i r_i^T||_1 = ||x_i||_1 ||r_i||_1 of an agent over W; ||r||_1 <= sqrt(K) ||r||_2."""
    if isinstance(loss, Softmax | Hinge):
        mass = np.full(len(shard.x), MASS)
    else:
        mass = math.sqrt(shard.y.shape[1]) * residual_bounds(loss, shard, reach)
    return float((to_numpy(shard.norm1) * mass).max())
