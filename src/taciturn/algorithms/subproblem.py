"""An agent's whole subproblem, solved to a tolerance that is checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taciturn.algorithms.base import AlgorithmConfig
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.clipping import NO_CLIPPING, Clipping, RecordScaling
from taciturn.objectives.constraints import Box, L2Ball
from taciturn.types import Array, Shard

LOOSE = 1e3  # times the tolerance, up to which a step counts as exact where no guarantee hangs on it
POLISHING = 2000  # gradient steps after the solver gave up


@dataclass(frozen=True, eq=False)
class Subproblem:
    """min_{z in W} f_p(z) - <lambda, z> + (rho/2) ||w - z||^2  (eq. ADMM-2), of one run."""

    problem: Problem
    shard: Shard
    rho: float
    w: Array  # [J, 1, K]
    lam: Array  # [J, 1, K]
    tolerance: float

    def solve(self, start: Array) -> Array:
        """The minimiser, [J, 1, K], about as exact as the tolerance says."""
        match self.problem.feasible:
            case L2Ball(radius):
                return self._solve_in_ball(start, radius)
            case Box(low, high):
                return self._solve_loosely(start, box=(low, high))
            case _:
                return self._solve_loosely(start)

    def solve_within(self, start: Array) -> Array:
        """A z whose gradient is no longer than the tolerance: within tolerance / (rho + alpha) of the minimiser."""
        z = self._minimise(start)
        best = float(np.linalg.norm(gradient := self.gradient(z)))
        step = 1.0 / (self.rho + self.problem.smoothness([self.shard])) if best > self.tolerance else 0.0
        for _ in range(POLISHING):  # steps of 1 / L: where values no longer tell better from worse, gradients do
            if best <= self.tolerance:
                return z
            moved = z - step * gradient
            gradient_there = self.gradient(moved)
            change, turn = moved - z, gradient_there - gradient
            z, gradient, best = moved, gradient_there, float(np.linalg.norm(gradient_there))
            if (curved := float((change * turn).sum())) > 0.0:
                step = float((change * change).sum()) / curved  # Barzilai and Borwein
        raise InputError(f"a subproblem was not solved to the tolerance {self.tolerance:g}: raise it, or rho")

    def objective(self, z: Array, mu: float = 0.0) -> float:
        """What is minimised, with (mu/2) ||z||^2 added."""
        value = self.problem.objective(z, self.shard)[0]
        value += ((self.rho * (self.w - z) ** 2 + mu * z**2) / 2.0 - self.lam * z).sum()
        return float(value)

    def gradient(self, z: Array, mu: float = 0.0) -> Array:
        """Its gradient."""
        return self.problem.gradient(z, self.shard).value + self.rho * (z - self.w) + mu * z - self.lam

    def _solve_in_ball(self, start: Array, radius: float) -> Array:
        """The multiplier mu of ||z||^2 <= radius^2 is 0 or makes the constraint tight; ||z(mu)|| falls with mu."""
        from scipy.optimize import brentq

        z = self._solve_loosely(start)
        if np.linalg.norm(z) <= radius:
            return z
        high = self.rho
        while np.linalg.norm(self._solve_loosely(z, mu=high)) > radius:
            high *= 2.0
        mu = brentq(lambda m: float(np.linalg.norm(self._solve_loosely(z, mu=m)) - radius), 0.0, high, xtol=1e-12)
        return self.problem.feasible.project(self._solve_loosely(z, mu=mu))

    def _solve_loosely(self, start: Array, mu: float = 0.0, box: tuple[float, float] | None = None) -> Array:
        """A line search may give up a little before the tolerance; one that gave up early is not an exact step."""
        z = self._minimise(start, mu, box)
        step = z - self.gradient(z, mu)
        residual = float(np.abs(z - (step if box is None else np.clip(step, *box))).max())
        if residual > max(LOOSE * self.tolerance, 1e-5):
            raise InputError(f"admm's subproblem ended with a gradient of {residual:.1e}: raise rho or the tolerance")
        return z

    def _minimise(self, start: Array, mu: float = 0.0, box: tuple[float, float] | None = None) -> Array:
        from scipy.optimize import minimize

        def objective(flat: Array) -> tuple[float, Array]:
            z = flat.reshape(self.w.shape)
            return self.objective(z, mu), self.gradient(z, mu).ravel()

        found = minimize(
            objective,
            start.ravel().astype(np.float64),  # the solver works in the precision it starts in
            jac=True,
            method="L-BFGS-B",
            bounds=None if box is None else [box] * start.size,
            options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": self.tolerance},
        )
        return np.asarray(found.x).reshape(self.w.shape)


@dataclass(frozen=True, eq=False)
class Solver:
    """Subproblems of all runs, to a tolerance that a guarantee hangs on; records are bounded, W is the whole space."""

    problem: Problem
    tolerance: float
    limit: Clipping = NO_CLIPPING

    def __call__(self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard) -> Array:
        """The minimisers, [J, R, K]: every run is a problem of its own with its own stopping point."""
        own = bounded(shard, self.limit)
        z = np.empty_like(w)
        for r, penalty in enumerate(to_numpy(rho)[:, 0]):
            one = slice(r, r + 1)
            subproblem = Subproblem(self.problem, own, float(penalty), w[:, one], lam[:, one], self.tolerance)
            z[:, one] = subproblem.solve_within(start[:, one])
        return z

    def error(self, rho: Array) -> Array:
        """How far a solution can be from the minimiser: tolerance / (rho + alpha)."""
        return self.tolerance / self.convexity(rho)

    def convexity(self, rho: Array) -> Array:
        """rho + alpha, of the subproblem, in double precision: noise is scaled to it."""
        found: Array = to_numpy(rho).astype(np.float64) + self.problem.strong_convexity
        return found


def moved_minimiser(moved: float, tolerance: float, convexity: ArrayLike) -> Array:
    """How far one unit moves a solution: the minimiser by moved / (rho + alpha), and each solution has its error."""
    return (moved + 2.0 * tolerance) / np.asarray(convexity, np.float64)


def bounded(shard: Shard, limit: Clipping) -> Shard:
    """The records no longer than the limit allows."""
    if not isinstance(limit, RecordScaling) or float(shard.norm2.max(initial=0.0)) <= limit.bound:
        return shard
    return Shard(shard.x * limit.scale(shard)[:, None], shard.y)


def solver_for(name: str, recipe: AlgorithmConfig) -> Solver:
    """The solver of a method whose guarantee hangs on its tolerance; what that does not cover is refused."""
    problem = recipe.problem
    smooth = np.isfinite(problem.loss.curvature) and np.isfinite(problem.regulariser.curvature)
    if not (smooth and np.isfinite(problem.loss.residual_bound)):
        raise InputError(f"{name} needs a smooth loss with bounded gradient, and a smooth regulariser: softmax with l2")
    if isinstance(problem.feasible, (Box, L2Ball)):
        raise InputError(f"{name} needs set all: what its solver's tolerance means is not worked out for other sets")
    return Solver(problem, recipe.tolerance, recipe.limit)
