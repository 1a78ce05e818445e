"""The reference without privacy: the minimiser on the pooled records, unclipped, solved to convergence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.additive import Coordinates, coordinates
from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, AveragingServer, Step, Upload
from taciturn.algorithms.schedules import CentralSolution, Schedule
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.constraints import Unconstrained
from taciturn.privacy.events import non_private
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, ColumnBlock, Shard

RIDGE = 0.3  # on the sum of the losses, in coordinates in which a record has norm 1 on average
CHANGE = 1e-7  # relative, of the objective in an iteration that is the last one
MOST_ITERATIONS = 500
LEAST = 1e-300  # sum of weights that counts as one


@dataclass(frozen=True, eq=False)
class PooledOptimum(AveragingServer):
    """w = argmin sum_i l(w; x_i, y_i) + (ridge/2) ||v||^2, or + I beta r(w) without a table's levels.

    If records have weights, the sum is I times the weighted mean of the losses, so only ratios of weights matter.

    v are the parameters in the coordinates of an additive model, which come from exact counts. The ridge takes the
    place of the regulariser, whose weight is relative to features that differ in size.
    """

    problem: Problem
    rho: Schedule
    eta: Schedule
    blocks: tuple[ColumnBlock, ...] = ()
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Solve the problem by L-BFGS; it does not depend on w."""
        code = self._code(shard)
        z = np.stack([self._solve(shard, w[:, run], code) for run in range(w.shape[1])], axis=1).astype(w.dtype)
        return Step(Agent(z, agent.lam), Upload(z), (non_private(w.shape[1]),), np.zeros(w.shape[1]), self.eta(t))

    def _solve(self, shard: Shard, like: Array, code: _Code | None) -> Array:
        from scipy.optimize import minimize

        problem, shape = self.problem, (len(like), 1, like.shape[1])
        beta, ridge = (problem.records * problem.beta, 0.0) if code is None else (0.0, RIDGE)
        scale = 1.0 if shard.weights is None else problem.records / max(_total(shard), LEAST)

        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            v = _parameters(flat, shape, code)
            w = (v if code is None else code.coordinates.coefficients(v)).astype(like.dtype)
            losses, sums = problem.passes.losses_and_sums(problem.loss, w, shard)
            penalty = beta * float(problem.regulariser.value(v)[0]) + ridge / 2.0 * float((v**2).sum())
            gradient: Array = scale * sums.astype(np.float64)
            gradient = gradient if code is None else code.coordinates.pulled_back(gradient)
            slope = gradient + beta * problem.regulariser.gradient(v) + ridge * v
            slope = slope if code is None else code.scaling.pulled_back(slope)
            return scale * float(losses[0]) + penalty, slope.ravel().astype(np.float64)

        found = minimize(
            objective,
            np.zeros(like.size),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MOST_ITERATIONS, "ftol": CHANGE, "gtol": 0.0, "maxcor": 20},
        ).x
        v = _parameters(found, shape, code)
        solved: Array = (v if code is None else code.coordinates.coefficients(v))[:, 0]
        return solved

    def _code(self, shard: Shard) -> _Code | None:
        if not self.blocks:
            return None
        width = sum(block.width for block in self.blocks)
        mean = sum(block.weighted(block.x).sum(axis=0, dtype=np.float64) for block in shard.blocks())
        mean = mean / max(_total(shard), LEAST)
        intercept = shard.x.shape[1] > width
        level = coordinates(np.ones(width), self.blocks, intercept).level
        frequencies = np.asarray(mean)[:width] / level
        code = coordinates(frequencies, self.blocks, intercept)
        return _Code(code, _scaling(code, frequencies, self.problem.records * self.problem.loss.curvature))


class _Code(NamedTuple):
    """Coordinates of an additive model, and the scaling of their parameters in which the problem is round."""

    coordinates: Coordinates
    scaling: Coordinates


def _parameters(flat: NDArray[np.float64], shape: tuple[int, ...], code: _Code | None) -> Array:
    """Return the parameters of the coordinates, [J, 1, K], from those that the solver sees."""
    scaled = flat.reshape(shape)
    return scaled if code is None else code.scaling.coefficients(scaled)


def _scaling(code: Coordinates, frequencies: NDArray[np.float64], weight: float) -> Coordinates:
    """Return factors that make the Hessian of each single column about the identity.

    The Hessian of a column's parameters is about H = weight B' diag(frequencies) B + ridge, where B has a row for each
    level. With H = L L' the factor is the inverse of L'. Only correlations between columns are left to the solver.
    """
    factors, start = [], 0
    for block in code.blocks:
        own = np.maximum(frequencies[start : start + len(block)], 0.0)
        hessian = weight * (block.T * own) @ block + RIDGE * np.eye(len(block))
        factors.append(np.linalg.inv(np.linalg.cholesky(hessian)).T)
        start += len(block)
    return Coordinates(tuple(factors), 1.0, 1.0 / math.sqrt(weight * code.constant**2 + RIDGE), 1.0)


def _total(shard: Shard) -> float:
    """Return the sum of the weights, which are 1 if there are none."""
    return float(len(shard.x) if shard.weights is None else shard.weights.sum(dtype=np.float64))


def _build(config: AlgorithmConfig) -> PooledOptimum:
    if not np.isfinite(config.problem.loss.curvature + config.problem.regulariser.curvature):
        raise InputError(
            "optimum, which tables use without noise, solves smooth problems: it needs the loss softmax or squared, "
            "and the regulariser l2; for others name a method, such as dpgd"
        )
    if not isinstance(config.problem.feasible, Unconstrained):
        raise InputError("optimum needs set all: it solves the problem without constraints")
    return PooledOptimum.from_config(config)


ALGORITHMS.register("optimum")(
    AlgorithmSpec(
        "the reference without privacy: all records pooled, nothing clipped, solved to convergence",
        "w = argmin_w Σ ℓ(w; x, y) + I β r(w), or (ridge/2) ‖w‖² for additive models",
        _build,
        noisy=False,
        reference="Hoerl and Kennard, Technometrics 1970; Liu and Nocedal, Mathematical Programming 1989",
        modes=("certified",),
        backends=("numpy",),
        step_kind=CentralSolution,
        central=True,
        rounds=1,
    )
)
