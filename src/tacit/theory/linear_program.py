"""The hinge loss in a box as a linear program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import InputError
from tacit.problems import Problem
from tacit.problems.regularisers.l1 import L1
from tacit.problems.regularisers.l2 import L2
from tacit.problems.sets.box import Box
from tacit.types import Array, Shard

MOST_ROWS = 200_000  # inequalities that are still solved in a minute
CUTS = 60  # times that tangents of a square are added
CLOSE = 1e-10  # of the value: where adding them ends


class Solved(NamedTuple):
    """A solution with a subgradient of every agent's losses, made of the program's multipliers.

    The regulariser is the same for all agents, and cancels in lambda*.
    """

    w: Array  # [J, K]
    value: float
    accuracy: float  # no point of W is better by more
    subgradients: Array  # [P, J, K]


def solve_hinge(problem: Problem, box: Box, shards: Sequence[Shard]) -> Solved:
    """min (1/I) sum_i s_i + beta sum_jk q_jk  over w in W, s_i >= x_i^T (w_k - w_y) + 1 - y_ik, q_jk >= r(w_jk).

    q >= |w| is two inequalities. q >= w^2 is as many tangents as it takes: each solution gets its own, and the value
    of a program with some of them is a lower bound.
    """
    from scipy.sparse import vstack  # noqa: PLC0415  training needs only numpy

    x, y = np.concatenate([s.x for s in shards]), np.concatenate([s.y for s in shards])
    shape = x.shape[1], y.shape[1]
    if y.size > MOST_ROWS:
        raise InputError(
            f"the optimum of the hinge loss is a linear program of {y.size:,} inequalities: at most {MOST_ROWS:,}"
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
    from scipy.optimize import linprog  # noqa: PLC0415

    size = w_size(shape)
    cost = np.concatenate([np.zeros(size), np.full(records, 1.0 / problem.records), np.full(size, problem.beta)])
    ranges = [(box.low, box.high)] * size + [(0.0, None)] * records + [(0.0, None)] * size
    found = linprog(cost, above, limits, bounds=ranges, method="highs")
    if not found.success:
        raise InputError(f"the optimum was not found: {found.message}")
    return found


def _margins(x: Array, y: Array) -> tuple[Any, Array]:
    """x_i^T (w_k - w_y) - s_i <= y_ik - 1 for all records i and classes k."""
    from scipy.sparse import csr_matrix, eye, hstack, kron  # noqa: PLC0415

    records, classes = y.shape
    inner = np.einsum("ij,ikc->ikjc", x, np.eye(classes)[None] - y[:, None, :]).reshape(records * classes, -1)
    slack = kron(eye(records), np.ones((classes, 1)))
    none = csr_matrix((records * classes, x.shape[1] * classes))
    return hstack([csr_matrix(inner), -slack, none], format="csr"), (y - 1.0).ravel()


def _around(shape: tuple[int, int], records: int) -> list[Any]:
    """w - q <= 0 and -w - q <= 0."""
    from scipy.sparse import csr_matrix, eye, hstack  # noqa: PLC0415

    size = w_size(shape)
    one, none = eye(size), csr_matrix((size, records))
    return [hstack([sign * one, none, -one], format="csr") for sign in (1.0, -1.0)]


def _tangents(v: Array, records: int) -> Any:
    """2 v w - q <= v^2, which q = w^2 touches at v."""
    from scipy.sparse import csr_matrix, diags, eye, hstack  # noqa: PLC0415

    return hstack([diags(2.0 * v), csr_matrix((v.size, records)), -eye(v.size)], format="csr")


def _subgradients(shards: Sequence[Shard], prices: Array, records: int, classes: int) -> Array:
    """Multipliers of a record's margins are the weights of the classes that attain its maximum; they add up to 1/I."""
    weights = prices[: records * classes].reshape(records, classes)
    parts, first = [], 0
    for shard in shards:
        mine = weights[first : first + len(shard.x)]
        parts.append(shard.x.T @ (mine - mine.sum(axis=1, keepdims=True) * shard.y))
        first += len(shard.x)
    return np.stack(parts)
