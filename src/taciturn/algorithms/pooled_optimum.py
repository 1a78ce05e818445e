"""The reference without privacy: the minimiser on the pooled records, unclipped, solved to convergence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.additive import Coordinates, coordinates
from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, AveragingServer, Step, Upload
from taciturn.algorithms.schedules import CentralSolution, Schedule
from taciturn.core.arrays import backing_file
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.constraints import Unconstrained
from taciturn.privacy.events import non_private
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, ColumnBlock, Shard

RIDGES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)  # on the sum of losses, where a record has norm 1 on average
DEFAULT_RIDGE = 0.1  # where records are so many that the ridge hardly matters
RECORDS_PER_PARAMETER = 50  # records for each parameter that are so many
RECORDS_OF_EACH_CLASS = 10  # of every class: a rare one says little about a parameter, however many the others are
CONSTANT_RIDGE = 0.01  # a large ridge must not draw the mean of all predictions to 0
FOLDS = 5
MIN_HELD_OUT = 2000  # records held out in all, at least, if there are so many: for large tables one fold is enough
TOLERANCE = 1e-7  # relative, of the objective in an iteration that is the last one
ROUGH_TOLERANCE = 1e-5  # of solutions that are only compared
MAX_ITERATIONS = 500
LEAST = 1e-300  # sum of weights that counts as one


@dataclass(frozen=True, eq=False)
class PooledOptimum(AveragingServer):
    """w = argmin sum_i l(w; x_i, y_i) + (ridge/2) ||v||^2, or + I beta r(w) without a table's levels.

    If records have weights, the sum is I times the weighted mean of the losses, so only ratios of weights matter.

    v are the parameters in the coordinates of an additive model, which come from exact counts. The ridge takes the
    place of the regulariser, whose weight is relative to features that differ in size. Where records, or those of the
    rarest class, are few for the number of parameters, it is chosen by cross-validation. The constant has a small ridge
    of its own.
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
        scale = 1.0 if shard.weights is None else self.problem.records / max(_total(shard), LEAST)
        ridge = 0.0 if code is None else self._ridge(shard, like, code, scale)
        v = self._minimum(shard, like, code, ridge, scale)
        solved: Array = (v if code is None else code.coordinates.coefficients(v))[:, 0]
        return solved

    def _ridge(self, shard: Shard, like: Array, code: _Code, scale: float) -> float:
        """Return the ridge with which models best predict records that they were not trained on.

        This looks at the records, which is no loss here: the reference protects nobody. Large ridges are tried first,
        because they are solved fastest. Each solution starts from the previous one, and the search ends when a ridge is
        worse.
        """
        free = len(like) * max(1, like.shape[1] - 1)  # adding the same to the scores of all classes changes nothing
        records = len(shard.x) if shard.weights is None else self.problem.records
        if backing_file(shard.x) is not None or (
            records >= RECORDS_PER_PARAMETER * free and _rarest(shard) >= RECORDS_OF_EACH_CLASS * len(like)
        ):
            return DEFAULT_RIDGE
        dealt = _fold_numbers(shard)
        if dealt.max(initial=0) < FOLDS - 1:
            return DEFAULT_RIDGE
        folds = range(min(FOLDS, math.ceil(MIN_HELD_OUT * FOLDS / records)))
        rest, held = [shard.rows(dealt != fold) for fold in folds], [shard.rows(dealt == fold) for fold in folds]
        solved: list[Array] = [np.zeros((len(like), 1, like.shape[1]))] * len(folds)
        best, least = RIDGES[0], math.inf
        for ridge in RIDGES:
            solved = [
                self._minimum(own, like, code, ridge, scale, start, ROUGH_TOLERANCE)
                for own, start in zip(rest, solved, strict=True)
            ]
            models = [code.coordinates.coefficients(v).astype(like.dtype) for v in solved]
            passes, loss = self.problem.passes, self.problem.loss
            losses = sum(float(passes.losses(loss, w, own)[0]) for w, own in zip(models, held, strict=True))
            if losses >= least:
                break
            best, least = ridge, losses
        return best

    def _minimum(
        self,
        shard: Shard,
        like: Array,
        code: _Code | None,
        ridge: float,
        scale: float,
        start: Array | None = None,
        change: float = TOLERANCE,
    ) -> Array:
        """Return the parameters of the coordinates, [J, 1, K], that minimise the penalised losses of some records."""
        from scipy.optimize import minimize

        problem, shape = self.problem, (len(like), 1, like.shape[1])
        beta, ridges = (problem.records * problem.beta if code is None else 0.0), np.full((len(like), 1, 1), ridge)
        if code is not None and code.coordinates.intercept:
            ridges[-1] = CONSTANT_RIDGE
        scaling = None if code is None else code.scaling(ridges)

        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            v = _parameters(flat, shape, scaling)
            w = (v if code is None else code.coordinates.coefficients(v)).astype(like.dtype)
            losses, sums = problem.passes.losses_and_sums(problem.loss, w, shard)
            penalty = beta * float(problem.regulariser.value(v)[0]) + float((ridges * v**2).sum()) / 2.0
            gradient: Array = scale * sums.astype(np.float64)
            gradient = gradient if code is None else code.coordinates.pulled_back(gradient)
            slope = gradient + beta * problem.regulariser.gradient(v) + ridges * v
            slope = slope if scaling is None else scaling.factors.pulled_back(slope)
            return scale * float(losses[0]) + penalty, slope.ravel().astype(np.float64)

        first = np.zeros(shape) if start is None or scaling is None else scaling.inverse.coefficients(start)
        found = minimize(
            objective,
            first.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MAX_ITERATIONS, "ftol": change, "gtol": 0.0, "maxcor": 20},
        ).x
        return _parameters(found, shape, scaling)

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
        return _Code(code, frequencies, self.problem.records * self.problem.loss.curvature)


class _Code(NamedTuple):
    """Coordinates of an additive model, and a scaling that makes the problem well conditioned in them."""

    coordinates: Coordinates
    frequencies: NDArray[np.float64]  # of all levels
    weight: float  # the curvature of the sum of the losses, at most

    def scaling(self, ridges: NDArray[np.float64]) -> _Preconditioner:
        """Return factors that make the Hessian of each single column about the identity.

        The Hessian of a column's parameters is about H = weight B' diag(frequencies) B + ridge, where B has a row for
        each level. With H = L L' the factor is the inverse of L'. The solver has to deal with
        correlations between columns alone.
        """
        factors, inverses = [], []
        for rows, block in zip(self.coordinates.columns, self.coordinates.blocks, strict=True):
            own = np.maximum(self.frequencies[rows], 0.0)
            root = np.linalg.cholesky(self.weight * (block.T * own) @ block + np.diag(ridges[rows, 0, 0])).T
            factors.append(np.asarray(np.linalg.inv(root), np.float64))
            inverses.append(np.asarray(root, np.float64))
        constant = math.sqrt(self.weight * self.coordinates.constant**2 + float(ridges[-1, 0, 0]))
        return _Preconditioner(
            Coordinates(tuple(factors), 1.0, 1.0 / constant, 1.0), Coordinates(tuple(inverses), 1.0, constant, 1.0)
        )


class _Preconditioner(NamedTuple):
    """A scaling that makes a problem well conditioned, and its inverse."""

    factors: Coordinates
    inverse: Coordinates


def _parameters(flat: NDArray[np.float64], shape: tuple[int, ...], scaling: _Preconditioner | None) -> Array:
    """Return the parameters of the coordinates, [J, 1, K], from those that the solver sees."""
    scaled = flat.reshape(shape)
    return scaled if scaling is None else scaling.factors.coefficients(scaled)


def _fold_numbers(shard: Shard) -> NDArray[np.intp]:
    """Return the fold of each record, [n]: equal for equal records, whatever their order, number and weights."""
    rows = zip(np.ascontiguousarray(shard.x), np.ascontiguousarray(shard.y), strict=True)
    drawn = [crc32(y.tobytes(), crc32(x.tobytes())) for x, y in rows]
    return np.unique(np.array(drawn), return_inverse=True)[1] % FOLDS


def _rarest(shard: Shard) -> float:
    """Return how many records the class with the fewest has; infinity if the label is a number."""
    return float(shard.y.sum(axis=0).min()) if shard.y.shape[1] > 1 else math.inf


def _total(shard: Shard) -> float:
    """Return the sum of the weights, which are 1 if there are none."""
    return float(len(shard.x) if shard.weights is None else shard.weights.sum(dtype=np.float64))


def _build(config: AlgorithmConfig) -> PooledOptimum:
    if not config.problem.is_smooth:
        raise InputError(
            "optimum, the default for tables without noise, needs a smooth problem: loss softmax or squared, and "
            "regulariser l2; otherwise choose another algorithm, such as dpgd"
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
