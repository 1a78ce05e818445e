"""The reference without privacy: the minimiser on the pooled records, unclipped, solved to convergence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.additive import coordinates
from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmConfig, AlgorithmSpec, AveragingServer, Step, Upload
from taciturn.algorithms.schedules import CentralSolution, Schedule
from taciturn.core.arrays import backing_file
from taciturn.data.feature_maps.bins import level_positions
from taciturn.errors import InputError
from taciturn.kernels.library import library
from taciturn.objectives import Problem
from taciturn.objectives.constraints import Unconstrained
from taciturn.privacy.events import non_private
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, ColumnBlock, Shard

RIDGES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)  # on the sum of losses, where a record has norm 1 on average
DEFAULT_RIDGE = 0.1  # where records are so many that the ridge hardly matters
RECORDS_PER_PARAMETER = 50  # records for each parameter that are so many
RECORDS_OF_EACH_CLASS = 10  # of every class: a rare one says little about a parameter, however many the others are
BENDS = (1.0, 10.0, 100.0, 1000.0)  # ridges of what is not straight in a column's curve, over that of what is
GAIN = 0.01  # of the held-out loss, for which bends have a larger ridge
CONSTANT_RIDGE = 0.01  # a large ridge must not draw the mean of all predictions to 0
FOLDS = 5
MIN_HELD_OUT = 2000  # records held out in all, at least, if there are so many: for large tables one fold is enough
TOLERANCE = 1e-7  # relative, of the objective in an iteration that is the last one
ROUGH_TOLERANCE = 1e-5  # of solutions that are only compared
MAX_ITERATIONS = 500
NEGLIGIBLE = 1e-12  # curvature of the mean loss that counts as none
LEAST = 1e-300  # sum of weights that counts as one


@dataclass(frozen=True, eq=False)
class PooledOptimum(AveragingServer):
    """w = argmin sum_i l(w; x_i, y_i) + (ridge/2) ||v||^2, or + I beta r(w) without a table's levels.

    If records have weights, the sum is I times the weighted mean of the losses, so only ratios of weights matter.

    v are the parameters in the coordinates of an additive model, which come from exact counts. The ridge takes the
    place of the regulariser, whose weight is relative to features that differ in size. Where records, or those of the
    rarest class, are few for the number of parameters, it is chosen by cross-validation, and so is a larger one of what
    bends a number's curve. The constant has a small ridge of its own.
    """

    problem: Problem
    rho: Schedule
    eta: Schedule
    blocks: tuple[ColumnBlock, ...] = ()
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Solve the problem by L-BFGS; it does not depend on w."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(None if library() is None else 1, user_api="blas"):  # threads wait busily in its solver
            z = self._solve(shard, w[:, 0])
        z = np.repeat(z[:, None], w.shape[1], axis=1).astype(w.dtype)
        return Step(Agent(z, agent.lam), Upload(z), (non_private(w.shape[1]),), np.zeros(w.shape[1]), self.eta(t))

    def _solve(self, shard: Shard, like: Array) -> Array:
        scale = 1.0 if shard.weights is None else self.problem.records / max(_total(shard), LEAST)
        if not self.blocks:
            basis = _plain_basis(len(like))
            return basis.coefficients(self._minimum(shard, like, basis, 0.0, scale))
        chosen = self._chosen(shard, like, scale)
        return chosen.basis.coefficients(self._minimum(shard, like, chosen.basis, chosen.ridge, scale, chosen.mean))

    def _chosen(self, shard: Shard, like: Array, scale: float) -> _Choice:
        """Return the penalties with which models best predict records that they were not trained on.

        This looks at the records, which is no loss here: the reference protects nobody. Penalties of bends that are not
        the least ones are chosen if they are better beyond the chance of such a choice.
        """
        plain, folds = self._basis(shard, BENDS[0]), self._folds(shard, like)
        if not folds:
            return _Choice(math.inf, DEFAULT_RIDGE, plain, None)
        first = best = self._best_ridge(folds, like, plain, scale)
        for bends in BENDS[1:]:
            found = self._best_ridge(folds, like, self._basis(shard, bends), scale)
            if found.losses >= best.losses:
                break
            best = found
        return best if best.losses < (1.0 - GAIN) * first.losses else first

    def _folds(self, shard: Shard, like: Array) -> list[tuple[Shard, Shard]]:
        """Return the records to train on and those held out, fold by fold; none if there is nothing to choose."""
        free = len(like) * max(1, like.shape[1] - 1)  # adding the same to the scores of all classes changes nothing
        records = len(shard.x) if shard.weights is None else self.problem.records
        if backing_file(shard.x) is not None or (
            records >= RECORDS_PER_PARAMETER * free and _rarest(shard) >= RECORDS_OF_EACH_CLASS * len(like)
        ):
            return []
        dealt = _fold_numbers(shard)
        if dealt.max(initial=0) < FOLDS - 1:
            return []
        folds = range(min(FOLDS, math.ceil(MIN_HELD_OUT * FOLDS / records)))
        return [(shard.rows(dealt != fold), shard.rows(dealt == fold)) for fold in folds]

    def _best_ridge(self, folds: Sequence[tuple[Shard, Shard]], like: Array, basis: _Basis, scale: float) -> _Choice:
        """Return the best ridge in a basis.

        Large ridges, which take the solver least time, come first, and every solution starts from that of the last one,
        until a ridge is worse.
        """
        solved: list[Array | None] = [None] * len(folds)
        best = _Choice(math.inf, RIDGES[0], basis, None)
        for ridge in RIDGES:
            found = [
                self._minimum(rest, like, basis, ridge, scale, start, ROUGH_TOLERANCE)
                for (rest, _), start in zip(folds, solved, strict=True)
            ]
            models = [basis.coefficients(a)[:, None].astype(like.dtype) for a in found]
            passes, loss = self.problem.passes, self.problem.loss
            losses = sum(float(passes.losses(loss, w, held)[0]) for w, (_, held) in zip(models, folds, strict=True))
            if losses >= best.losses:
                break
            solved = [*found]
            best = _Choice(losses, ridge, basis, sum(found[1:], start=found[0]) / len(found))
        return best

    def _minimum(
        self,
        shard: Shard,
        like: Array,
        basis: _Basis,
        ridge: float,
        scale: float,
        start: Array | None = None,
        change: float = TOLERANCE,
    ) -> Array:
        """Return the parameters of the basis, [D, K], that minimise the penalised losses of some records."""
        from scipy.optimize import minimize

        problem, shape = self.problem, (len(basis.curvatures), like.shape[1])
        beta, ridges = (0.0 if self.blocks else problem.records * problem.beta), basis.ridges(ridge)
        curvatures = problem.records * problem.loss.curvature * basis.curvatures + ridges
        scaling = 1.0 / np.sqrt(np.where(curvatures > 0.0, curvatures, 1.0))

        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            a = scaling * flat.reshape(shape)
            w = basis.coefficients(a)[:, None].astype(like.dtype)
            losses, sums = problem.passes.losses_and_sums(problem.loss, w, shard)
            penalty = beta * float(problem.regulariser.value(w)[0]) + float((ridges * a**2).sum()) / 2.0
            gradient: Array = scale * sums.astype(np.float64) + beta * problem.regulariser.gradient(w)
            slope = scaling * (basis.pulled_back(gradient[:, 0]) + ridges * a)
            return scale * float(losses[0]) + penalty, slope.ravel()

        first = np.zeros(shape) if start is None else start / scaling
        found = minimize(
            objective,
            first.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MAX_ITERATIONS, "ftol": change, "gtol": 0.0, "maxcor": 20},
        ).x
        minimum: Array = scaling * found.reshape(shape)
        return minimum

    def _basis(self, shard: Shard, bends: float) -> _Basis:
        """Return a basis of the curves in which the problem is round, from exact counts.

        The part of an ordered column's coordinates that is not on a straight line is divided by a root of `bends`, so
        that |v|^2 penalises it so many times as much. The Hessian of a column's parameters is about
        H = weight B' diag(frequencies) B + ridge, where B has a row for each level. The basis consists of the
        eigenvectors of H, whatever the ridge. Those of the eigenvalue 0, about which the records say nothing, are left
        out: their parameters are 0 at the minimum. What is left to the solver is the correlations between columns.
        """
        from scipy.sparse import block_diag

        width = sum(block.width for block in self.blocks)
        mean = sum(block.weighted(block.x).sum(axis=0, dtype=np.float64) for block in shard.blocks())
        mean = mean / max(_total(shard), LEAST)
        intercept = shard.x.shape[1] > width
        level = coordinates(np.ones(width), self.blocks, intercept).level
        frequencies = np.maximum(np.asarray(mean)[:width] / level, 0.0)
        code = coordinates(frequencies, self.blocks, intercept)
        parts, curvatures = [], []
        for rows, own, part in zip(code.columns, self.blocks, code.blocks, strict=True):
            block = part @ _shortened(part, own, bends) if own.kind == "ordered" else part
            values, vectors = np.linalg.eigh((block.T * frequencies[rows]) @ block)
            kept = values > NEGLIGIBLE
            parts.append(block @ vectors[:, kept] / code.level)
            curvatures.append(values[kept])
        if intercept:
            parts.append(np.full((1, 1), code.constant / code.intercept))
            curvatures.append(np.full(1, code.constant**2))
        matrix = block_diag(parts, "csr")
        return _Basis(matrix, matrix.T.tocsr(), np.concatenate(curvatures)[:, None], intercept)


class _Choice(NamedTuple):
    """Penalties, how well models that were trained with them predict, and the mean of those models."""

    losses: float
    ridge: float
    basis: _Basis
    mean: Array | None


class _Basis(NamedTuple):
    """Curves of which the models are sums, as parameters of the features, and a scaling that conditions the problem."""

    matrix: Any  # [J, D] sparse
    transposed: Any  # [D, J] sparse
    curvatures: NDArray[np.float64]  # [D, 1] of the mean loss along each of them, over the loss's own curvature
    intercept: bool  # whether the last one is the constant

    def coefficients(self, a: Array) -> Array:
        """Return parameters of the basis, [D, K], as those of the features, [J, K]."""
        found: Array = self.matrix @ a
        return found

    def pulled_back(self, gradient: Array) -> Array:
        """Return a gradient for the features' parameters, [J, K], as one for the parameters of the basis, [D, K]."""
        found: Array = self.transposed @ gradient
        return found

    def ridges(self, ridge: float) -> NDArray[np.float64]:
        """Return the ridge of each parameter, [D, 1]."""
        found = np.full_like(self.curvatures, ridge)
        if self.intercept:
            found[-1] = CONSTANT_RIDGE
        return found


def _shortened(part: NDArray[np.float64], column: ColumnBlock, bends: float) -> NDArray[np.float64]:
    """Return the map of an ordered column's parameters that keeps straight lines and divides bends by a root.

    `part` [width, width] has a row for each level, and a column for the step between each level and the next.
    """
    levels, found = column.width - column.missing, np.eye(column.width)
    if levels > 1:
        step = np.arange(levels - 1)
        line = np.diff(level_positions(levels)) / (part[step + 1, step] - part[step, step])
        along = np.outer(line, line) / (line @ line)
        found[: levels - 1, : levels - 1] = along + (np.eye(levels - 1) - along) / math.sqrt(bends)
    return found


def _plain_basis(width: int) -> _Basis:
    """Return the features themselves, whose problem is solved as it is."""
    from scipy.sparse import identity

    matrix = identity(width, format="csr")
    return _Basis(matrix, matrix, np.zeros((width, 1)), False)


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
