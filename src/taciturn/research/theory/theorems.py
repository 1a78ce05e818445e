"""The three convergence theorems and their constants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import FeasibleSet, Loss, Problem, Regulariser
from taciturn.objectives.constraints import Box, L2Ball
from taciturn.objectives.losses import Hinge, Softmax
from taciturn.objectives.regularizers import L1
from taciturn.types import Array, Shard

SMALLEST, LARGEST = 1e-6, 1e6  # epsilon of one local update
HEAVIEST = 1e12  # gamma, whose square is in every bound


def check_epsilons(epsilons: Iterable[float]) -> None:
    """Check that epsilons are in a range that can be computed.

    Far below it, L of the step 1 / (L + sqrt(t) / epsilon) is lost to rounding; far above it, there is no noise.

    Raises
    ------
    InputError
        If an epsilon is outside the range.
    """
    for epsilon in epsilons:
        if not SMALLEST <= epsilon <= LARGEST:
            raise InputError(
                f"epsilon is {epsilon:g}: for the theorems it must be at least {SMALLEST:g} and at most {LARGEST:g}"
            )


def check_gamma(gamma: float | None) -> None:
    """Raise if gamma is negative or so large that its square overflows; None stands for twice ||lambda*||."""
    if gamma is not None and not 0.0 <= gamma <= HEAVIEST:
        raise InputError(f"gamma is {gamma:g}; it must be at least 0 and at most {HEAVIEST:g}")


class Theorem(NamedTuple):
    """One theorem, by the name of its step."""

    number: int
    name: str
    functions: str  # which f_p it is about
    eta: str  # its eta^t
    w: str  # the field of Averages that holds its w^(T)
    z: str  # and its z^(T)
    in_rounds: float  # a: the bound falls as T^-a
    in_epsilon: float  # b: it grows as epsilon^-b, at most


SMOOTH = Theorem(1, "smooth", "smooth", "1 / (L + √t / ε)", "w_plain", "z_smooth", 0.5, 1.0)
NONSMOOTH = Theorem(2, "nonsmooth", "nonsmooth", "1 / √t", "w_plain", "z_nonsmooth", 0.5, 2.0)
STRONG = Theorem(3, "strong", "strongly convex", "2 / (α (t + 2))", "w_weighted", "z_strong", 1.0, 2.0)
THEOREMS = {theorem.name: theorem for theorem in (SMOOTH, NONSMOOTH, STRONG)}


MASS = 2.0  # ||r||_1 of residuals that are the difference of two distributions: h - y, e_k - y


class TheoremConstants(NamedTuple):
    """The constants in the right-hand sides."""

    agents: int  # P
    parameters: int  # J K
    gradient: float  # U_1 >= ||f_p'(u)|| for all u in W and all p; H of assumption 1 (iii) too
    diameter: float  # U_2 >= ||u - v|| for all u, v in W
    change: float  # U_3 >= ||f_p'(u; D_p) - f_p'(u; D_p')||_1, one record of D_p removed
    smoothness: float  # L, inf where some f_p is not smooth
    strong_convexity: float  # alpha, 0 where there is none


def constants(problem: Problem, shards: Sequence[Shard]) -> TheoremConstants:
    """Return the constants of a problem.

    Every record's gradient is x r^T, so its length is the product of the lengths of its factors, and over W neither x
    nor the bound on r changes. What holds for every u in W holds for the maximum over W.
    """
    parameters = shards[0].x.shape[1] * shards[0].y.shape[1]
    reach, diameter = extent(problem.feasible, parameters)
    pull = problem.beta / problem.agents * regulariser_bound(problem.regulariser, reach, parameters)
    return TheoremConstants(
        problem.agents,
        parameters,
        max(_gradient(problem, shard, reach) for shard in shards) + pull,
        diameter,
        max(_change(problem.loss, shard, reach) for shard in shards) / problem.records,
        problem.smoothness(shards),
        problem.strong_convexity,
    )


def extent(feasible: FeasibleSet, parameters: int) -> tuple[float, float]:
    """Return max ||u||_2 and max ||u - v||_2 over points of W with J K `parameters`; W must be compact."""
    match feasible:
        case Box(low, high):
            side = math.sqrt(parameters)
            return max(abs(low), abs(high)) * side, (high - low) * side
        case L2Ball(radius):
            return radius, 2.0 * radius
    raise InputError("the theorems need a compact W, and the set 'all' has no diameter: use --set box or l2-ball")


def residual_bounds(loss: Loss, shard: Shard, reach: float) -> Array:
    """Return the largest ||dl/ds||_2 over W for every record, [n].

    This is the loss's own bound, or ||dl/ds(0)|| + curvature ||s||: scores s = u^T x of u in W are at most reach ||x||
    long.
    """
    if math.isfinite(loss.residual_bound):
        return np.full(len(shard.x), loss.residual_bound)
    y = to_numpy(shard.y)
    at_zero = np.linalg.norm(loss.residual(np.zeros_like(y)[:, None], y)[:, 0], axis=1)
    found: Array = at_zero + loss.curvature * reach * to_numpy(shard.norm2)
    return found


def regulariser_bound(regulariser: Regulariser, reach: float, parameters: int) -> float:
    """Return the largest ||r'(u)||_2 over W: ||r'(0)|| + curvature reach, or sqrt(J K) for signs."""
    if isinstance(regulariser, L1):
        return math.sqrt(parameters)
    if not math.isfinite(regulariser.curvature):
        raise InputError("the theorems' U_1 is known for the regularisers l1 and l2, and for smooth ones")
    at_zero = regulariser.gradient(np.zeros((parameters, 1, 1)))
    return float(np.linalg.norm(at_zero)) + regulariser.curvature * reach


def _gradient(problem: Problem, shard: Shard, reach: float) -> float:
    """Return the largest ||(1/I) sum_i x_i r_i^T||_2 of an agent over W: the smallest of three bounds.

    Record by record: sum_i ||x_i|| ||r_i||. As matrices: ||X||_2 ||R||_F. For a smooth loss also from the gradient at
    0, which changes by at most L ||u|| between 0 and u.
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
    """Return the largest ||x_i r_i^T||_1 = ||x_i||_1 ||r_i||_1 of an agent over W; ||r||_1 <= sqrt(K) ||r||_2."""
    if isinstance(loss, Softmax | Hinge):
        mass = np.full(len(shard.x), MASS)
    else:
        mass = math.sqrt(shard.y.shape[1]) * residual_bounds(loss, shard, reach)
    return float((to_numpy(shard.norm1) * mass).max())
