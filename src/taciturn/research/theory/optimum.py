"""F(z*) and lambda* from scipy's solvers, independent of Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import FeasibleSet, Problem
from taciturn.objectives.constraints import Box, L2Ball
from taciturn.objectives.losses import Hinge
from taciturn.objectives.regularizers import L1, L2
from taciturn.types import Array, Shard

MAX_ROWS = 200_000  # inequalities that are still solved in a minute
CUTS = 60  # times that tangents of a square are added
CLOSE = 1e-10  # of the value: where adding them ends


class Solved(NamedTuple):
    """A solution with a subgradient of every agent's losses, computed from the program's multipliers.

    The regulariser is the same for all agents and cancels in lambda*.
    """

    w: Array  # [J, K]
    value: float
    accuracy: float  # no point of W is better by more
    subgradients: Array  # [P, J, K]


def solve_hinge(problem: Problem, box: Box, shards: Sequence[Shard]) -> Solved:
    """Solve min (1/I) sum_i s_i + beta sum_jk q_jk over w in W, s_i >= x_i^T (w_k - w_y) + 1 - y_ik, q_jk >= r(w_jk).

    q >= |w| is two inequalities. q >= w^2 is approximated by tangents: each solution adds its own, and the value of a
    program with some of them is a lower bound.
    """
    from scipy.sparse import vstack

    x, y = np.concatenate([s.x for s in shards]), np.concatenate([s.y for s in shards])
    shape = x.shape[1], y.shape[1]
    if y.size > MAX_ROWS:
        raise InputError(
            f"the optimum of the hinge loss is a linear program of {y.size:,} inequalities: at most {MAX_ROWS:,}"
        )
    if not isinstance(problem.regulariser, L1 | L2):
        raise InputError("the optimum of the hinge loss is known for the regularisers l1 and l2")
    squares = isinstance(problem.regulariser, L2) and problem.beta > 0.0
    margins, limit = _margins(x, y)
    rows, limits = [margins], [limit]
    if isinstance(problem.regulariser, L1):
        rows, limits = [margins, *_around(shape, len(x))], [limit, np.zeros(2 * w_size(shape))]
    for _ in range(CUTS):
        found = _program(problem, box, shape, len(x), vstack(rows, format="csr"), np.concatenate(limits))
        w = np.clip(found.x[: w_size(shape)], box.low, box.high).reshape(shape)
        value = float(problem.total(w[:, None], shards)[0])
        if not squares or value - found.fun <= CLOSE * max(1.0, abs(value)):
            break
        tangent = _tangents(w.ravel(), len(x))
        rows, limits = [*rows, tangent], [*limits, w.ravel() ** 2]
    parts = _subgradients(shards, -found.ineqlin.marginals, len(x), shape[1])
    return Solved(w, value, max(0.0, value - float(found.fun)), parts)


def w_size(shape: tuple[int, int]) -> int:
    """J K."""
    return shape[0] * shape[1]


def _program(problem: Problem, box: Box, shape: tuple[int, int], records: int, above: Any, limits: Array) -> Any:
    from scipy.optimize import linprog

    size = w_size(shape)
    cost = np.concatenate([np.zeros(size), np.full(records, 1.0 / problem.records), np.full(size, problem.beta)])
    ranges = [(box.low, box.high)] * size + [(0.0, None)] * records + [(0.0, None)] * size
    found = linprog(cost, above, limits, bounds=ranges, method="highs")
    if not found.success:
        raise InputError(f"the optimum was not found: {found.message}")
    return found


def _margins(x: Array, y: Array) -> tuple[Any, Array]:
    """Return x_i^T (w_k - w_y) - s_i <= y_ik - 1 for all records i and classes k."""
    from scipy.sparse import csr_matrix, eye, hstack, kron

    records, classes = y.shape
    inner = np.einsum("ij,ikc->ikjc", x, np.eye(classes)[None] - y[:, None, :]).reshape(records * classes, -1)
    slack = kron(eye(records), np.ones((classes, 1)))
    none = csr_matrix((records * classes, x.shape[1] * classes))
    return hstack([csr_matrix(inner), -slack, none], format="csr"), (y - 1.0).ravel()


def _around(shape: tuple[int, int], records: int) -> list[Any]:
    """Return w - q <= 0 and -w - q <= 0."""
    from scipy.sparse import csr_matrix, eye, hstack

    size = w_size(shape)
    one, none = eye(size), csr_matrix((size, records))
    return [hstack([sign * one, none, -one], format="csr") for sign in (1.0, -1.0)]


def _tangents(v: Array, records: int) -> Any:
    """Return 2 v w - q <= v^2, which is tight for q = w^2 at v."""
    from scipy.sparse import csr_matrix, diags, eye, hstack

    return hstack([diags(2.0 * v), csr_matrix((v.size, records)), -eye(v.size)], format="csr")


def _subgradients(shards: Sequence[Shard], prices: Array, records: int, classes: int) -> Array:
    """Return subgradients: a record's margin multipliers weigh the classes that attain its maximum, with sum 1/I."""
    weights = prices[: records * classes].reshape(records, classes)
    parts, first = [], 0
    for shard in shards:
        mine = weights[first : first + len(shard.x)]
        parts.append(shard.x.T @ (mine - mine.sum(axis=1, keepdims=True) * shard.y))
        first += len(shard.x)
    return np.stack(parts)


STEPS = 3_000  # of a solver, at most; what they leave is in the accuracy
ROUGH, FINE = 1e-9, 1e-11  # the longest entry of a gradient, on the way to a solution and at it
STRIDE, LEAST = math.log(4.0), math.log(1e-12)  # between two multipliers, and the smallest that is tried


class Optimum(NamedTuple):
    """A solution and its accuracy."""

    w: Array  # [J, K]
    value: float  # F(w), at most `accuracy` above the minimum
    accuracy: float
    dual: Array  # [P, J, K]  lambda*_p in f_p'(w*) + N_W(w*), which add up to 0
    method: str

    @property
    def dual_norm(self) -> float:
        """||lambda*||."""
        return float(np.linalg.norm(self.dual))


def optimum(problem: Problem, shards: Sequence[Shard]) -> Optimum:
    """Return the minimum of F over W for all agents together, and a dual optimal point.

    With subgradients g_p at w* whose sum g has -g in the normal cone of W, lambda*_p = g_p - g / P is a dual optimal
    point: the cone also contains -g / P, and the lambda*_p add up to 0, which makes w free as in line 5.

    Raises
    ------
    InputError
        If the loss, regulariser or set is not supported.
    """
    shards = [replace(s, x=to_numpy(s.x).astype(np.float64), y=to_numpy(s.y).astype(np.float64)) for s in shards]
    if not isinstance(problem.feasible, Box | L2Ball):
        raise InputError("the optimum is known for the sets box and l2-ball")
    if math.isfinite(problem.loss.curvature):
        return _smooth_loss(problem, shards)
    if isinstance(problem.loss, Hinge) and isinstance(problem.feasible, Box):
        found = solve_hinge(problem, problem.feasible, shards)
        method = "linear programs (HiGHS), until the least value possible is met"
        return Optimum(found.w, found.value, found.accuracy, balanced(found.subgradients), method)
    raise InputError("the optimum is known for smooth losses, and for the hinge loss in a box: use --set box")


def balanced(subgradients: Array) -> Array:
    """Return g_p - (1/P) sum_q g_q, [P, J, K]."""
    found: Array = subgradients - subgradients.mean(axis=0)
    return found


def _smooth_loss(problem: Problem, shards: Sequence[Shard]) -> Optimum:
    """Minimise with L-BFGS-B.

    An l1 norm is a sum over u, v >= 0 with w = u - v, and a ball a multiplier that a root finder determines.
    """
    shape = shards[0].x.shape[1], shards[0].y.shape[1]
    lasso = isinstance(problem.regulariser, L1)
    if not lasso and not math.isfinite(problem.regulariser.curvature):
        raise InputError("the optimum is known for the regularisers l1 and l2, and for smooth ones")
    losses = replace(problem, beta=0.0) if lasso else problem

    def joined(v: Array) -> Array:
        return (v[: v.size // 2] - v[v.size // 2 :] if lasso else v).reshape(shape)

    def minimiser(multiplier: float, v: Array, slope: float) -> Array:
        def both(v: Array) -> tuple[float, Array]:
            w = joined(v)
            value, slope = _total(losses, shards, w)
            value, slope = value + multiplier / 2.0 * float((w**2).sum()), slope + multiplier * w
            if not lasso:
                return value, slope.ravel()
            flat = slope.ravel()
            return value + problem.beta * float(v.sum()), np.concatenate([flat, -flat]) + problem.beta

        return _descend(both, v, _limits(problem.feasible, lasso), slope)

    v: Array = np.zeros(math.prod(shape) * (2 if lasso else 1))
    if isinstance(problem.feasible, L2Ball):
        v = _within_ball(minimiser, lambda v: float(np.linalg.norm(joined(v))), v, problem.feasible)
    else:
        v = minimiser(0.0, v, FINE)
    w = problem.feasible.project(joined(v)[:, None])[:, 0]
    return _finished(problem, losses, shards, w, lasso)


def _finished(problem: Problem, losses: Problem, shards: Sequence[Shard], w: Array, lasso: bool) -> Optimum:
    slopes = np.stack([losses.gradient(w[:, None], shard).value[:, 0] for shard in shards])
    if lasso:
        slopes = slopes + problem.beta / problem.agents * _signs(slopes.sum(axis=0), w, problem.beta)
    value = float(problem.total(w[:, None], shards)[0])
    method = "L-BFGS-B (scipy), certified by the linearised problem"
    accuracy = max(0.0, _shortfall(problem.feasible, slopes.sum(axis=0), w))
    return Optimum(w, value, accuracy, balanced(slopes), method)


def _shortfall(feasible: FeasibleSet, g: Array, w: Array) -> float:
    """Return max_{u in W} <g, w - u>: F is convex, so no point of W improves on w by more."""
    if isinstance(feasible, L2Ball):
        return float((g * w).sum() + feasible.radius * np.linalg.norm(g))
    low, high = (feasible.low, feasible.high) if isinstance(feasible, Box) else (0.0, 0.0)
    return float((g * w - np.where(g > 0.0, g * low, g * high)).sum())


def _signs(g: Array, w: Array, beta: float) -> Array:
    """Return the subgradient of the l1 norm at w that balances g where w is 0."""
    inner = np.clip(-g / beta, -1.0, 1.0) if beta > 0.0 else np.zeros_like(g)
    found: Array = np.where(np.abs(w) > 1e-9, np.sign(w), inner)
    return found


def _total(problem: Problem, shards: Sequence[Shard], w: Array) -> tuple[float, Array]:
    """Return F and its gradient, [J, K]."""
    slope = sum(problem.gradient(w[:, None], shard).value[:, 0] for shard in shards)
    return float(problem.total(w[:, None], shards)[0]), np.asarray(slope)


def _limits(feasible: FeasibleSet, split: bool) -> tuple[float | None, float | None]:
    """Return the bounds of every variable."""
    low, high = (feasible.low, feasible.high) if isinstance(feasible, Box) else (None, None)
    return (0.0, None if high is None or low is None else max(high, -low)) if split else (low, high)


def _descend(
    both: Callable[[Array], tuple[float, Array]], start: Array, limits: tuple[float | None, float | None], slope: float
) -> Array:
    """Minimise until the gradient is below `slope` or there is no more progress."""
    from scipy.optimize import minimize

    options: Any = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-16, "gtol": slope, "maxcor": 30}
    found = minimize(both, start, jac=True, method="L-BFGS-B", bounds=[limits] * len(start), options=options)
    return np.asarray(found.x)


def _within_ball(
    minimiser: Callable[[float, Array, float], Array], length: Callable[[Array], float], start: Array, ball: L2Ball
) -> Array:
    """Return the minimiser of F + (m/2) ||w||^2 on the sphere, or the free one, m = 0, if that is inside the ball.

    Large m are easy and come first. An error of d in m costs d^2 in F once w is scaled onto the sphere.
    """
    from scipy.optimize import brentq

    last = start

    def excess(log_m: float) -> float:
        nonlocal last
        last = minimiser(math.exp(log_m), last, ROUGH)
        return length(last) - ball.radius

    above = 0.0
    while excess(above) > 0.0:
        above += STRIDE
    below = above - STRIDE
    while excess(below) <= 0.0:
        above, below = below, below - STRIDE
        if below < LEAST:
            return minimiser(0.0, last, FINE)
    root = float(brentq(excess, below, above, xtol=1e-9))
    return minimiser(math.exp(root), last, FINE)
